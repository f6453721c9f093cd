"""The one shape of a decision: what would be changed about a graph, what the model says then, and why."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from graphmend.engine.report import Report
from graphmend.results.verdict import Verdict

__all__ = ["Proposal"]


@dataclass(eq=False)
class Proposal:
    """What an adapter wants to change about the graph of a case; whatever is ``None`` stays as it is.

    Args:
        x: New features.
        removed: Positions of the edges to remove, ascending.
        added: Edges to add, ``(2, m)``.
        edge_weight: New weights, one per edge of the changed graph: the remaining edges, then the added ones.
        logits: The model's output on the changed graph, if the adapter knows it.
        menders: Names of the menders that it comes from.
        sentence: What is done and why, or why not, as part of a sentence.
        verdict: Why, if a gate decided.
        alternative: The version of the graph that was considered but not chosen.
        engine: How it was computed.
        is_made: Whether the change is made; one that was worked out but not made is only considered.

    Example:
        >>> import graphmend, torch
        >>> from graphmend.adapters import Proposal
        >>> from graphmend.lab.data import embedded
        >>> from torch_geometric.nn import GCN
        >>> class CutFirst:
        ...     # Cuts the first ten edges.
        ...     def propose(self, case):
        ...         return Proposal(removed=torch.arange(10), sentence="ten edges were cut")
        >>> data, model = embedded("wine").test[0], GCN(13, 16, num_layers=2, out_channels=3)
        >>> graphmend.mend(model, data, CutFirst()).patch.num_removed
        10
    """

    x: Tensor | None = None
    removed: Tensor | None = None
    added: Tensor | None = None
    edge_weight: Tensor | None = None
    logits: Tensor | None = None
    menders: tuple[str, ...] = ()
    sentence: str = ""
    verdict: Verdict | None = None
    alternative: Proposal | None = None
    engine: Report = field(default_factory=Report)
    is_made: bool = False

    @property
    def is_change(self) -> bool:
        """Whether anything would be changed."""
        return any(part is not None for part in (self.x, self.removed, self.added, self.edge_weight))

    @property
    def is_considered(self) -> bool:
        """Whether it is a change that was worked out but not made."""
        return self.is_change and not self.is_made
