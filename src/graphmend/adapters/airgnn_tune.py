"""AirGNN-t: choose the weight of AirGNN's residual anew for the test graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated

import torch
from torch import Tensor, nn

from graphmend.adapters.base import Adapter
from graphmend.adapters.case import Case
from graphmend.adapters.labelled import accuracy, labelled_nodes
from graphmend.errors import read_fields, real_numbers, require
from graphmend.model import FrozenGNN
from graphmend.results.proposal import Proposal

__all__ = ["AirGNNTune"]

GRID = tuple(step / 10 for step in range(10))


@dataclass(frozen=True, eq=False)
class AirGNNTune(Adapter):
    r"""AirGNN-t of the paper: the trained weights, with ``lam`` chosen at test time.

    AirGNN (Liu et al., NeurIPS 2021) trusts a node's own features the more, the smaller its ``lam``, :math:`\lambda`.
    Every value is tried on the test graph; the one with the best accuracy on the labelled nodes wins, and among equals
    the first. ``result.model`` is a copy of the model with that value.

    Args:
        mask: Nodes whose labels may be used; by default training and validation nodes of the graph.
        values: The values of ``lam`` to try, each in [0, 1).

    Example:
        >>> import graphmend
        >>> from graphmend.lab.backbones import AirGNN
        >>> from graphmend.lab.data import embedded
        >>> data, model = embedded("wine").test[0], AirGNN(13, 16, 3)
        >>> result = graphmend.mend(model, data, graphmend.AirGNNTune(values=[0.1, 0.5]))
        >>> result.model is model, result.patch.is_empty
        (False, True)
    """

    mask: Tensor | None = None
    values: Annotated[Sequence[float], partial(real_numbers, low=0, below=1)] = GRID

    changes_model = True
    tasks = ("classes",)
    uses_card = False
    needs = "the backbone airgnn, and labels of some nodes"

    def __post_init__(self) -> None:
        read_fields(self)

    @torch.no_grad()
    def propose(self, case: Case) -> Proposal:
        """Try every value."""
        nodes, labels = labelled_nodes(case.data, self.mask, self)
        layers = [module for module in case.model.modules() if isinstance(getattr(type(module), "lam", None), property)]
        require(
            len(layers) > 0,
            f"AirGNNTune chooses lam of an AirGNN, but the model is a {type(case.model).__name__}; "
            "train graphmend.lab.backbones.AirGNN, or use GTrans for any model",
        )
        scores = {value: self._score(case, layers, value, nodes, labels) for value in self.values}
        best = max(scores, key=scores.__getitem__)
        _set(layers, best)
        return Proposal(sentence=f"lam = {best:g} predicts {scores[best]:.1%} of the labelled nodes right")

    def _score(self, case: Case, layers: list[nn.Module], value: float, nodes: Tensor, labels: Tensor) -> float:
        _set(layers, value)
        with FrozenGNN(case.model, case.data, seed=case.seed, mode="eager", output=case.output) as frozen:
            return accuracy(frozen.predict(case.data), nodes, labels)


def _set(layers: list[nn.Module], value: float) -> None:
    for layer in layers:
        layer.lam = value  # type: ignore[assignment]
