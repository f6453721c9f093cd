"""Graph attention network."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from graphmend.engine.adjacency import Adjacency
from graphmend.engine.cache import cached
from graphmend.engine.gat import attend
from graphmend.engine.neighbours import at_sources, at_targets, edge_softmax, spmm
from graphmend.engine.propagation import at_least_single
from graphmend.errors import choose
from graphmend.lab.backbones.layers import batch_norms, keeps_config

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"elu": F.elu, "relu": F.relu, "none": lambda x: x}


class AttentionConvolution(nn.Module):
    r"""One GAT layer: :math:`y_i = \Vert_h \sum_j \alpha^h_{ij} W^h x_j + b` with
    :math:`\alpha_{ij} \propto w_{ij} \exp(\mathrm{LeakyReLU}(a_s^\top W x_j + a_t^\top W x_i))`, self-loops included.
    """

    def __init__(self, in_channels: int, channels: int, heads: int, weight_after_softmax: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(nn.init.xavier_uniform_(torch.empty(in_channels, heads * channels)))
        self.source = nn.Parameter(nn.init.xavier_uniform_(torch.empty(heads, channels)))
        self.target = nn.Parameter(nn.init.xavier_uniform_(torch.empty(heads, channels)))
        self.bias = nn.Parameter(torch.zeros(heads * channels))
        self.weight_after_softmax = weight_after_softmax

    def forward(self, x: Tensor, adjacency: Adjacency, values: Tensor, dropout: float) -> Tensor:
        """``values`` are edge weights in row order, 0 for self-loops of the list (each node has its own)."""
        heads, channels = self.source.shape
        flat = x @ self.weight
        h = flat.view(*flat.shape[:-1], heads, channels)
        with torch.autocast(x.device.type, enabled=False):  # half precision has too few digits for scores
            source, target = (flat.to(self.source.dtype) @ self._ends()).chunk(2, dim=-1)
        if not self.weight_after_softmax and not (self.training and dropout > 0):
            return attend(adjacency, h, source, target, values).flatten(-2) + self.bias
        score = at_sources(adjacency, source) + at_targets(adjacency, target)
        inside = (~adjacency.is_loop).to(x.dtype) if self.weight_after_softmax else values
        attention, loop = edge_softmax(adjacency, F.leaky_relu(score, 0.2), inside, F.leaky_relu(source + target, 0.2))
        assert loop is not None
        if self.weight_after_softmax:
            attention = attention * values.unsqueeze(-1)
        attention, loop = (F.dropout(a, dropout, self.training) for a in (attention, loop))
        out = [spmm(adjacency, attention[:, k], h[:, k]) + loop[:, k].unsqueeze(-1) * h[:, k] for k in range(heads)]
        return torch.cat(out, dim=-1) + self.bias

    def _ends(self) -> Tensor:
        """The vectors of all heads as one map ``(heads * C, 2 heads)``, that of the sources and that of the targets."""

        def compute() -> Tensor:
            own = torch.eye(self.source.size(0), dtype=self.source.dtype, device=self.source.device)
            both = torch.stack([self.source, self.target], dim=-1)  # heads x C x 2
            return (both.unsqueeze(-1) * own[:, None, None]).flatten(2).flatten(0, 1)

        return cached("ends", (self.source, self.target), compute)


class GAT(nn.Module):
    r"""Graph attention network (Veličković et al., ICLR 2018, https://arxiv.org/abs/1710.10903).

    ``hidden_channels`` counts per head; hidden heads are concatenated, the output layer has one head. Dropout applies
    to the features before every layer and to the attention.

    ``released=True`` does what the released GTrans code does: edge weights multiply messages after the softmax (so
    weight 0 is not quite the edge removed), and ``embed`` uses ReLU where the prediction uses ELU.

    Example:
        >>> import torch
        >>> from graphmend.lab.backbones import GAT
        >>> model = GAT(3, 8, 2)
        >>> model(torch.rand(4, 3), torch.tensor([[0, 1, 2], [1, 2, 3]])).shape
        torch.Size([4, 2])
    """

    @keeps_config
    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        *,
        num_layers: int = 2,
        heads: int = 4,
        batch_norm: bool = False,
        dropout: float = 0.0,
        activation: str = "elu",
        released: bool = False,
    ) -> None:
        super().__init__()
        width = heads * hidden_channels
        sizes = [in_channels, *[width] * (num_layers - 2)]
        self.convs = nn.ModuleList(AttentionConvolution(a, hidden_channels, heads, released) for a in sizes)
        self.convs.append(AttentionConvolution(width, out_channels, 1, released))
        self.norms = batch_norms(num_layers - 1, width, batch_norm)
        self.dropout = dropout
        self.activation = choose("activation", activation, ACTIVATIONS)
        self.embed_activation = F.relu if released and activation == "elu" else self.activation

    def embed(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        """The representation before the last attention layer."""
        adjacency, values = self._values(x, edge_index, edge_weight)
        for conv, norm in zip(self.convs, self.norms, strict=False):
            x = F.dropout(x, self.dropout, self.training)
            x = self.embed_activation(norm(conv(x, adjacency, values, self.dropout)))
        return x

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        """Class scores."""
        adjacency, values = self._values(x, edge_index, edge_weight)
        for conv, norm in zip(self.convs, self.norms, strict=False):
            x = F.dropout(x, self.dropout, self.training)
            x = self.activation(norm(conv(x, adjacency, values, self.dropout)))
        out: Tensor = self.convs[-1](F.dropout(x, self.dropout, self.training), adjacency, values, self.dropout)
        return out

    def _values(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None) -> tuple[Adjacency, Tensor]:
        adjacency = Adjacency.of(edge_index, x.size(0))
        dtype = at_least_single(x.dtype)
        if edge_weight is None:
            return adjacency, (~adjacency.is_loop).to(dtype)
        return adjacency, adjacency.order(edge_weight.to(dtype)).masked_fill(adjacency.is_loop, 0.0)
