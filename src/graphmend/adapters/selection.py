"""Choosing by the labels of a few nodes: which iterate of an optimisation to keep, and which discrete graph."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from graphmend.adapters.case import Case
from graphmend.adapters.labelled import accuracy, labelled_nodes
from graphmend.graph.relaxed import RelaxedGraph

__all__ = ["LabelSelection"]


class LabelSelection:
    """The iterate, and then the discrete graph, with the best accuracy on labelled nodes; the first among equals.

    The released code of GTrans chooses this way under abnormal features and under attack; the paper takes the last
    iterate and the discrete graph with the lowest loss.

    Args:
        case: What the adapter works on.
        graph: Its variables. They are read after every step.
        mask: The nodes whose labels may be used.
        adapter: Who asks, for error messages.
    """

    def __init__(self, case: Case, graph: RelaxedGraph, mask: Tensor, adapter: object) -> None:
        self._frozen, self._graph = case.require_frozen(), graph
        self._nodes, self._labels = labelled_nodes(case.data, mask, adapter)
        self._iterate: list[Tensor] = []
        self._highest = self._highest_discrete = -math.inf
        self.flips: Tensor | None = None  #: the best discrete choice so far

    def note_iterate(self) -> None:
        """Score the relaxed graph as it is now, and remember it if it is the best one."""
        score = self._accuracy(None)
        if score > self._highest:
            self._highest, self._iterate = score, [tensor.clone() for tensor in self._variables()]

    @torch.no_grad()
    def restore(self) -> None:
        """Put the best iterate back into the variables."""
        for variable, kept in zip(
            self._variables(), self._iterate, strict=False
        ):  # none was kept before the first step
            variable.copy_(kept)

    def note_discrete(self, flips: Tensor) -> None:
        """Score a discrete graph, and remember its flips if it is the best one."""
        score = self._accuracy(flips)
        if score > self._highest_discrete:
            self._highest_discrete, self.flips = score, flips

    def _variables(self) -> list[Tensor]:
        return [self._graph.x] if self._graph.p is None else [self._graph.x, self._graph.p]

    @torch.no_grad()
    def _accuracy(self, flips: Tensor | None) -> float:
        logits = self._frozen(self._graph.x, self._graph.edge_index, self._graph.presence(flips))
        return accuracy(logits, self._nodes, self._labels)
