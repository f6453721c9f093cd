"""What the engine learns about a model and a loss, and its report about its work."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from torch import Tensor

__all__ = ["Abilities", "Measured", "NoEdgeGradient", "Report", "Stopped"]


class Stopped(Exception):
    """An adapter cannot go on; the message says why.

    Example:
        >>> import graphmend
        >>> from graphmend.adapters import Stopped
        >>> from graphmend.lab.data import embedded
        >>> from torch_geometric.nn import GCN
        >>> class Careful:
        ...     # Does nothing to a graph without an edge weight.
        ...     def propose(self, case):
        ...         raise Stopped("the edges have no weights")
        >>> data, model = embedded("wine").test[0], GCN(13, 16, num_layers=2, out_channels=3)
        >>> result = graphmend.mend(model, data, Careful())
        >>> result.reason, result.patch.is_empty
        ('the edges have no weights', True)
    """


class NoEdgeGradient(Stopped):
    """The loss has no finite gradient for the edges; it may have one for the features."""


@dataclass
class Abilities:
    """What trials have shown about a model and a loss, for the next graph."""

    is_sharing_tried: bool = False
    why_not_shared: str | None = None  #: ``None`` if it was tried and works
    is_recording_verified: bool = False
    why_not_recorded: str | None = None
    is_pure: bool = False  #: whether the loss was seen to leave the graph as it is


@dataclass(frozen=True)
class Report:
    """How an adaptation was computed, and why not faster."""

    shared_features: bool = False
    stacked_views: bool = False
    recorded: bool = False
    reasons: dict[str, str] = field(default_factory=dict)


class Measured(NamedTuple):
    """Numbers of one step, on the device: the terms of the loss, the norm of the gradient, the sum of ``p``."""

    terms: tuple[str, ...]
    values: Tensor
