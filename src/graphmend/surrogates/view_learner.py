"""A network that learns which edges to drop."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from graphmend.engine.adjacency import Adjacency
from graphmend.engine.autograd import apply, permuted
from graphmend.engine.neighbours import column_sums
from graphmend.engine.ops import row_sums

__all__ = ["ViewLearner"]

LOWEST_DRAW = 1e-4  # uniform draws keep this distance from 0 and 1
_NUMBERS = 1 << 22  # numbers of all edges that are computed at a time


class ViewLearner(nn.Module):
    r"""Scores edges by the embeddings of their ends, :math:`\ell_{ij} = v^\top \mathrm{ReLU}(W [z_i; z_j] + b) + c`.

    :math:`W [z_i; z_j] = W_1 z_i + W_2 z_j` is computed per node, not per edge, and hidden units are taken a few at a
    time, so that memory grows with the number of edges alone, not with edges times hidden units.
    """

    def __init__(self, in_channels: int, hidden_channels: int) -> None:
        super().__init__()
        self.source = nn.Linear(in_channels, hidden_channels, bias=False)
        self.target = nn.Linear(in_channels, hidden_channels)
        self.last = nn.Linear(hidden_channels, 1)

    def forward(self, z: Tensor, edge_index: Tensor) -> Tensor:
        """The score of each edge, in the order of ``edge_index``."""
        adjacency = Adjacency.of(edge_index, z.size(0))
        hidden = apply(_HiddenSum, adjacency, self.source(z), self.target(z), self.last.weight.view(-1))
        scores: Tensor = hidden + self.last.bias
        inverse = adjacency.inverse_perm
        return scores if inverse is None else permuted(scores, inverse, adjacency.perm)

    def draw(self, z: Tensor, edge_index: Tensor, generator: torch.Generator | None) -> Tensor:
        r"""To what degree each edge is kept, between 0 and 1: :math:`\sigma(\log r - \log(1 - r) + \ell)` with uniform
        r.

        This is the concrete relaxation of a coin toss (Maddison et al., ICLR 2017) at temperature 1.
        """
        draw = torch.rand(edge_index.size(1), generator=generator, device=z.device).to(z.dtype)
        draw = LOWEST_DRAW + (1 - 2 * LOWEST_DRAW) * draw
        kept: Tensor = (draw.logit() + self(z, edge_index)).sigmoid()
        return kept


class _HiddenSum(torch.autograd.Function):
    r""":math:`\sum_k v_k \mathrm{ReLU}(a_{jk} + b_{ik})` for every edge :math:`j \to i`, in row order."""

    @staticmethod
    def forward(ctx: Any, adjacency: Adjacency, a: Tensor, b: Tensor, v: Tensor) -> Tensor:
        out = a.new_zeros(adjacency.row.numel())
        for units in _blocks(adjacency, v.numel()):
            out += _hidden(adjacency, a, b, units).relu_() @ v[units]
        ctx.adjacency = adjacency
        ctx.save_for_backward(a, b, v)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor, Tensor, Tensor]:
        adjacency: Adjacency = ctx.adjacency
        a, b, v = ctx.saved_tensors
        for_a, for_b, for_v = torch.empty_like(a), torch.empty_like(b), torch.empty_like(v)
        for units in _blocks(adjacency, v.numel()):
            hidden = _hidden(adjacency, a, b, units).relu_()
            for_v[units] = grad @ hidden
            flow = (hidden > 0).to(grad.dtype).mul_(v[units]).mul_(grad.unsqueeze(-1))
            for_a[:, units] = column_sums(adjacency, flow)
            for_b[:, units] = row_sums(adjacency.pattern, flow)
        return None, for_a, for_b, for_v


def _hidden(adjacency: Adjacency, a: Tensor, b: Tensor, units: slice) -> Tensor:
    return a[:, units].index_select(0, adjacency.col).add_(b[:, units].index_select(0, adjacency.row))


def _blocks(adjacency: Adjacency, hidden: int) -> list[slice]:
    size = max(1, _NUMBERS // max(1, adjacency.row.numel()))
    return [slice(start, start + size) for start in range(0, hidden, size)]
