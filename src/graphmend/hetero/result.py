"""What mending a heterogeneous graph returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import HeteroData

from graphmend.errors import require
from graphmend.graph.tasks import as_labels, check_task
from graphmend.hetero.one_type import task_of_type
from graphmend.hetero.patch import HeteroPatch
from graphmend.outputs import ASK, Task, changed_rows, predicted
from graphmend.results.adaptation import Adaptation
from graphmend.results.comparison import Comparison, compare
from graphmend.results.tables import html_table, text_lines
from graphmend.results.verdict import APPLIED, LEFT_ALONE, PARTLY, Verdict

__all__ = ["HeteroAdaptation", "joined_verdict"]

_NOT_JUDGED = "edges between different types are not judged"


@dataclass(frozen=True, eq=False)
class HeteroAdaptation:
    """A model and a heterogeneous graph that go together, and how they came about.

    Args:
        model: The caller's model.
        data: The graph to predict on, a new object.
        logits: The model's output on that graph, for the nodes of the predicted type.
        before: Its output on the graph as it was, with missing values filled (or there would be none).
        patch: The reversible change from the caller's graph to ``data``.
        node_type: The predicted type.
        by_type: What was done to each node type in turn, as results of their own, whose model is a function of only
            that type's features.
        reason: Why the graph was left as it was, if the adapter had to stop at every node type.
        seconds: Wall time.
        verdict: What the gate decided and why, if a gate was asked; evidence begins with the node type.
        filled: The part of the patch that fills missing values (NaN), if there were some.
        task: What the rows of the predicted type are.

    Example:
        >>> import torch
        >>> from torch_geometric.data import HeteroData
        >>> from torch_geometric.nn import HGTConv
        >>> _ = torch.manual_seed(0)
        >>> data = HeteroData()
        >>> data["paper"].x, data["author"].x = torch.randn(60, 4), torch.randn(30, 3)
        >>> data["author", "writes", "paper"].edge_index = torch.stack([torch.arange(60) % 30, torch.arange(60)])
        >>> class Net(torch.nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.conv = HGTConv({"paper": 4, "author": 3}, 8, data.metadata())
        ...         self.last = torch.nn.Linear(8, 2)
        ...     def forward(self, x_dict, edge_index_dict):
        ...         return self.last(self.conv(x_dict, edge_index_dict)["paper"].relu())
        >>> model = Net()
        >>> import graphmend
        >>> from graphmend.hetero import HeteroAdaptation
        >>> card = graphmend.card(model, data, task="classes")
        >>> today = data.clone()
        >>> today["author"].x[:3] *= 100
        >>> result = graphmend.mend(model, today, card=card)
        >>> isinstance(result, HeteroAdaptation), result.decision, result.patch.nodes["author"].num_rows
        (True, 'applied', 3)
    """

    model: nn.Module
    data: HeteroData
    logits: Tensor
    before: Tensor
    patch: HeteroPatch
    node_type: str
    by_type: dict[str, list[Adaptation]] = field(default_factory=dict)
    reason: str | None = None
    seconds: float = 0.0
    verdict: Verdict | None = None
    filled: HeteroPatch | None = None
    task: Task = field(default_factory=Task)

    @property
    def decision(self) -> str:
        """``"applied"``, ``"partly applied"`` or ``"left alone"``."""
        if self.verdict is not None:
            return self.verdict.decision
        return LEFT_ALONE if self.patch.is_empty else APPLIED

    @property
    def sentence(self) -> str:
        """Why, or what was changed, in a few words."""
        if self.verdict is not None:
            return _reason(self.verdict)
        return self.reason or self.patch.summary()

    @property
    def predictions(self) -> Tensor:
        """What is predicted for each node of the predicted type: a class, labels of 0 and 1, or the numbers."""
        return predicted(self.task, self.logits)

    @property
    def changed(self) -> Tensor:
        """The nodes of the predicted type whose prediction changed."""
        return changed_rows(self.task, self.before, self.logits).nonzero().view(-1)

    @property
    def values_filled(self) -> int:
        """How many missing values (NaN) were filled."""
        patches = () if self.filled is None else self.filled.nodes.values()
        return sum(int(torch.count_nonzero(patch.bits)) for patch in patches)

    def compare(self, y: Any = None, mask: Any = None, *, task: str | None = None) -> Comparison:
        """How many predictions changed, and with labels whether they got better; see :class:`graphmend.Adaptation`.

        Pairs of nodes are not scored, because models decode pairs of different types in ways of their own.
        """
        known = self.task
        if task is not None or known.kind is None:
            given = HeteroData({self.node_type: {"y": None if y is None else as_labels(y)}})
            known = task_of_type([self.logits], [given], self.node_type, check_task(task)).known()
        is_scored = y is None or known.kind != "embedding"
        require(is_scored, "pairs of nodes of a HeteroData are not scored here; score result.before and result.logits")
        return compare(self.before, self.logits, y, mask, known)

    def report(self, path: str | Path, y: Any = None, mask: Any = None, *, title: str = "") -> None:
        """Write one page about all of this that opens from disk, see :meth:`graphmend.Adaptation.report`."""
        from graphmend.hetero.report import hetero_facts  # only pages need jinja2
        from graphmend.results.report.page import check_page, write_page

        check_page(path)
        write_page(path, hetero_facts(self, y, mask, title))

    def summary(self) -> dict[str, Any]:
        """The most important numbers, ready for JSON."""
        return {
            "node_type": self.node_type,
            "missing_values_filled": self.values_filled,
            "feature_rows_changed": self.patch.num_rows,
            "edge_entries_removed": self.patch.num_removed,
            "edge_entries_added": 0,
            "edge_weights_changed": 0,
            "feature_rows_changed_by_type": {kind: patch.num_rows for kind, patch in self.patch.nodes.items()},
            "edge_entries_removed_by_type": {"__".join(kind): p.num_removed for kind, p in self.patch.edges.items()},
            "loss_first": None,
            "loss_last": None,
            "reason": self.reason,
            "task": str(self.task),
            "verdict": None if self.verdict is None else self.verdict.summary(),
            "seconds": self.seconds,
        }

    def __repr__(self) -> str:
        return text_lines(self._title, self._rows())

    def _repr_html_(self) -> str:
        return html_table(self._title, self._rows())

    @property
    def _predictions_row(self) -> str:
        if self.task.predicts:
            return f"{self.changed.numel()} of {self.logits.size(0)} changed"
        return (
            f"not counted: {self.task.doubt}; {ASK}" if self.task.kind is None else "none: the output is an embedding"
        )

    @property
    def _title(self) -> str:
        return f"HeteroAdaptation of a graph that is predicted at {self.logits.size(0)} nodes of {self.node_type!r}"

    def _rows(self) -> list[tuple[str, str]]:
        rows = {
            "verdict": None if self.verdict is None else str(self.verdict),
            "left alone": self.reason,
            "missing values": None if self.filled is None else f"{self.values_filled} filled",
            "patch": self.patch.summary(),
            "task": None if self.task.kind in (None, "classes") else str(self.task),
            "predictions": self._predictions_row,
            "time": f"{self.seconds:.2g} s",
        }
        return [(name, value) for name, value in rows.items() if value is not None]


def joined_verdict(
    verdicts: Mapping[str, list[Verdict]], flips: float | None, task: Task, *, has_mixed_edges: bool, is_changed: bool
) -> Verdict:
    """The verdicts on all node types as one.

    Args:
        verdicts: Those on each node type, in the order in which they were reached.
        flips: Share of the predicted nodes whose prediction changes; ``None`` where nothing is predicted.
        task: What the rows of the predicted type are.
        has_mixed_edges: Whether there are edges between different types.
        is_changed: Whether the graph was changed.
    """
    made: list[str] = []
    alone: list[str] = []
    menders: list[str] = []
    evidence = []
    is_doubtful = False
    for kind, own in verdicts.items():
        done = [verdict for verdict in own if verdict.decision != LEFT_ALONE]
        made += [f"{kind}: {'; then '.join(_reason(verdict) for verdict in done)}"] if done else []
        alone += [] if done else [f"{kind}: {_reason(own[-1])}"]
        menders += [mender for verdict in done for mender in verdict.menders]
        is_doubtful = is_doubtful or own[-1].decision == PARTLY
        evidence += [replace(item, name=f"{kind}: {item.name}") for item in own[-1].evidence]
    decision = LEFT_ALONE if not made else PARTLY if is_doubtful else APPLIED
    parts = [*(made or alone), *([_NOT_JUDGED] if has_mixed_edges else [])]
    regime = next(iter(verdicts.values()))[-1].regime
    card = "make a card, which tells far more (graphmend.card(model, train_data), or 'graphmend card')"
    undo = "result.patch.revert(result.data), or 'graphmend revert', takes the change back"
    return Verdict(
        decision,
        tuple(dict.fromkeys(menders)),
        regime,
        f"{decision}: {'; '.join(parts)}",
        tuple(evidence),
        flips,
        undo if is_changed else card if regime == "blind" else "",
        str(task),
    )


def _reason(verdict: Verdict) -> str:
    return verdict.sentence.removeprefix(f"{verdict.decision}: ")
