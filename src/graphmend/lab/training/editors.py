r"""Graph editors: a learned distribution over small changes of a graph's edges.

An editor has one score :math:`b_{rc}` for each of ``m`` candidate edges into every node :math:`r`. The candidate
number :math:`c` of node :math:`r` is the edge from node :math:`(r + o_c) \bmod N`, where :math:`o_1, \dots, o_m` are
different offsets that were drawn at random. With ``m = N`` these are all entries of the adjacency matrix. With fewer,
every entry is as likely as every other to be a candidate, and memory is :math:`O(N m)` instead of :math:`O(N^2)`.

A view flips ``s`` different candidates of every node, drawn one after the other from the softmax of the scores of
those that are left:

.. math:: \log p = \sum_r \sum_{t=1}^{s} \Big( b_{r c_t} - \log \!\!\sum_{c \notin \{c_1, \dots, c_{t-1}\}}\!\!
          e^{b_{rc}} \Big)
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from graphmend.errors import require

__all__ = ["Editor", "flipped"]


class Editor(nn.Module):
    """Flips some edges into every node of one graph.

    Args:
        data: The graph.
        flips: Edges to flip per node.
        candidates: Candidates per node; all nodes when ``None``.
        released: Draw and score as the released EERM code does: node :math:`r` draws from *row* :math:`r` of the matrix
            whose *columns* are softmaxes, and what it drew is scored in column :math:`r`, with the normaliser
            subtracted once even for several draws. It needs all candidates.
    """

    def __init__(self, data: Data, flips: int, candidates: int | None = None, released: bool = False) -> None:
        super().__init__()
        nodes = int(data.num_nodes)
        number = nodes if candidates is None else min(candidates, nodes)
        require(
            flips <= number,
            f"flips={flips} is more than the {number} candidates of a node; flip fewer edges or allow more candidates",
        )
        self.data, self.flips, self.released = data, flips, released
        self.scores = nn.Parameter(torch.empty(nodes, number, device=data.x.device))
        self.offsets = torch.empty(number, dtype=torch.long, device=data.x.device)
        self.reset()

    @torch.no_grad()
    def reset(self) -> None:
        """Other candidates, and scores that are uniform in [0, 1)."""
        nodes, number = self.scores.shape
        self.offsets.copy_(torch.randperm(nodes, device=self.offsets.device)[:number].sort().values)
        self.scores.uniform_()

    @torch.no_grad()
    def draw(self) -> Tensor:
        """Candidates to flip, ``flips`` different ones per node, by number."""
        weights = self.scores.softmax(dim=1)
        if not self.released:
            return torch.multinomial(weights, self.flips)
        node = torch.arange(weights.size(0), device=weights.device)
        row, column = node[:, None], node[None, :]
        drawn = torch.multinomial(weights[column, (row - column) % node.numel()], self.flips)
        return (drawn - row) % node.numel()

    def log_probability(self, chosen: Tensor) -> Tensor:
        """How likely it is to draw just these candidates, in this order."""
        if self.released:
            return self.scores.gather(1, chosen).sum() - self.scores.logsumexp(dim=1).sum()
        left: Tensor = self.scores
        total = left.new_zeros(())
        for column in torch.split(chosen, 1, dim=1):
            total = total + (left.gather(1, column).squeeze(1) - left.logsumexp(dim=1)).sum()
            left = left.scatter(1, column, -torch.inf)
        return total

    def view(self, chosen: Tensor) -> Data:
        """The graph with these candidates flipped."""
        target = torch.arange(chosen.size(0), device=chosen.device).unsqueeze(1)
        source = (target + self.offsets[chosen]) % chosen.size(0)
        return flipped(self.data, source.flatten(), target.expand_as(source).flatten())


def flipped(data: Data, source: Tensor, target: Tensor) -> Data:
    """A copy of ``data`` without those of the given edges that it has, and with those that it does not have.

    Only the given direction is flipped, self-loops included. New edges have weight 1; an edge of weight 0 counts as one
    that is not there.
    """
    nodes, weight = int(data.num_nodes), data.edge_weight
    stored, drawn = (a.long() * nodes + b.long() for a, b in (data.edge_index, (source, target)))
    present = stored if weight is None else stored[weight != 0]
    keep, new = ~torch.isin(stored, drawn), drawn[~torch.isin(drawn, present)]
    added = torch.stack([new // nodes, new % nodes]).to(data.edge_index.dtype)
    out = copy.copy(data)
    out.edge_index = torch.cat([data.edge_index[:, keep], added], dim=1)
    if weight is not None:
        out.edge_weight = torch.cat([weight[keep], weight.new_ones(new.numel())])
    return out
