"""What an adapter returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from graphmend.engine.report import Report
from graphmend.errors import require, whole_number
from graphmend.graph.canonical import node_keys
from graphmend.graph.tasks import as_labels, check_task, task_of
from graphmend.outputs import ASK, Task, changed_rows, number_of_classes, number_of_columns, predicted, wrongness
from graphmend.results.comparison import Comparison, compare, compare_pairs
from graphmend.results.explain import Explanation, explain
from graphmend.results.fingerprint import fingerprint_of
from graphmend.results.history import Candidate, Steps
from graphmend.results.patch import Patch, rebase
from graphmend.results.plot import plot
from graphmend.results.proposal import Proposal
from graphmend.results.questions import class_number, labels_in_order, numbers_of, poll_of, rows_to_ask
from graphmend.results.tables import frame, html_table, node_columns, text_lines
from graphmend.results.verdict import APPLIED, LEFT_ALONE, PARTLY, Verdict

__all__ = ["Adaptation", "Runs"]


class Runs(Protocol):
    """Runs the caller's model again, as it was, for whatever is computed only on demand."""

    @property
    def model(self) -> nn.Module:
        """The caller's model."""
        ...

    @property
    def seed(self) -> int:
        """The seed of everything random."""
        ...

    def logits(self, data: Data, /, weights_count: bool = False) -> Tensor:
        """Its output on a graph."""
        ...

    def embedding_of(self, data: Data, model: nn.Module, /, weights_count: bool = False) -> Tensor:
        """Z of a model on a graph."""
        ...

    def pair_scores(self, model: nn.Module, z: Tensor, pairs: Tensor, /) -> Tensor:
        """How a model scores pairs of nodes, from its embedding."""
        ...


@dataclass(frozen=True, eq=False)
class Adaptation:
    """A model and a graph that go together, and how they came about.

    Args:
        model: The model to predict with: the caller's own, or a changed copy of it.
        data: The graph to predict on, a new object.
        logits: The model's output on that graph.
        patch: The reversible change from the caller's graph to ``data``.
        history: One entry per step.
        candidates: The discrete graphs that were scored, in order; the one with the lowest loss was taken.
        reason: Why model and graph were left as they were, or ``None``.
        seconds: Wall time.
        engine: How it was computed: whether products of the features were shared, views stacked and steps recorded.
        verdict: What the gate decided and why, if a gate was asked.
        alternative: The version of the graph that the gate did not return, if there is one.
        rerun: Runs the caller's model again.
        filled: The part of the patch that fills missing values (NaN), if there were any.
        task: What the model's rows are.

    Example:
        >>> import graphmend
        >>> from graphmend.lab.data import embedded
        >>> from torch_geometric.nn import GCN
        >>> data, model = embedded("wine").test[0], GCN(13, 16, num_layers=2, out_channels=3)
        >>> today = data.clone()
        >>> today.x[:5] *= 100
        >>> result = graphmend.mend(model, today, card=graphmend.card(model, data))
        >>> isinstance(result, graphmend.Adaptation), result.decision
        (True, 'applied')
        >>> result.patch.num_rows, tuple(result.logits.shape)
        (5, (178, 3))
    """

    model: nn.Module
    data: Data
    logits: Tensor
    patch: Patch
    history: Steps = field(default_factory=Steps)
    candidates: list[Candidate] = field(default_factory=list)
    reason: str | None = None
    seconds: float = 0.0
    engine: Report = field(default_factory=Report)
    verdict: Verdict | None = None
    alternative: Proposal | None = None
    rerun: Runs | None = None
    filled: Patch | None = None
    task: Task = field(default_factory=Task)

    @property
    def predictions(self) -> Tensor:
        """What the model predicts: a class for each node (or graph), labels of 0 and 1, or the numbers."""
        return predicted(self.task, self.logits)

    @property
    def decision(self) -> str:
        """``"applied"``, ``"partly applied"`` or ``"left alone"``: what was done to the graph, or to the model."""
        if self.verdict is not None:
            return self.verdict.decision
        return LEFT_ALONE if self.patch.is_empty and not self._changes_model else APPLIED

    @property
    def sentence(self) -> str:
        """Why, or what was changed, in a few words."""
        if self.verdict is not None:
            return self.verdict.sentence.removeprefix(f"{self.decision}: ")
        if self.reason is not None:
            return self.reason
        return "a changed copy of the model" if self._changes_model else self.patch.summary()

    @property
    def predictions_changed(self) -> int | None:
        """How many predictions changed; ``None`` if the model would have to run once more to count them."""
        before = self._computed_before()
        is_known = before is not None and self.task.predicts
        return int(changed_rows(self.task, before, self.logits).sum()) if is_known and before is not None else None

    @property
    def _changes_model(self) -> bool:
        return self.rerun is not None and self.rerun.model is not self.model

    @cached_property
    def before(self) -> Tensor:
        """The output of the caller's model on the graph as it was, with missing values filled (or there would be none).

        If it is not known, it is computed on first use: the patch takes the change back, and the model runs once more
        and is left as it was. If ``data`` or the model have changed in the meantime, that is an error.
        """
        logits = self._computed_before()
        return self.require_rerun().logits(self.graph_before()) if logits is None else logits

    def graph_before(self) -> Data:
        """The graph as it was, except that missing values are filled."""
        original = self.patch.revert(self.data)
        return original if self.filled is None else self.filled.applied(original)

    @property
    def values_filled(self) -> int:
        """How many missing values (NaN) were filled."""
        return 0 if self.filled is None else int(torch.count_nonzero(self.filled.bits))

    def _is_before(self, patch: Patch) -> bool:
        return patch.is_empty if self.filled is None else patch.is_like(self.filled)

    def _computed_before(self) -> Tensor | None:
        if not self._changes_model and self._is_before(self.patch):
            return self.logits
        if self.alternative is not None and not self.alternative.is_change:
            return self.alternative.logits
        return vars(self).get("before")

    def require_rerun(self) -> Runs:
        """What runs the caller's model again."""
        require(self.rerun is not None, "this result cannot run the model again; mend the graph again")
        assert self.rerun is not None
        return self.rerun

    @property
    def changed(self) -> Tensor:
        """The nodes (or graphs) whose prediction changed, see :func:`graphmend.outputs.changed_rows`."""
        return changed_rows(self.task, self.before, self.logits).nonzero().view(-1)

    def compare(
        self, y: Any = None, mask: Any = None, *, task: str | None = None, edge_label_index: Tensor | None = None
    ) -> Comparison:
        """How many predictions changed, from which class to which, and with labels whether they got better.

        Args:
            y: True classes, labels or numbers, one row for each of the output's; of an embedding, whether each pair of
                ``edge_label_index`` is an edge.
            mask: The nodes (or graphs, or pairs) to compare, as a boolean tensor; with ``y``, choose those with a
                label.
            task: What the model's rows are, if that is not known.
            edge_label_index: The pairs of nodes; those of the graph by default.
        """
        known = self._known_task(task, y)
        if known.kind != "embedding" or y is None:
            return compare(self.before, self.logits, y, mask, known)
        pairs = self.data.get("edge_label_index") if edge_label_index is None else edge_label_index
        require(pairs is not None, "the graph has no pairs of nodes to score; give edge_label_index=...")
        rerun = self.require_rerun()
        scores = [rerun.pair_scores(m, z, pairs) for m, z in ((rerun.model, self.before), (self.model, self.logits))]
        return compare_pairs(compare(self.before, self.logits, None, None, known), scores[0], scores[1], y, mask)

    def _known_task(self, task: str | None, y: Any = None) -> Task:
        """What the model's rows are: as they are known, are named, or as labels show."""
        if task is None and self.task.kind is not None:
            return self.task
        given = None if y is None else as_labels(y)
        return task_of([self.logits], [self.data], named=check_task(task), y=given).known()

    def to_frame(self) -> Any:
        """A pandas ``DataFrame`` with one row per node, see :func:`graphmend.results.tables.node_columns`."""
        return frame(node_columns(self))

    def plot(self, path: str | Path | None = None) -> Any:
        """Draw what happened, see :func:`graphmend.results.plot.plot`; returns a matplotlib ``Figure``.

        Args:
            path: Where to save it, if anywhere; the ending decides on the format.
        """
        return plot(self, path)

    def report(self, path: str | Path, y: Any = None, mask: Any = None, *, title: str = "") -> None:
        """Write one page about all of this that opens from disk, see :mod:`graphmend.results.report`.

        Args:
            path: The ``.html`` file.
            y: True classes (labels, numbers), if they are known: the page then says whether predictions got better.
            mask: The nodes (or graphs) that are scored, as a boolean tensor.
            title: What the graph is called.
        """
        from graphmend.results.report.page import write_report  # only pages need jinja2

        write_report(path, self, y, mask, title)

    def explain(self, node: int, *, task: str | None = None) -> Explanation:
        """Why the prediction of a node changed: how much each part of the change contributed, see :mod:`.explain`.

        Args:
            node: The number of the node.
            task: What the model's rows are, if that is not known.
        """
        return explain(self, node, self._known_task(task))

    def rebase(self, original: Data, *, cast: Data | None = None, before: str | None = None) -> Adaptation:
        """The same result for the graph as it was before its features were converted to the type of the model.

        Args:
            original: The graph in its own type and on its own device; see :func:`graphmend.results.patch.rebase`.
            cast: The converted graph that was mended, if you still have it unchanged.
            before: The fingerprint of the original graph, if it is known.
        """
        cast = self.patch.revert(self.data) if cast is None else cast
        before = fingerprint_of(original) if before is None else before
        patch, data = rebase(self.patch, cast, original, before=before)
        filled = None if self.filled is None else rebase(self.filled, cast, original, before=before)[0]
        if self.alternative is None:
            return replace(self, data=data, patch=patch, filled=filled)
        other = self.alternative
        if other.is_change:
            change, changed = rebase(self._patch_of(other, cast), cast, original, before=before)
            other = replace(
                other,
                x=None if other.x is None else changed.x,
                removed=None if other.removed is None else change.removed,
                added=None if other.added is None else change.added_edges(),
                edge_weight=None if other.edge_weight is None else changed.edge_weight,
            )
        result = replace(self, data=data, patch=patch, alternative=other, filled=filled)
        keys = vars(self).get("_keys")  # the same questions are asked in either type
        vars(result)["_keys"] = self._node_keys(cast) if keys is None else keys
        return result

    def questions(self, number: int = 25) -> Tensor:
        """Nodes whose labels would settle whether the change helps, in the order in which to ask for them.

        They are drawn from the nodes whose prediction the proposed change flips; no other node can settle anything.
        There are none if the gate had nothing to propose. Pass the labels to :meth:`decide`. If graphs are predicted,
        the numbers are those of graphs.

        Args:
            number: How many at most.
        """
        number = whole_number("number", number, 1)
        if self.alternative is None:
            return torch.empty(0, dtype=torch.long, device=self.logits.device)
        old, new = self._old_and_new(self.alternative)
        return rows_to_ask(changed_rows(self.task, old, new), number, self._keys)

    def decide(self, labels: Mapping[int, Any] | Tensor) -> Adaptation:
        """Settle with a few labels whether the proposed change is applied; see :mod:`graphmend.results.questions`.

        Args:
            labels: True classes by node, or one for each node of ``questions(len(labels))`` in that order. With several
                labels or numbers in each row, rows of them by node.

        Returns:
            The result that the labels speak for; the gate's own if they settle nothing.
        """
        if self.alternative is None:
            return self
        old, new = self._old_and_new(self.alternative)
        label_of = dict(labels) if isinstance(labels, Mapping) else None
        if label_of is None:
            values = labels_in_order(labels, 1 if self.task.kind == "classes" else number_of_columns(self.logits))
            require(len(values) > 0, "labels is empty; give the labels of result.questions()")
            nodes = self.questions(len(values)).tolist()
            fits = len(nodes) == len(values)
            require(fits, f"there are {len(nodes)} questions but {len(values)} labels; give one per question")
            label_of = dict(zip(nodes, values, strict=True))
        changed = changed_rows(self.task, old, new)
        order = rows_to_ask(changed, changed.numel(), self._keys)
        asked = [node for node in order.tolist() if node in label_of]
        require(len(asked) > 0, "none of the labelled nodes changes its prediction; label those of result.questions()")
        result = poll_of(self._sides(old, new, asked, label_of))
        counts = f"of {result.asked} labels {result.for_change} speak for the change and {result.against} against it"
        if result.decision is None:
            return replace(self, verdict=replace(self._verdict(), sentence=f"{self._verdict().sentence}; {counts}"))
        other, menders = self.alternative, self._verdict().menders
        is_other = result.decision == other.is_considered
        chosen = other.menders if is_other else menders
        decision = APPLIED if result.decision else PARTLY if chosen else LEFT_ALONE
        original = self.patch.revert(self.data)
        patch = self._patch_of(other, original) if is_other else self.patch
        sentence = f"{decision}: {self._filling}{counts}"
        verdict = replace(
            self._verdict(),
            decision=decision,
            menders=chosen,
            regime="labels",
            sentence=sentence,
            flips=0.0 if self._is_before(patch) else float(changed.double().mean()),
            next_step="",
        )
        if not is_other:
            return replace(self, verdict=verdict)
        assert other.logits is not None
        return replace(
            self,
            data=patch.applied(original),
            logits=other.logits,
            patch=patch,
            verdict=verdict,
            alternative=replace(self.as_proposal(), menders=menders, is_made=other.is_considered),
        )

    def _sides(self, old: Tensor, new: Tensor, asked: list[int], known: Mapping[int, Any]) -> list[int]:
        """For each row, by its label, which output is the better one: the new one (1), the old one (-1) or neither."""
        if self.task.kind == "classes":
            classes = number_of_classes(self.logits)
            truth = torch.tensor([class_number(known[row], classes) for row in asked])
        else:
            columns = number_of_columns(self.logits)
            truth = torch.tensor([numbers_of(known[row], columns) for row in asked], dtype=torch.float64)
        was, now = (wrongness(self.task, logits[asked].cpu(), truth) for logits in (old, new))
        return torch.sign(was - now).nan_to_num(nan=0.0).int().tolist()

    def as_proposal(self) -> Proposal:
        """The change that was made, as a proposal, without the filling of missing values."""
        is_mended = not self._is_before(self.patch)
        has_weights = self.patch.weight_bits is not None or self.patch.new_weights is not None
        return Proposal(
            x=self.data.x if is_mended and self.patch.num_rows else None,
            removed=self.patch.removed if self.patch.num_removed else None,
            added=self.patch.added_edges() if self.patch.num_added else None,
            edge_weight=self.data.edge_weight if has_weights else None,
            logits=self.logits,
            menders=() if self.verdict is None else self.verdict.menders,
            engine=self.engine,
        )

    def _patch_of(self, other: Proposal, original: Data) -> Patch:
        """The patch from the caller's graph to another version of it."""
        x = other.x if other.x is not None or self.filled is None else self.filled.applied(original).x
        return Patch.make(original, x, other.removed, other.added, other.edge_weight, before=self.patch.before)[0]

    @cached_property
    def _keys(self) -> Tensor:
        """A key for each node that does not depend on the numbering and decides which nodes to ask about.

        The key of a graph is the sum of its nodes' keys.
        """
        keys = self._node_keys(self.patch.revert(self.data))
        if not self.task.per_graph:
            return keys
        sums = keys.new_zeros(self.logits.size(0))
        return sums.index_add_(0, self.graph_of_nodes(), keys)

    def graph_of_nodes(self) -> Tensor:
        """The number of each node's graph."""
        batch = self.data.get("batch")
        return torch.zeros_like(self.data.x[:, 0], dtype=torch.long) if batch is None else batch

    def _node_keys(self, original: Data) -> Tensor:
        graph = original if self.filled is None else self.filled.applied(original)
        return node_keys(graph.x, graph.edge_index)

    @property
    def _filling(self) -> str:
        """That missing values were filled, as the beginning of a sentence; nothing where none were missing."""
        if self.filled is None:
            return ""
        return f"{self.values_filled:,} missing value{' was' if self.values_filled == 1 else 's were'} filled; "

    def _verdict(self) -> Verdict:
        assert self.verdict is not None
        return self.verdict

    def _old_and_new(self, other: Proposal) -> tuple[Tensor, Tensor]:
        """The output without the change in question and the output with it."""
        assert other.logits is not None
        self.task.known()
        return (self.logits, other.logits) if other.is_considered else (other.logits, self.logits)

    def __repr__(self) -> str:
        return text_lines(self._title, self._rows())

    def _repr_html_(self) -> str:
        return html_table(self._title, self._rows())

    @property
    def _title(self) -> str:
        return f"Adaptation of a graph with {self.patch.nodes} nodes and {self.patch.edges} edge entries"

    def _rows(self) -> list[tuple[str, str]]:
        """The essentials; nothing is computed for them."""
        changed = self.predictions_changed
        rows_changed = "compare() counts those that changed"
        if self.task.kind is None:
            rows_changed = f"not counted: {self.task.doubt}; {ASK}"
        elif self.task.kind == "embedding":
            rows_changed = "none: the output is an embedding; compare(y) scores pairs of nodes"
        elif changed is not None:
            rows_changed = f"{changed} of {self.logits.size(0)} changed"
        rows = {
            "verdict": None if self.verdict is None else str(self.verdict),
            "left alone": self.reason,
            "missing values": f"{self.values_filled} filled" if self.filled is not None else None,
            "patch": self.patch.summary(),
            "history": repr(self.history) if self.history else None,
            "task": None if self.task.kind in (None, "classes") and not self.task.per_graph else str(self.task),
            "predictions": rows_changed,
            "time": f"{self.seconds:.2g} s",
        }
        return [(name, value) for name, value in rows.items() if value is not None]

    def summary(self) -> dict[str, Any]:
        """The most important numbers, ready for JSON."""
        return {
            "steps": len(self.history),
            "loss_first": self.history[0].loss if self.history else None,
            "loss_last": self.history[-1].loss if self.history else None,
            "missing_values_filled": self.values_filled,
            "feature_rows_changed": self.patch.num_rows,
            "edge_entries_removed": self.patch.num_removed,
            "edge_entries_added": self.patch.num_added,
            "edge_weights_changed": self.patch.num_weights,
            "reason": self.reason,
            "task": str(self.task),
            "verdict": None if self.verdict is None else self.verdict.summary(),
            "seconds": round(self.seconds, 3),
        }
