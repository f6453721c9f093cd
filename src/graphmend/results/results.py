"""The results of several graphs."""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, overload

import torch
from torch import Tensor
from torch_geometric.data import Batch, Data

from graphmend.errors import GraphMendError
from graphmend.graph.batches import put_together
from graphmend.results.adaptation import Adaptation
from graphmend.results.tables import frame, graph_columns, html_table, text_lines

__all__ = ["FAILED", "Failure", "Results", "without_locals"]

SHOWN = 20  # graphs in the text and in the table of a notebook
FAILED = "failed"


@dataclass(frozen=True, eq=False)
class Failure:
    """A graph that could not be mended; the others are not affected.

    Args:
        index: Which of the graphs it is, counted from 0.
        reason: Why, in one sentence.
        error: The exception; ``raise failure.error`` shows where it comes from.
        data: The graph as it was given; ``None`` if it could not be read.

    Example:
        >>> import graphmend
        >>> from graphmend.lab.data import embedded
        >>> from torch_geometric.nn import GCN
        >>> data, model = embedded("wine").test[0], GCN(13, 16, num_layers=2, out_channels=3)
        >>> broken = data.clone()
        >>> broken.x[3, 1] = float("inf")
        >>> _, failure = graphmend.mend(model, [data, broken])
        >>> isinstance(failure, graphmend.Failure), failure.index, failure.decision
        (True, 1, 'failed')
        >>> print(failure.sentence)
        x holds 1 infinite values, first x[3, 1] = inf; replace or impute them
    """

    index: int
    reason: str
    error: Exception
    data: Data | None = None

    @property
    def decision(self) -> str:
        """``"failed"``; an :class:`~graphmend.Adaptation` says here what was done."""
        return FAILED

    @property
    def sentence(self) -> str:
        """The reason."""
        return self.reason

    def summary(self) -> dict[str, Any]:
        """Everything about it, ready for JSON."""
        return {"decision": FAILED, "reason": self.reason, "error": type(self.error).__name__}

    def __repr__(self) -> str:
        return f"Failure(graph {self.index}: {self.reason})"


def without_locals(error: Exception) -> Exception:
    """The exception with its traceback, which no longer keeps graphs and copies in memory."""
    part: BaseException | None = error
    while part is not None:
        traceback.clear_frames(part.__traceback__)
        part = part.__cause__ or part.__context__
    return error


class Results(Sequence[Adaptation | Failure]):
    """One :class:`~graphmend.Adaptation` per graph, in order, or a :class:`Failure` where a graph could not be mended.

    Args:
        entries: These.
        batch: The batch that the graphs come from, if they do.

    Example:
        >>> import graphmend
        >>> from graphmend.lab.data import embedded
        >>> from torch_geometric.nn import GCN
        >>> data, model = embedded("wine").test[0], GCN(13, 16, num_layers=2, out_channels=3)
        >>> today = data.clone()
        >>> today.x[:5] *= 100
        >>> results = graphmend.mend(model, [data, today], card=graphmend.card(model, data))
        >>> isinstance(results, graphmend.Results), len(results), len(results.failures)
        (True, 2, 0)
        >>> [entry.decision for entry in results]
        ['left alone', 'applied']
    """

    def __init__(self, entries: Iterable[Adaptation | Failure], batch: Batch | None = None) -> None:
        self._entries = tuple(entries)
        self._batch = batch

    def __len__(self) -> int:
        return len(self._entries)

    @overload
    def __getitem__(self, index: int, /) -> Adaptation | Failure: ...

    @overload
    def __getitem__(self, index: slice, /) -> Results: ...

    def __getitem__(self, index: int | slice, /) -> Adaptation | Failure | Results:
        return Results(self._entries[index]) if isinstance(index, slice) else self._entries[index]

    def __iter__(self) -> Iterator[Adaptation | Failure]:
        return iter(self._entries)

    @property
    def mended(self) -> list[Adaptation]:
        """The results of the graphs that did not fail, including those that were left alone."""
        return [entry for entry in self if not isinstance(entry, Failure)]

    @property
    def failures(self) -> list[Failure]:
        """The graphs that could not be mended, with the reasons."""
        return [entry for entry in self if isinstance(entry, Failure)]

    @property
    def data(self) -> Any:
        """The mended graphs, as a ``Batch`` if one was given, otherwise as a list. Graphs that failed are unchanged."""
        graphs = [entry.data for entry in self]
        if self._batch is None:
            return graphs
        return put_together([graph for graph in graphs if graph is not None], self._batch)

    @property
    def logits(self) -> Tensor:
        """The model's output on all mended graphs, one after the other."""
        for failure in self.failures:
            raise GraphMendError(
                f"graph {failure.index} has no logits, because it could not be mended ({failure.reason}); "
                "take those of results.mended"
            )
        return torch.cat([entry.logits for entry in self.mended]) if self else torch.empty(0)

    @property
    def predictions(self) -> Tensor:
        """What the model predicts on all mended graphs, one after the other."""
        require_all = self.logits  # says which graph failed, if one did
        return torch.cat([entry.predictions for entry in self.mended]) if self else require_all

    @property
    def seconds(self) -> float:
        """Wall time of all graphs."""
        return sum(entry.seconds for entry in self.mended)

    def to_frame(self) -> Any:
        """A pandas ``DataFrame`` with one row per graph, see :func:`graphmend.results.tables.graph_columns`."""
        return frame(graph_columns(self))

    def report(self, path: str | Path, y: Any = None, mask: Any = None, *, title: str = "") -> None:
        """Write a page about all graphs, see :mod:`graphmend.results.report`.

        Args:
            path: A folder, for ``index.html`` and a page about each graph that did not fail; or the ``.html`` file of
                the one page about all.
            y: True classes of each graph, one entry per graph, or ``None`` for one without.
            mask: The nodes that are scored, one entry per graph.
            title: What the graphs are called.
        """
        from graphmend.results.report.index import write_reports  # only pages need jinja2

        write_reports(path, self, y, mask, title)

    def summary(self) -> dict[str, Any]:
        """How many graphs came to which decision, and the summary of each, ready for JSON."""
        counts = Counter(entry.decision for entry in self)
        graphs = [{"graph": index, **entry.summary()} for index, entry in enumerate(self)]
        return {"graphs": len(self), "decisions": dict(counts), "seconds": round(self.seconds, 3), "results": graphs}

    def __repr__(self) -> str:
        rows = [(str(index), f"{decision:<{len('partly applied')}}  {text}") for index, decision, text in self._rows()]
        return text_lines(self._title, rows)

    def _repr_html_(self) -> str:
        return html_table(self._title, self._rows(), ("graph", "decision", "") if self else ())

    @property
    def _title(self) -> str:
        counts = ", ".join(f"{number} {name}" for name, number in Counter(entry.decision for entry in self).items())
        return f"Results of {len(self)} graph{'' if len(self) == 1 else 's'}" + (f": {counts}" if counts else "")

    def _rows(self) -> list[tuple[object, str, str]]:
        rows: list[tuple[object, str, str]] = [
            (index, entry.decision, entry.sentence) for index, entry in enumerate(self[:SHOWN])
        ]
        more = len(self) - SHOWN
        return [*rows, ("...", "", f"{more} more; to_frame() has all")] if more > 0 else rows
