"""GCN."""

from __future__ import annotations

import itertools

import torch.nn.functional as F
from torch import Tensor, nn

from graphmend.engine.adjacency import Adjacency
from graphmend.engine.propagation import Propagation, gcn_norm
from graphmend.lab.backbones.layers import GraphConvolution, batch_norms, keeps_config


class GCN(nn.Module):
    r"""Graph convolutional network (Kipf & Welling, ICLR 2017, https://arxiv.org/abs/1609.02907).

    Hidden layers are :math:`\mathrm{dropout}(\mathrm{ReLU}(\mathrm{BN}(\hat A X W + b)))`, the last one is the bare
    convolution; ``embed`` returns the input of the last one.

    Example:
        >>> from graphmend.lab.backbones import GCN
        >>> import torch
        >>> model = GCN(8, 16, 3)
        >>> model(torch.rand(4, 8), torch.tensor([[0, 1, 2], [1, 2, 3]])).shape
        torch.Size([4, 3])
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
    ) -> None:
        super().__init__()
        sizes = [in_channels, *[hidden_channels] * (num_layers - 1), out_channels]
        self.convs = nn.ModuleList(GraphConvolution(a, b) for a, b in itertools.pairwise(sizes))
        self.norms = batch_norms(num_layers - 1, hidden_channels, batch_norm)
        self.dropout = dropout

    def embed(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        """The representation before the last convolution."""
        return self._embed(x, gcn_norm(Adjacency.of(edge_index, x.size(0)), edge_weight, x.dtype))

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        """Class scores."""
        propagate = gcn_norm(Adjacency.of(edge_index, x.size(0)), edge_weight, x.dtype)
        out: Tensor = self.convs[-1](self._embed(x, propagate), propagate)
        return out

    def _embed(self, x: Tensor, propagate: Propagation) -> Tensor:
        for conv, norm in zip(self.convs, self.norms, strict=False):
            assert isinstance(conv, GraphConvolution)
            x = F.dropout(conv.hidden(x, propagate, norm), self.dropout, self.training)
        return x
