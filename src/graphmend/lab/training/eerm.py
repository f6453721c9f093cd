"""EERM: invariant risk over environments that graph editors invent."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from graphmend.errors import check_fields, rate_number, real_number, require, whole_number
from graphmend.lab.data.splits import Splits
from graphmend.lab.training.base import Objective, Trainer, mean_risk, outputs

__all__ = ["EERM", "Editor", "flipped"]


@dataclass(frozen=True, kw_only=True)
class EERM(Trainer):
    r"""Explore-to-extrapolate risk minimisation (Wu et al., ICLR 2022, https://arxiv.org/abs/2202.02466).

    ``views`` editors (:class:`Editor`) per training graph flip edges. With :math:`R_k` the mean
    risk of the training graphs in view :math:`k`, the model takes a step down

    .. math:: \mathrm{Var}(R_1, \ldots, R_K) + \beta_e\, \mathrm{Mean}(R_1, \ldots, R_K), \qquad
              \beta_e = \beta \left(1 + g\, e / \text{epochs}\right),

    with the unbiased variance, after the editors have taken ``editor_steps`` AdamW steps down
    :math:`-\mathrm{Var}(R_1, \ldots, R_K) \sum_k \log p_k` (REINFORCE).

    The released code differs: where there are several training graphs it mixes views and graphs in the variance, or
    takes one step per graph; and for several editor steps it updates the model before the editors.

    Args:
        views: Editors per training graph, at least 2.
        flips: Edges flipped per node and view.
        editor_steps: Steps of the editors per epoch.
        editor_lr: Learning rate of the editors.
        beta: Weight of the mean risk.
        beta_growth: :math:`g`; 9 for Twitch in the released code, else 0.
        candidates: Edges per node that an editor can flip, drawn at random. ``None`` is the original method, an
            editor of all N x N entries; with a number, editors need O(N x candidates) memory.
        reset_editors: New random editors in every epoch, as the released code has them for Cora, Photo and Arxiv.
        released: Draw and score flips as the released code does; see :class:`Editor`.
        lr: As in :class:`~graphmend.lab.training.Trainer`, like ``weight_decay``, ``epochs``, ``optimizer`` and
            ``seed``.

    Example:
        >>> from graphmend.lab.training import EERM
        >>> EERM(lr=0.005, views=10, flips=1, editor_lr=0.001, reset_editors=True).beta  # Cora with a GCN
        1.0
        >>> EERM(views=3, flips=5, candidates=64).candidates  # a graph with too many nodes for N x N numbers
        64
    """

    views: int = 3
    flips: int = 5
    editor_steps: int = 1
    editor_lr: float = 0.005
    beta: float = 1.0
    beta_growth: float = 0.0
    candidates: int | None = None
    reset_editors: bool = False
    released: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_fields(self, whole_number, "views", low=2, hint="there is no variance of a single one")
        check_fields(self, whole_number, "flips", "editor_steps", low=1)
        check_fields(self, rate_number, "editor_lr")
        check_fields(self, real_number, "beta", "beta_growth", low=0)
        check_fields(
            self, whole_number, "candidates", low=self.flips, optional=True, hint="flips are chosen among them"
        )
        if self.candidates is not None:
            require(not self.released, "released=True needs all candidates; leave candidates at None")

    def objective(self, model: nn.Module, splits: Splits) -> Objective:
        """The variance and mean of the risks; the editors take their steps on the way."""
        views = [
            [Editor(data, self.flips, self.candidates, self.released) for data in splits.train]
            for _ in range(self.views)
        ]
        editors = [editor for view in views for editor in view]
        optimizer = torch.optim.AdamW([editor.scores for editor in editors], lr=self.editor_lr)

        def risks() -> Tensor:
            """The risk of each view. The editors learn from it."""
            drawn = {editor: editor.draw() for editor in editors}
            graphs = [[editor.view(drawn[editor]) for editor in view] for view in views]
            out = torch.stack([mean_risk(outputs(model, view), view, splits.task) for view in graphs])
            reward = out.detach().var()
            if torch.isfinite(reward):  # otherwise the loss is not finite, either, and training ends with that message
                with torch.enable_grad():
                    optimizer.zero_grad()
                    for editor, chosen in drawn.items():
                        (-reward * editor.log_probability(chosen)).backward()  # type: ignore[no-untyped-call]
                    optimizer.step()
            return out

        def loss(epoch: int) -> Tensor:
            if self.reset_editors:
                for editor in editors:
                    editor.reset()
            with torch.no_grad():
                for _ in range(self.editor_steps - 1):
                    risks()
            last = risks()
            return last.var() + self.beta * (1 + self.beta_growth * epoch / self.epochs) * last.mean()

        return Objective(loss)


class Editor(nn.Module):
    r"""Flips some edges into every node of one graph, drawn from a distribution that is learned.

    An editor has one score :math:`b_{rc}` for each of ``m`` candidate edges into every node :math:`r`. The candidate
    number :math:`c` of node :math:`r` is the edge from node :math:`(r + o_c) \bmod N`, where :math:`o_1, \ldots, o_m`
    are different offsets that were drawn at random. With ``m = N`` these are all entries of the adjacency matrix. With
    fewer, every entry is as likely as every other to be a candidate, and memory is :math:`O(N m)` instead of
    :math:`O(N^2)`.

    A view flips ``s`` different candidates of every node, drawn one after the other from the softmax of the scores of
    those that are left:

    .. math:: \log p = \sum_r \sum_{t=1}^{s} \Big( b_{r c_t} - \log \!\!\sum_{c \notin \{c_1, \ldots, c_{t-1}\}}\!\!
              e^{b_{rc}} \Big)

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
