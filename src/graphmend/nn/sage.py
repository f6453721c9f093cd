"""GraphSAGE with mean aggregation."""

from __future__ import annotations

import itertools

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from graphmend.errors import require
from graphmend.nn.layers import batch_norms, remember
from graphmend.sparse import Adjacency, row_sum, spmm


class MeanConvolution(nn.Module):
    r"""One SAGE layer :math:`y_i = \sum_j w_{ij} (W_l x_j + b_l) / \sum_j w_{ij} + W_r x_i`.

    The linear map with its bias comes before the mean, so a node without neighbours gets no bias.
    """

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.neighbour = nn.Linear(in_channels, out_channels)
        self.root = nn.Linear(in_channels, out_channels, bias=False)

    def forward(self, x: Tensor, adjacency: Adjacency, values: Tensor, inverse_degree: Tensor) -> Tensor:
        """``values`` are edge weights in row order."""
        total = spmm(adjacency, values, self.neighbour(x))
        out: Tensor = inverse_degree.unsqueeze(-1) * total + self.root(x)
        return out


class SAGE(nn.Module):
    r"""GraphSAGE (Hamilton et al., NeurIPS 2017, https://arxiv.org/abs/1706.02216), full batch, mean aggregation.

    ``mean="weights"`` divides by the sum of weights, the exact relaxation of the mean. ``mean="entries"`` divides by
    the number of edges with a non-zero weight, as the released GTrans code does.
    """

    @remember
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
        return self._embed(x, *self._neighbours(x, edge_index, edge_weight))

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        """Class scores."""
        neighbours = self._neighbours(x, edge_index, edge_weight)
        out: Tensor = self.convs[-1](self._embed(x, *neighbours), *neighbours)
        return out

    def _embed(self, x: Tensor, adjacency: Adjacency, values: Tensor, inverse_degree: Tensor) -> Tensor:
        for conv, norm in zip(self.convs, self.norms, strict=False):
            x = F.relu(norm(conv(x, adjacency, values, inverse_degree)))
            x = F.dropout(x, self.dropout, self.training)
        return x

    def _neighbours(
        self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None
    ) -> tuple[Adjacency, Tensor, Tensor]:
        adjacency = Adjacency.of(edge_index, x.size(0))
        if edge_weight is None:
            values = torch.ones(edge_index.size(1), dtype=x.dtype, device=x.device)
        else:
            values = adjacency.order(edge_weight.to(x.dtype))
        degree = row_sum(adjacency, values if self.mean == "weights" else (values != 0).to(x.dtype))
        return adjacency, values, degree.masked_fill(degree == 0, 1.0).reciprocal()
