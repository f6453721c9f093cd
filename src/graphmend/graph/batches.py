"""Several graphs in any container: a list, a data set, a loader or a PyG ``Batch``."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, RandomSampler, SequentialSampler
from torch_geometric.data import Batch, Data
from torch_geometric.data.data import BaseData

from graphmend.errors import GraphMendError, require

__all__ = ["Graphs", "are_several", "put_together", "refuse_sampled"]


def refuse_sampled(data: Data) -> None:
    """Raise if ``data`` is a batch of PyG's ``NeighborLoader``, most nodes of which lack neighbours."""
    is_sampled = data.get("n_id") is not None and (
        data.get("input_id") is not None or data.get("batch_size") is not None
    )
    require(
        not is_sampled,
        "the graph is a batch of a NeighborLoader, in which most nodes lack some of their neighbours; "
        "give the whole graph, and load batches from result.data afterwards "
        "(del batch.n_id, if the sample is a graph of its own to you)",
    )


def are_several(given: Any) -> bool:
    """Whether something holds several graphs, rather than being one graph or something else."""
    if isinstance(given, Batch):
        return True
    if isinstance(given, (BaseData, torch.nn.Module, Tensor, np.ndarray, str, bytes, Mapping)):
        return False
    return isinstance(given, (Iterable, Dataset))


class Graphs:
    """Several graphs in their order. Those of a data set or a generator are read one at a time.

    A loader stands for the graphs of its data set, in the order of the data set, so that shuffling changes nothing and
    draws no random numbers; if a sampler chooses among them, for those that it chooses. A ``Batch`` is taken apart,
    even inside a list or from a loader with its own ``collate_fn``.

    Args:
        given: What holds them, see :func:`are_several`.

    Example:
        >>> pair = [Data(x=torch.ones(n, 1), edge_index=torch.zeros(2, 1, dtype=torch.long)) for n in (2, 3)]
        >>> [graph.num_nodes for graph in Graphs(Batch.from_data_list(pair))]
        [2, 3]
    """

    def __init__(self, given: Any) -> None:
        self._held: Any = given
        self._places: Sequence[int] | None = None  #: where they are in what holds them, if they are not just iterated
        self.number: int | None = None  #: how many there are, if that is known
        if isinstance(given, DataLoader):
            _refuse_samples_of_one_graph(given)
            if _gives_what_the_data_set_has(given):
                self._held, self._places = given.dataset, _chosen(given)
        elif isinstance(given, Batch) or (isinstance(given, Sequence) and not isinstance(given, Dataset)):
            self._held = [
                graph for item in (given if isinstance(given, Sequence) else [given]) for graph in _apart(item)
            ]
            for place, graph in enumerate(self._held):
                kind = type(graph).__name__
                is_graph = isinstance(graph, BaseData)
                require(is_graph, f"graph {place} of the list must be a torch_geometric.data.Data (got {kind})")
            self._places = range(len(self._held))
        elif isinstance(given, Dataset) and not isinstance(given, IterableDataset):
            self._places = range(len(given))  # type: ignore[arg-type]
        if self._places is not None:
            self.number = len(self._places)

    def __iter__(self) -> Iterator[Any]:
        """The graphs; in place of one that could not be read, the error."""
        if self._places is None:
            for item in self._held:
                yield from _apart(item)
            return
        for place in self._places:
            try:
                graph = self._held[place]
            except Exception as error:  # of the caller's own data set
                yield error
                continue
            yield from _apart(graph)


def put_together(graphs: Sequence[Data], like: Batch) -> Batch:
    """A ``Batch`` of graphs, with the vectors that say which graph a row belongs to as in ``like``.

    If only some graphs have edge weights now, the others get weights of 1.
    """
    follow = [name.removesuffix("_batch") for name in like.keys() if name.endswith("_batch")]  # noqa: SIM118
    if 0 < sum(graph.get("edge_weight") is not None for graph in graphs) < len(graphs):
        graphs = [_weighted(graph) for graph in graphs]
    return Batch.from_data_list(list(graphs), follow_batch=follow)


def _weighted(data: Data) -> Data:
    if data.get("edge_weight") is not None:
        return data
    out = copy.copy(data)
    out.edge_weight = data.x.new_ones(data.edge_index.size(1))
    return out


def _apart(item: Any) -> list[Any]:
    """The graphs of a batch or a list; anything else is one graph, or for the checks to name."""
    if isinstance(item, Batch):
        try:
            return list(item.to_data_list())
        except RuntimeError as error:
            raise GraphMendError(
                "the Batch cannot be taken apart, because it does not know where its graphs begin; make it with "
                "Batch.from_data_list, or mend it as one graph, Data(**batch.to_dict())"
            ) from error
    return list(item) if isinstance(item, (list, tuple)) else [item]


def _refuse_samples_of_one_graph(loader: DataLoader[Any]) -> None:
    sampled = isinstance(getattr(loader, "data", getattr(loader, "cluster_data", None)), (BaseData, Dataset))
    require(
        not sampled,
        f"a {type(loader).__name__} gives parts of one graph, in which nodes lack neighbours; "
        "give the whole graph, and load parts of result.data afterwards",
    )


def _gives_what_the_data_set_has(loader: DataLoader[Any]) -> bool:
    """Whether a loader batches the graphs of its data set as PyG does, and does nothing else with them."""
    from torch_geometric.loader import DataListLoader, DenseDataLoader
    from torch_geometric.loader import DataLoader as PyGLoader

    is_pyg = isinstance(loader, (PyGLoader, DataListLoader, DenseDataLoader))
    return is_pyg and not isinstance(loader.dataset, IterableDataset)


def _chosen(loader: DataLoader[Any]) -> Sequence[int]:
    """The places of a loader's graphs in its data set."""
    everything, sampler = range(len(loader.dataset)), loader.sampler  # type: ignore[arg-type]
    is_shuffled = isinstance(sampler, RandomSampler) and not sampler.replacement and len(sampler) == len(everything)
    batches: Any = loader.batch_sampler
    is_plain = batches is None or type(batches) is torch.utils.data.BatchSampler
    if is_plain and (is_shuffled or isinstance(sampler, SequentialSampler)):
        return everything
    with torch.random.fork_rng(devices=[]):
        return list(sampler) if batches is None else [place for batch in batches for place in batch]
