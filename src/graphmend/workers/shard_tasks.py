"""Shards of a graph folder as tasks of a Ray cluster.

What travels is small: the function with the model, and which nodes a shard owns. Every machine maps the folder itself.
One that does not see it, or sees another graph there, gets the arrays through Ray's object store, which keeps one copy
of them on each machine and spills to its disk.
"""

from __future__ import annotations

import copy
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
from graphmend.progress import track
from graphmend.shards.folder import digest_of, open_graph
from graphmend.workers.local import Lost
from graphmend.workers.ray_cluster import Ray

__all__ = ["ShardTasks", "on_cluster"]

T = TypeVar("T")
R = TypeVar("R")

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
        content = ray.connected().cloudpickle.dumps(function)
        return _Job(content, self._graph.digest, self._arrays, tuple(sys.path))

    def close(self) -> None:
        """From now on this process works alone, and the cluster forgets the graph."""
        self._ray = self._arrays = None


@dataclass(frozen=True)
class _Unseen:
    """The answer of a machine that does not see the folder."""

    item: Any


@dataclass(frozen=True)
class _Arrays:
    """A graph in the object store: references to its arrays, and what else belongs to it."""

    references: dict[str, Any]
    kinds: dict[str, tuple[torch.dtype, tuple[int, ...]]]
    values: dict[str, Any]
    symmetric: bool

    @classmethod
    def put(cls, ray: Any, graph: MappedGraph) -> _Arrays:
        """Put them there."""
        offsets = graph.offsets()
        assert offsets is not None
        contents = {**graph.to_dict(), "offsets": offsets}
        tensors = {name: value for name, value in contents.items() if isinstance(value, Tensor)}
        bytes_of = {name: value.contiguous().view(-1).view(torch.uint8) for name, value in tensors.items()}
        references = {name: ray.put(value.numpy()) for name, value in bytes_of.items()}
        kinds = {name: (value.dtype, tuple(value.shape)) for name, value in tensors.items()}
        values = {name: value for name, value in contents.items() if name not in tensors}
        return cls(references, kinds, values, graph.is_symmetric)

    def graph(self, folder: Path) -> MappedGraph:
        """The graph, its arrays where the object store has them."""
        import ray

        out, tensors = MappedGraph(), dict[str, Tensor]()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the arrays cannot be written to, and nobody does
            for name, reference in self.references.items():
                dtype, shape = self.kinds[name]
                tensors[name] = torch.from_numpy(ray.get(reference)).view(dtype).view(shape)
        offsets = tensors.pop("offsets")
        for name, value in {**self.values, **tensors}.items():
            out[name] = value
        out.mapped_from(folder, offsets, symmetric=self.symmetric, shards=None, opened=_open_there)
        return out


@dataclass
class _Job:
    """A function of a shard, on its way to another process."""

    content: bytes
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
