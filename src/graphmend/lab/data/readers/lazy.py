"""Graphs that together are too large for memory."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, SupportsIndex, overload

from torch_geometric.data import Data


class LazyGraphs(list[Data]):
    """A list of graphs that are built when they are asked for.

    Args:
        builders: One function per graph.
        keep: Whether to hold a graph once it is built, as for graphs that every epoch visits. Otherwise it lives as
            long as the caller holds it, and is built again when it is needed later.
    """

    def __init__(self, builders: Sequence[Callable[[], Data]], *, keep: bool) -> None:
        super().__init__()
        self._builders, self._keep = list(builders), keep
        self._kept: dict[int, Data] = {}
        self._alive: weakref.WeakValueDictionary[int, Data] = weakref.WeakValueDictionary()

    def __len__(self) -> int:
        return len(self._builders)

    def __iter__(self) -> Iterator[Data]:
        return (self._get(index) for index in range(len(self)))

    def __reversed__(self) -> Iterator[Data]:
        return (self._get(index) for index in reversed(range(len(self))))

    @overload
    def __getitem__(self, index: SupportsIndex) -> Data: ...
    @overload
    def __getitem__(self, index: slice) -> list[Data]: ...
    def __getitem__(self, index: SupportsIndex | slice) -> Data | list[Data]:
        chosen = range(len(self))[index]
        return self._get(chosen) if isinstance(chosen, int) else [self._get(each) for each in chosen]

    def __add__(self, other: list[Any]) -> list[Any]:
        return [*self, *other]

    def __radd__(self, other: list[Data]) -> list[Data]:
        return [*other, *self]

    def __eq__(self, other: object) -> bool:
        return self is other

    def __ne__(self, other: object) -> bool:
        return self is not other

    def __reduce__(self) -> tuple[Any, ...]:
        return list, (list(self),)  # a copy is an ordinary list

    def __repr__(self) -> str:
        return f"LazyGraphs({len(self)} graphs, {len(self._alive)} built)"

    def _get(self, index: int) -> Data:
        graph = self._alive.get(index)
        if graph is None:
            graph = self._alive[index] = self._builders[index]()
        if self._keep:
            self._kept[index] = graph
        return graph
