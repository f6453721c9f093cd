"""GCNJaccard: remove edges between dissimilar nodes, with a threshold chosen on labelled nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Annotated

import torch
from torch import Tensor

from graphmend.adapters.base import Adapter
from graphmend.adapters.case import Case
from graphmend.adapters.labelled import accuracy, labelled_nodes
from graphmend.errors import among, read_fields, real_numbers, require, within
from graphmend.graph.edits import without_edges
from graphmend.results.proposal import Proposal
from graphmend.transforms import KINDS, edge_similarity

__all__ = ["JaccardFilter"]

GRID = tuple(step / 10 for step in range(1, 10))


@dataclass(frozen=True, eq=False)
class JaccardFilter(Adapter):
    r"""GCNJaccard of the paper: the trained model on the graph without edges between dissimilar nodes.

    Every threshold is tried on the test graph with :class:`~graphmend.transforms.Jaccard`; the one with the best
    accuracy on the labelled nodes wins, and among equals the smallest. Leaving the graph as it is counts as a
    threshold, too. (Wu et al., IJCAI 2019, https://arxiv.org/abs/1903.01610.)

    Args:
        threshold: Edges whose ends are less similar are removed; ``None`` chooses one of ``thresholds`` by labels.
        mask: Nodes whose labels may be used; by default training and validation nodes of the graph.
        thresholds: What to choose from, in ascending order.
        kind: The similarity, ``"auto"``, ``"cosine"`` or ``"jaccard"``, as in :class:`~graphmend.transforms.Jaccard`.

    Example:
        >>> import graphmend, torch
        >>> from graphmend.lab.data import embedded
        >>> from torch_geometric.nn import GCN
        >>> data, model = embedded("digits").test[0], GCN(64, 16, num_layers=2, out_channels=10)
        >>> result = graphmend.mend(model, data, graphmend.JaccardFilter(threshold=0.9))
        >>> 0 < result.patch.num_removed < data.num_edges
        True
    """

    uses_card = False

    threshold: Annotated[float | None, within(-1, 1)] = None
    _: KW_ONLY
    mask: Tensor | None = None
    thresholds: Annotated[Sequence[float], partial(real_numbers, low=-1, high=1)] = GRID
    kind: Annotated[str, among(KINDS)] = "auto"

    def __post_init__(self) -> None:
        read_fields(self)

    @torch.no_grad()
    def propose(self, case: Case) -> Proposal:
        """Try every threshold."""
        data = case.data
        similarity = edge_similarity(data, self.kind)
        similarity[~case.limits.free_edges(data.edge_index, data.x.size(0))] = torch.inf  # self-loops stay, too
        threshold = self._chosen(case, similarity) if self.threshold is None else self.threshold
        sentence = f"edges between nodes that are less similar than {threshold:g} go"
        return Proposal(removed=(similarity < threshold).nonzero().view(-1), sentence=sentence)

    def _chosen(self, case: Case, similarity: Tensor) -> float:
        data, frozen = case.data, case.require_frozen()
        nodes, labels = labelled_nodes(data, self.mask, self)
        logits = frozen.predict(data)
        task = case.task(logits)
        are_classes = task.kind in (None, "classes") and not task.per_graph
        require(are_classes, f"JaccardFilter chooses by classes of nodes, but the task is {task}; give threshold=...")
        scores = {-torch.inf: accuracy(logits, nodes, labels)}
        for threshold in self.thresholds:
            kept = similarity >= threshold
            if bool(kept.any()):
                scores[threshold] = accuracy(frozen.predict(without_edges(data, kept)), nodes, labels)
        return max(scores, key=scores.__getitem__)
