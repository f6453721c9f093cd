"""Shards of a graph folder as tasks of a Ray cluster.

What travels is the function with the model, and which nodes a shard owns. Every machine maps the folder itself. One
that does not see it, or sees another graph there, gets the arrays through Ray's object store, and so does everyone with
representations of all nodes that a function needs: the store keeps one copy on each machine, which all processes there
read in place, and spills to the disk.
"""

from __future__ import annotations

import copy
import io
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from graphmend.errors import GraphMendError, require, shown
from graphmend.files.files import first_line
from graphmend.graph.mapped import MappedGraph
from graphmend.graph.merging import merged
from graphmend.progress import track
from graphmend.shards.folder import digest_of, open_graph
from graphmend.workers.local import Lost
from graphmend.workers.ray_cluster import Ray

__all__ = ["ShardTasks", "on_cluster"]

T = TypeVar("T")
R = TypeVar("R")

LARGE = 1 << 20  # bytes of a tensor that lies in the object store by itself
PER_CORE = 2  # shards with Ray at once: one that runs, and one that waits or whose result has not been fetched


@contextmanager
def on_cluster(data: Any, ray: Ray | str | None, progress: bool = False) -> Iterator[Any]:
    """Inside, others work on the shards of a mapped graph.

    Args:
        data: The graph; only one from :func:`graphmend.open_graph` can be worked on by others.
        ray: The cluster, or its address, see :class:`~graphmend.workers.ray_cluster.Ray`; ``None`` for this process.
        progress: Whether to show a bar over the shards.
    """
    if ray is None:
        yield data
        return
    require(isinstance(ray, (Ray, str)), f"ray must be 'local', 'auto' or an address (got {shown(ray)})")
    ray = Ray(ray) if isinstance(ray, str) else ray
    is_folder = isinstance(data, MappedGraph) and data.folder is not None
    require(
        is_folder,
        f"ray={ray.address!r} works on the shards of a graph folder, but data is a {type(data).__name__}; pack it with "
        "'graphmend pack' and pass graphmend.open_graph(folder), or leave ray= out",
    )
    tasks = ShardTasks(ray, data, progress)
    out = copy.copy(data)
    out.__dict__.update(_workers=tasks, _opened=_open_there)
    try:
        yield out
    finally:
        tasks.close()


class ShardTasks:
    """Works on the shards of one graph, in any order; a progress bar counts them.

    Args:
        ray: The cluster.
        graph: The graph as it is in its folder.
        progress: Whether to show the bar.
    """

    def __init__(self, ray: Ray, graph: MappedGraph, progress: bool) -> None:
        ray.connected()
        self._ray: Ray | None = Ray(ray.address, ray.jobs, ray.device, ray.retries, PER_CORE * ray.cores)
        self.least = PER_CORE * ray.cores  #: shards that keep the cluster busy to the end
        self._graph, self._progress = graph, progress
        self._arrays: _Arrays | None = None

    def __call__(self, function: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
        """Call a function for every shard; what it holds of the graph is opened again where it runs."""
        if self._ray is None:  # the call that others worked for is over
            yield from map(function, items)
            return
        shards = list(items)
        with closing(track(range(len(shards)), "shards", self._progress)) as bar:
            for _, answer in zip(bar, self._answers(self._ray, function, shards), strict=True):
                yield answer

    def merged(self, function: Callable[[T], R], items: Iterable[T], merge: Callable[[R, R], R]) -> R:
        """What a function gives for all shards, merged in a tree where the parts are."""
        shards = list(items)
        if self._ray is None or not shards:
            return merged(function, shards, merge)
        answer = self._ray.merged(self._job(self._ray, function), shards, _merging(merge))
        if isinstance(answer, _Unseen):
            self._arrays = _Arrays.put(self._ray.connected(), self._graph)
            answer = self._ray.merged(self._job(self._ray, function), shards, _merging(merge))
        found: R = _checked(answer, self._ray)
        return found

    def _answers(self, ray: Ray, function: Callable[[T], R], shards: list[T]) -> Iterator[R]:
        unseen: list[T] = []
        for answer in ray(self._job(ray, function), shards):
            if isinstance(answer, _Unseen):
                unseen.append(answer.item)
            else:
                yield _checked(answer, ray)
        if unseen:
            self._arrays = _Arrays.put(ray.connected(), self._graph)
            for answer in ray(self._job(ray, function), unseen):
                yield _checked(answer, ray)

    def _job(self, ray: Ray, function: Callable[[Any], Any]) -> _Job:
        content, stored = _Stored.pack(ray.connected(), function)
        return _Job(content, stored, self._graph.digest, self._arrays, tuple(sys.path))

    def close(self) -> None:
        """From now on this process works alone, and the cluster forgets the graph."""
        self._ray = self._arrays = None


def _merging(merge: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """What has not been seen by one of two cannot be merged."""

    def both(first: Any, second: Any) -> Any:
        return next((one for one in (first, second) if isinstance(one, _Unseen)), None) or merge(first, second)

    return both


@dataclass(frozen=True)
class _Unseen:
    """The answer of a machine that does not see the folder."""

    item: Any


@dataclass(frozen=True)
class _Stored:
    """A tensor in the object store."""

    reference: Any
    dtype: torch.dtype
    shape: tuple[int, ...]

    @classmethod
    def put(cls, ray: Any, tensor: Tensor) -> _Stored:
        """Put it there."""
        flat = tensor.detach().contiguous().view(-1)
        return cls(ray.put(flat.view(torch.uint8).numpy()), tensor.dtype, tuple(tensor.shape))

    def get(self) -> Tensor:
        """The tensor where it lies, not to be written to."""
        import ray

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that it cannot be written to
            return torch.from_numpy(ray.get(self.reference)).view(self.dtype).view(self.shape)

    @classmethod
    def pack(cls, ray: Any, function: Any) -> tuple[bytes, list[_Stored]]:
        """A function ready to travel, and the large tensors in it, each of which is put into the store once."""
        stored: list[_Stored] = []
        places: dict[int, int] = {}

        class Pickler(ray.cloudpickle.Pickler):  # type: ignore[misc]
            def reducer_override(self, value: Any) -> Any:
                is_plain = type(value) is Tensor and value.device.type == "cpu" and value.layout == torch.strided
                if not is_plain or value.numel() * value.element_size() < LARGE:
                    return super().reducer_override(value)
                if id(value) not in places:
                    places[id(value)] = len(stored)
                    stored.append(cls.put(ray, value))
                return _from_store, (places[id(value)],)

        file = io.BytesIO()
        Pickler(file).dump(function)
        return file.getvalue(), stored


@dataclass(frozen=True)
class _Arrays:
    """A graph in the object store: its arrays, and what else belongs to it."""

    tensors: dict[str, _Stored]
    values: dict[str, Any]
    symmetric: bool

    @classmethod
    def put(cls, ray: Any, graph: MappedGraph) -> _Arrays:
        """Put them there."""
        contents = {**graph.to_dict(), "offsets": graph.offsets()}
        tensors = {name: value for name, value in contents.items() if isinstance(value, Tensor)}
        values = {name: value for name, value in contents.items() if name not in tensors}
        return cls({name: _Stored.put(ray, value) for name, value in tensors.items()}, values, graph.is_symmetric)

    def graph(self, folder: Path) -> MappedGraph:
        """The graph, its arrays where the object store has them."""
        out, tensors = MappedGraph(), {name: stored.get() for name, stored in self.tensors.items()}
        offsets = tensors.pop("offsets")
        for name, value in {**self.values, **tensors}.items():
            out[name] = value
        out.mapped_from(folder, offsets, symmetric=self.symmetric, shards=None, opened=_open_there)
        return out


@dataclass
class _Job:
    """A function of a shard, on its way to another process."""

    content: bytes
    stored: list[_Stored]
    digest: str
    arrays: _Arrays | None
    path: tuple[str, ...]
    _function: Callable[[Any], Any] | None = field(default=None, repr=False)

    def __call__(self, item: Any) -> Any:
        """Call it; it is read once in a process."""
        try:
            function = self._read()
        except _UnseenFolder:
            return _Unseen(item)
        return function(item)

    def _read(self) -> Callable[[Any], Any]:
        import ray

        global _HERE
        if self._function is None:
            sys.path += [place for place in self.path if place not in sys.path]  # where the model's modules are
            _HERE = self
            try:
                self._function = ray.cloudpickle.loads(self.content)
            except ImportError as error:
                remedy = "install what the model is made of on every machine"
                raise GraphMendError(f"a worker cannot read the model ({first_line(error)}); {remedy}") from error
            finally:
                _HERE = None
        return self._function


_HERE: _Job | None = None
"""The job that is being read."""


def _from_store(place: int) -> Tensor:
    """A large tensor, in the process that reads a job."""
    assert _HERE is not None
    return _HERE.stored[place].get()


class _UnseenFolder(Exception):
    """The folder of a graph is not there."""


def _open_there(folder: Path) -> MappedGraph:
    """Open the folder in the process that reads a job."""
    job = _HERE
    assert job is not None
    try:
        if digest_of(folder) == job.digest:
            out = open_graph(folder, verify=False)
            out.__dict__["_opened"] = _open_there
            return out
    except (OSError, GraphMendError):  # another machine's folder, or none
        pass
    if job.arrays is None:
        raise _UnseenFolder(str(folder))
    return job.arrays.graph(folder)


def _checked(answer: Any, ray: Ray) -> Any:
    """A result; an error with a remedy where there is none."""
    if not isinstance(answer, Lost):
        return answer
    bounds, times = answer.item, ray.retries + 1
    is_range = isinstance(bounds, tuple) and len(bounds) == 2 and all(isinstance(end, int) for end in bounds)
    shard = f"the shard of nodes {bounds[0]} to {bounds[1] - 1}" if is_range else "a shard"
    if answer.out_of_memory:
        remedy = "use workers with more memory, or smaller shards: open_graph(folder, shards=...)"
        raise GraphMendError(f"{shard} ran out of memory on the cluster {times} times ({answer.reason}); {remedy}")
    raise GraphMendError(f"{shard} was lost on the cluster {times} times ({answer.reason}); see to it, and call again")
