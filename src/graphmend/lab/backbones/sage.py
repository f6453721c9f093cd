"""GraphSAGE with mean aggregation."""

from __future__ import annotations

import itertools

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from graphmend.engine.adjacency import Adjacency
from graphmend.engine.cache import cached
from graphmend.engine.neighbours import at_targets, incoming_sum
from graphmend.engine.propagation import Propagation, at_least_single
from graphmend.errors import require
from graphmend.lab.backbones.layers import affine, batch_norms, is_fixed, keeps_config


class MeanConvolution(nn.Module):
    r"""One SAGE layer :math:`y_i = \sum_j w_{ij} (W_l x_j + b_l) / \sum_j w_{ij} + W_r x_i`.

    The linear map with its bias comes before the mean, so a node without neighbours gets no bias.
    """

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.neighbour = nn.Linear(in_channels, out_channels)
        self.root = nn.Linear(in_channels, out_channels, bias=False)

    def forward(self, x: Tensor, mean: Propagation) -> Tensor:
        """``mean`` averages over the neighbours."""
        return mean(self.neighbour(x), add=self.root(x))

    def hidden(self, x: Tensor, mean: Propagation, norm: nn.Module) -> Tensor:
        """The layer with normalisation and ReLU, fused into one where nothing is trained and there are no hooks."""
        if not is_fixed(self, norm):
            return F.relu(norm(self(x, mean)))
        scale, shift = affine(norm)
        return mean(self.neighbour(x), add=self.root(x), scale=scale, shift=shift, relu=True)


class SAGE(nn.Module):
    r"""GraphSAGE (Hamilton et al., NeurIPS 2017, https://arxiv.org/abs/1706.02216), full batch, mean aggregation.

    ``mean="weights"`` divides by the sum of weights, the exact relaxation of the mean. ``mean="entries"`` divides by
    the number of edges with a non-zero weight, as the released GTrans code does.

    Example:
        >>> import torch
        >>> from graphmend.lab.backbones import SAGE
        >>> model = SAGE(3, 8, 2)
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
        batch_norm: bool = False,
        dropout: float = 0.0,
        mean: str = "weights",
    ) -> None:
        require(mean in ("weights", "entries"), f"mean must be 'weights' or 'entries' (got {mean!r})")
        super().__init__()
        sizes = [in_channels, *[hidden_channels] * (num_layers - 1), out_channels]
        self.convs = nn.ModuleList(MeanConvolution(a, b) for a, b in itertools.pairwise(sizes))
        self.norms = batch_norms(num_layers - 1, hidden_channels, batch_norm)
        self.dropout = dropout
        self.mean = mean

    def embed(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        """The representation before the last convolution."""
        return self._embed(x, self._mean(x, edge_index, edge_weight))

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        """Class scores."""
        mean = self._mean(x, edge_index, edge_weight)
        out: Tensor = self.convs[-1](self._embed(x, mean), mean)
        return out

    def _embed(self, x: Tensor, mean: Propagation) -> Tensor:
        for conv, norm in zip(self.convs, self.norms, strict=False):
            assert isinstance(conv, MeanConvolution)
            x = F.dropout(conv.hidden(x, mean, norm), self.dropout, self.training)
        return x

    def _mean(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None) -> Propagation:
        adjacency = Adjacency.of(edge_index, x.size(0))
        dtype = at_least_single(x.dtype)

        def compute() -> Propagation:
            if edge_weight is None:
                values = torch.ones(edge_index.size(1), dtype=dtype, device=x.device)
            else:
                values = adjacency.order(edge_weight.to(dtype))
            degree = incoming_sum(adjacency, values if self.mean == "weights" else (values != 0).to(dtype))
            inverse = degree.masked_fill(degree == 0, 1.0).reciprocal()
            return Propagation(adjacency, values * at_targets(adjacency, inverse))

        tensors = (adjacency.row,) if edge_weight is None else (adjacency.row, edge_weight)
        return cached(("mean", self.mean, dtype), tensors, compute)
