"""A graph whose arrays are mapped from files."""

from __future__ import annotations

import copy
import logging
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphmend.engine.streaming import StreamedAdjacency
from graphmend.graph.canonical import mixed
from graphmend.graph.merging import merged
from graphmend.scratch import scratch_in

__all__ = ["MappedGraph", "Mapper", "on_disk"]

_LOG = logging.getLogger(__name__)
T = TypeVar("T")
R = TypeVar("R")


class Mapper(Protocol):
    """Calls a function for every item and yields the results in any order, as those of :mod:`graphmend.workers` do."""

    def __call__(self, function: Callable[[T], R], items: Iterable[T], /) -> Iterator[Any]:
        """The results."""
        ...


@dataclass(frozen=True)
class _Kept(Generic[T, R]):
    """A function whose results are kept in files, each written whole or not at all."""

    function: Callable[[T], R]
    folder: Path
    key: str

    def __call__(self, item: T) -> R:
        file = self.folder / f"{self.key}-{'-'.join(map(str, item)) if isinstance(item, tuple) else item}.pt"
        try:
            return torch.load(file, weights_only=True)  # type: ignore[no-any-return]
        except Exception as error:  # it is not there, or was not written by us
            _LOG.debug("%s is computed: %s", file, error)
        result = self.function(item)
        written = file.with_suffix(f".{os.getpid()}.partial")
        torch.save(result, written)
        written.replace(file)
        return result


LARGE = 4_000_000  # edges, from which none of their numbers are kept in memory
_BLOCK = 4_000_000  # edges at a time
_FACTOR = 2654435761  # a prime


class MappedGraph(Data):  # type: ignore[misc]  # a class of PyG, whose types are not looked at
    """A graph whose arrays are mapped from a folder, with edges sorted by target; otherwise a PyG ``Data``.

    Copies know the folder, too. What belongs to the edges of the folder holds for a copy only as long as it has them.
    """

    def mapped_from(
        self,
        folder: Path,
        offsets: Tensor,
        *,
        symmetric: bool,
        shards: int | None,
        workers: Mapper | None = None,
        opened: Callable[[Path], MappedGraph] | None = None,
        digest: str = "",
        keep: Path | None = None,
    ) -> None:
        """Remember where the arrays lie.

        Args:
            folder: Where.
            offsets: Where the edges of each target begin, and where the last ones end.
            symmetric: Whether every edge is there in both directions.
            shards: In how many shards a model runs; ``None`` if the memory decides.
            workers: Who works on the shards; this process when ``None``.
            opened: Opens the folder again, in another process.
            digest: Of everything in the folder, by which it is known elsewhere.
            keep: Where the results of shards are kept.
        """
        known = {"_folder": folder, "_shards": shards, "_symmetric": symmetric, "_offsets": offsets}
        own = {name: _place(value) for name, value in self.to_dict().items() if isinstance(value, Tensor)}
        self.__dict__.update(known, _edges=_place(self.edge_index), _workers=workers, _opened=opened, _own=own)
        self.__dict__.update(_digest=digest, _keep=keep)

    def __reduce__(self) -> Any:
        """What goes to another process: the folder, and whatever is not as it is there."""
        opened = self.__dict__.get("_opened")
        if opened is None:
            return super().__reduce__()
        own, values = self.__dict__["_own"], self.to_dict()
        others = {
            name: value
            for name, value in values.items()
            if not isinstance(value, Tensor) or own.get(name) != _place(value)
        }
        return _reopened, (opened, self.folder, self.shards, others, [name for name in own if name not in values])

    @property
    def workers(self) -> Mapper | None:
        """Who works on the shards; this process when ``None``."""
        return self.__dict__.get("_workers")

    @property
    def least_shards(self) -> int:
        """How many shards a graph has at least that is worth working on together."""
        return getattr(self.workers, "least", 1)

    @property
    def keep(self) -> Path | None:
        """Where the results of shards are kept, for a run that follows an interrupted one; nowhere when ``None``."""
        return self.__dict__.get("_keep")

    def over(self, function: Callable[[T], R], items: Iterable[T], key: str | None = None) -> Iterator[R]:
        """``function(item)`` for every item, in any order, by whoever works on the shards.

        With a key, which tells the function from all others, results are kept where the graph was opened to keep them,
        and those that are there are read.

        Where that is not this process alone, the function goes to others and has to be picklable: a mapped graph
        in it is opened again there.
        """
        if key is not None and self.keep is not None:
            self.keep.mkdir(parents=True, exist_ok=True)
            function = _Kept(function, self.keep, key)
        return map(function, items) if self.workers is None else self.workers(function, items)

    def merged(self, function: Callable[[T], R], items: Iterable[T], merge: Callable[[R, R], R]) -> R:
        """What a function gives for all items, merged in pairs in their order: the same, whoever works on the shards.

        Where others work, they merge, too, and only one result comes here.
        """
        by: Callable[..., R] = getattr(self.workers, "merged", merged)
        return by(function, items, merge)

    @property
    def folder(self) -> Path | None:
        """Where the arrays lie."""
        return self.__dict__.get("_folder")

    @property
    def digest(self) -> str:
        """Of everything in the folder, by which it is known elsewhere."""
        return str(self.__dict__.get("_digest", ""))

    @property
    def shards(self) -> int | None:
        """In how many shards a model runs; ``None`` if the memory decides."""
        return self.__dict__.get("_shards")

    @property
    def is_symmetric(self) -> bool:
        """Whether every edge is there in both directions."""
        self.offsets()
        if self.__dict__.get("_symmetric") is None:
            self.__dict__["_symmetric"] = _same_both_ways(self.edge_index)
        return bool(self.__dict__["_symmetric"])

    def register(self) -> None:
        """Let whoever adds up over neighbours read the edges from the disk, sorted as they are."""
        if self.offsets() is None:
            return
        source = copy.copy(self)
        source.edge_index = self.edge_index.detach()
        StreamedAdjacency.register(source, self.edge_index, self.x.size(0), self.is_symmetric)

    @property
    def is_large(self) -> bool:
        """Whether its edges are read from the disk, some at a time, wherever that is possible."""
        return self.edge_index.size(1) >= LARGE and self.offsets() is not None

    @contextmanager
    def scratch(self) -> Iterator[None]:
        """Inside, large arrays lie on the disk, beside the folder if that can be written to."""
        folder = None if self.folder is None else self.folder.parent
        usable = folder is not None and os.access(folder, os.W_OK)
        with scratch_in(folder if usable else Path(tempfile.gettempdir())):
            yield

    def offsets(self) -> Tensor | None:
        """Where the edges of each target begin in ``edge_index``, and where the last ones end.

        ``None`` if the edges, which may have been changed since, are not sorted by target.
        """
        if self.__dict__.get("_edges") != _place(self.edge_index):
            target, offsets = self.edge_index[1].contiguous(), None
            if not bool((target[1:] < target[:-1]).any()):
                offsets = torch.searchsorted(target, torch.arange(self.x.size(0) + 1))
            self.__dict__.update(_offsets=offsets, _edges=_place(self.edge_index), _symmetric=None)
        return self.__dict__["_offsets"]  # type: ignore[no-any-return]


@contextmanager
def on_disk(data: Data) -> Iterator[None]:
    """Inside, a large mapped graph is worked on with large arrays on the disk; for all others nothing changes."""
    if isinstance(data, MappedGraph) and data.is_large:
        data.register()
        with data.scratch():
            yield
    else:
        yield


def _same_both_ways(edge_index: Tensor) -> bool:
    """Whether the edges turned round are the same, by two sums of numbers made of their ends."""
    total = 0
    for source, target in zip(*(torch.split(end, _BLOCK) for end in edge_index), strict=True):
        forth, back = source * _FACTOR + target, target * _FACTOR + source
        total += int((mixed(forth) - mixed(back)).sum())
    return total % 2**64 == 0


def _place(tensor: Tensor) -> tuple[int, tuple[int, ...], int]:
    """Where a tensor lies, and how often it was written into."""
    return tensor.data_ptr(), tuple(tensor.shape), 0 if tensor.is_inference() else tensor._version


def _reopened(
    opened: Callable[[Path], MappedGraph], folder: Path, shards: int | None, others: dict[str, Any], gone: list[str]
) -> MappedGraph:
    graph = opened(folder)
    for name, value in others.items():
        graph[name] = value
    for name in gone:
        del graph[name]
    graph.__dict__["_shards"] = shards
    return graph
