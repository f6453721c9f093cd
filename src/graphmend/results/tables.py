"""Results as lines of text, as small tables for notebooks, as columns of numbers and as pandas data frames."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from graphmend.errors import optional_module
from graphmend.outputs import changed_rows, predicted

if TYPE_CHECKING:
    from graphmend.results.adaptation import Adaptation
    from graphmend.results.history import Step
    from graphmend.results.results import Results

__all__ = ["frame", "graph_columns", "html_table", "markdown_table", "node_columns", "step_columns", "text_lines"]

Array = np.ndarray[Any, np.dtype[Any]]


def text_lines(title: str, rows: Iterable[tuple[str, Any]]) -> str:
    """A title and one indented line per row, the values below each other."""
    rows = list(rows)
    width = max((len(name) for name, _ in rows), default=0)
    return "\n".join([title, *(f"  {name:<{width}}  {value}" for name, value in rows)])


def html_table(title: str, rows: Iterable[Iterable[Any]], head: Iterable[str] = (), note: str = "") -> str:
    """A table for a notebook; every text in it is escaped.

    Args:
        title: Its caption.
        rows: Its cells; the first of each row is a heading.
        head: Headings of the columns, if they need any.
        note: A sentence below the caption.
    """
    caption = f"<b>{_text(title)}</b>" + (f"<br>{_text(note)}" if note else "")
    top = "".join(f"<th style='text-align:left'>{_text(name)}</th>" for name in head)
    lines = [f"<tr>{top}</tr>"] if top else []
    for first, *others in rows:
        cells = "".join(f"<td style='text-align:left'>{_text(value)}</td>" for value in others)
        lines.append(f"<tr><th style='text-align:left'>{_text(first)}</th>{cells}</tr>")
    return f"<table><caption style='text-align:left'>{caption}</caption>{''.join(lines)}</table>"


def markdown_table(rows: Iterable[tuple[str, Any]]) -> str:
    """A table without a head in Markdown. Names come from models of any origin, so nothing in them is markup."""
    return "\n".join(["| | |", "| --- | --- |", *(f"| {_plain(name)} | {_plain(value)} |" for name, value in rows)])


def _plain(value: Any) -> str:
    text = " ".join(escape(str(value), quote=False).split())  # one line
    return re.sub(r"([\\`*_\[\]|~#!])", r"\\\1", text)


def _text(value: Any) -> str:
    return escape(str(value), quote=True)


def frame(columns: Mapping[str, Any]) -> Any:
    """A pandas ``DataFrame``."""
    return optional_module("pandas", "a data frame", "install it with: pip install pandas").DataFrame(dict(columns))


def step_columns(steps: Sequence[Step]) -> dict[str, list[Any]]:
    """One entry per step; a part of the loss that a step does not have is NaN."""
    names = dict.fromkeys(name for step in steps for name in step.terms)
    own = ("index", "kind", "loss", "gradient_norm", "flipped", "seconds")
    columns = {name: [getattr(step, name) for step in steps] for name in own}
    return columns | {f"loss_{name}": [step.terms.get(name, float("nan")) for step in steps] for name in names}


def node_columns(result: Adaptation) -> dict[str, Array]:
    """One entry per node: predictions before and after, how far its features moved, and edges that point at it.

    Several labels or numbers have a column each, ``before_0`` and so on. An embedding has none of these, only how far
    it ``moved``. If graphs are predicted, each node has the number of its ``graph`` and the prediction for it.

    The feature change is the Euclidean norm of the difference; a value that was missing and is filled does not count.
    Edges are counted as they are stored, at their targets: a node with ``edges_removed`` 3 gets three messages less.
    """
    patch, nodes = result.patch, result.patch.nodes
    columns = {
        "node": torch.arange(nodes),
        **_output_columns(result),
        "feature_change": patch.feature_change(result.data.x),
        "edges_removed": torch.bincount(patch.removed_edges()[1], minlength=nodes),
        "edges_added": torch.bincount(patch.added_edges()[1], minlength=nodes),
    }
    return {name: value.cpu().numpy() for name, value in columns.items()}


def _output_columns(result: Adaptation) -> dict[str, Tensor]:
    """The model's predictions for each node before and after."""
    task = result.task.known()
    if task.kind == "embedding":
        return {"moved": torch.linalg.vector_norm((result.logits - result.before).double(), dim=1)}
    outputs = {"before": predicted(task, result.before), "after": predicted(task, result.logits)}
    columns: dict[str, Tensor] = {}
    for name, rows in outputs.items():
        several = rows.dim() == 2 and rows.size(1) > 1
        columns |= {f"{name}_{k}": rows[:, k] for k in range(rows.size(1))} if several else {name: rows.reshape(-1)}
    columns["changed"] = changed_rows(task, result.before, result.logits)
    if not task.per_graph:
        return columns
    graph = result.graph_of_nodes()
    return {"graph": graph, **{name: values[graph] for name, values in columns.items()}}


def graph_columns(results: Results) -> dict[str, list[Any]]:
    """One entry per graph: what was decided and why, how much was changed, and how long it took.

    Unknown numbers are NaN: all those of a graph that failed, and the number of changed predictions if the model would
    have to run once more to count them.
    """
    numbers = [_graph_numbers(entry) for entry in results.mended]
    names = dict.fromkeys(name for row in numbers for name in row)
    of_mended = iter(numbers)
    rows = [{} if entry.decision == "failed" else next(of_mended) for entry in results]
    texts: dict[str, list[Any]] = {
        "graph": list(range(len(results))),
        "decision": [entry.decision for entry in results],
        "sentence": [entry.sentence for entry in results],
    }
    return texts | {name: [row.get(name, float("nan")) for row in rows] for name in names}


def _graph_numbers(result: Adaptation) -> dict[str, float]:
    patch: Any = result.patch
    if not hasattr(patch, "num_added"):  # of a graph with several types of nodes, from which edges only go
        return {
            "predictions_changed": result.changed.numel(),
            "missing_values_filled": result.values_filled,
            "feature_rows_changed": patch.num_rows,
            "edge_entries_removed": patch.num_removed,
            "seconds": result.seconds,
        }
    changed = result.predictions_changed
    return {
        "nodes": patch.nodes,
        "edges": patch.edges,
        "predictions_changed": float("nan") if changed is None else changed,
        "missing_values_filled": result.values_filled,
        "feature_rows_changed": patch.num_rows,
        "edge_entries_removed": patch.num_removed,
        "edge_entries_added": patch.num_added,
        "edge_weights_changed": patch.num_weights,
        "seconds": result.seconds,
    }
