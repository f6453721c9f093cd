"""One node type of a heterogeneous graph as a plain graph, and the model as a model of it.

Everything that works on a ``Data`` and its model works on one type at a time in this way: cards, the gate, the menders
and GTrans. The features of the type are variable and everything else about the graph stays. If the type is not the
predicted one, its rows get the mean of the predictions around them.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data, HeteroData
from torch_geometric.nn import MessagePassing

from graphmend.errors import UnsupportedLayerError, require
from graphmend.graph.stores import EdgeType, node_count
from graphmend.graph.tasks import task_of
from graphmend.hetero.calling import HeteroCaller, Place
from graphmend.hetero.relations import Relation, around, relation_of
from graphmend.model.convs.registry import weighted_forward, why_unsupported
from graphmend.outputs import Task

__all__ = ["OneType", "OneTypeWeighted", "output_of", "plain_graph", "task_of_type"]

_TOLD = ("y", "train_mask", "val_mask")


def plain_graph(data: HeteroData, node_type: str, relation: Relation, number: int = 0) -> Data:
    """One node type as a graph: its features, its relation, and numbers by which :class:`OneType` recognises nodes and
    edges.

    Args:
        data: The graph.
        node_type: The type.
        relation: Its :func:`~graphmend.hetero.relations.relation_of`.
        number: Which of the graphs of the model it is.
    """
    x, edge_index = data[node_type].x, relation.edge_index
    out = Data(x=x, edge_index=edge_index, graph_number=number)
    out[f"is_graph_{number}"] = True  # so that what a trial shows of one graph is not taken to hold for another
    out.node_number = torch.arange(x.size(0), device=x.device)
    out.edge_number = torch.arange(edge_index.size(1), device=x.device)
    return out


def output_of(out: Any, node_type: str) -> Tensor:
    """The scores of the predicted type in what a model returned."""
    scores = out[node_type] if isinstance(out, dict) else out
    require(isinstance(scores, Tensor), f"the model must return class scores of {node_type!r}; wrap it")
    return scores  # type: ignore[no-any-return]


def task_of_type(outputs: Sequence[Tensor], graphs: Sequence[HeteroData], node_type: str, named: str | None) -> Task:
    """What the rows of the predicted type are, as in :func:`graphmend.graph.tasks.task_of`.

    Args:
        outputs: Those rows, for each of the graphs.
        graphs: The graphs.
        node_type: The predicted type.
        named: The name that the caller gave.
    """
    plain = [Data(x=rows, y=data[node_type].get("y")) for rows, data in zip(outputs, graphs, strict=True)]
    return task_of(outputs, plain, named=named)


class OneType(nn.Module):
    """A heterogeneous model as a function of the features of one node type.

    A relation through other types has no edges of its own in the graph. If some of its edges are left out, as trials
    and views do, edges of all types are left out in proportion.

    Args:
        caller: How the model is called.
        graphs: The graphs that it is called on.
        relations: Those of the node type in them.
        node_type: The type whose features vary.
        predicted: The type that the model predicts.
        place: Where the embedding is.
    """

    def __init__(
        self,
        caller: HeteroCaller,
        graphs: list[HeteroData],
        relations: list[Relation],
        node_type: str,
        predicted: str,
        place: Place,
    ) -> None:
        super().__init__()
        self.model = caller.model
        self.features = nn.Identity()  # a first layer for types that no layer has rows of
        self.training = caller.model.training
        self._call = caller
        self._graphs, self._relations = graphs, relations
        self._node_type, self._predicted, self._place = node_type, predicted, place
        self._around = [around(data, predicted, node_type) for data in graphs]

    @classmethod
    def of(
        cls, caller: HeteroCaller, graphs: list[HeteroData], node_type: str, predicted: str, place: Place
    ) -> OneType:
        """The model for one node type, with weights for its edges if the graph has such edges."""
        relations = [relation_of(data, node_type) for data in graphs]
        has_own = all(relation.edge_type is not None for relation in relations)
        kind = OneTypeWeighted if has_own else cls
        return kind(caller, graphs, relations, node_type, predicted, place)

    @property
    def edge_type(self) -> EdgeType | None:
        """The edge type that the plain graphs have the edges of, if it is one."""
        return self._relations[0].edge_type

    def plain_graphs(self) -> list[Data]:
        """The node type in each of the graphs."""
        both = zip(self._graphs, self._relations, strict=True)
        graphs = [plain_graph(data, self._node_type, relation, k) for k, (data, relation) in enumerate(both)]
        if self._node_type == self._predicted:  # labels of another type do not belong to the predictions around it
            for graph, data in zip(graphs, self._graphs, strict=True):
                graph.update({name: data[self._node_type][name] for name in _TOLD if name in data[self._node_type]})
        return graphs

    def forward(
        self, x: Tensor, edge_index: Tensor, node_number: Tensor, edge_number: Tensor, graph_number: int
    ) -> Tensor:
        """The model's scores at, or around, each node of the type."""
        return self._rows(x, edge_index, node_number, edge_number, graph_number, None, self._scores)

    def embed(
        self, x: Tensor, edge_index: Tensor, node_number: Tensor, edge_number: Tensor, graph_number: int
    ) -> Tensor:
        """The embedding of the predicted type at, or around, each node of the type."""
        return self._rows(x, edge_index, node_number, edge_number, graph_number, None, self._embedding)

    def _rows(
        self,
        x: Tensor,
        edge_index: Tensor,
        node_number: Tensor,
        edge_number: Tensor,
        graph_number: int,
        edge_weight: Tensor | None,
        read: Callable[[HeteroData], Tensor],
    ) -> Tensor:
        whole, relation = self._graphs[graph_number], self._relations[graph_number]
        nodes = node_count(whole, self._node_type)
        require(node_number.numel() == nodes, "a heterogeneous model runs on whole graphs only")
        in_order = torch.equal(node_number, torch.arange(nodes, device=node_number.device))
        x = self.features(x)
        data = copy.copy(whole)
        data[self._node_type].x = x if in_order else torch.empty_like(x).index_copy(0, node_number, x)
        if relation.edge_type is not None:
            ends = edge_index if in_order else node_number[edge_index]
            _replace_edges(data, relation.edge_type, ends, edge_number)
        elif edge_number.numel() < relation.edge_index.size(1):
            _leave_out(data, edge_number, relation.edge_index.size(1))
        with _presences(self.model, self._call, data, relation.edge_type, edge_weight):
            rows = self._around[graph_number](read(data))
        return rows if in_order else rows[node_number]

    def _scores(self, data: HeteroData) -> Tensor:
        return output_of(self._call(data), self._predicted)

    def _embedding(self, data: HeteroData) -> Tensor:
        nodes = node_count(data, self._predicted)
        return self._place.read(self.model, lambda: self._call(data), self._predicted, nodes)


class OneTypeWeighted(OneType):
    """The same for a node type with edges of its own, which may fade."""

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor,
        node_number: Tensor,
        edge_number: Tensor,
        graph_number: int,
        edge_weight: Tensor | None = None,
    ) -> Tensor:
        """The model's scores at, or around, each node of the type."""
        return self._rows(x, edge_index, node_number, edge_number, graph_number, edge_weight, self._scores)

    def embed(
        self,
        x: Tensor,
        edge_index: Tensor,
        node_number: Tensor,
        edge_number: Tensor,
        graph_number: int,
        edge_weight: Tensor | None = None,
    ) -> Tensor:
        """The embedding of the predicted type at, or around, each node of the type."""
        return self._rows(x, edge_index, node_number, edge_number, graph_number, edge_weight, self._embedding)


def _replace_edges(data: HeteroData, edge_type: EdgeType, edge_index: Tensor, number: Tensor) -> None:
    """Give an edge type those of its edges that are left, in their order."""
    store = data[edge_type]
    edges = store.edge_index.size(1)
    if number.numel() == edges and torch.equal(store.edge_index, edge_index):
        return
    for name, value in list(store.items()):
        if isinstance(value, Tensor) and name != "edge_index" and value.shape[:1] == (edges,):
            store[name] = value[number]
    store.edge_index = edge_index


def _leave_out(data: HeteroData, number: Tensor, total: int) -> None:
    """Leave edges of all types out as those of a relation were, of which these numbers are left."""
    stays = torch.zeros(total, dtype=torch.bool, device=number.device)
    stays[number] = True
    start = 0
    for edge_type in data.edge_types:
        edge_index = data[edge_type].edge_index
        place = torch.arange(start, start + edge_index.size(1), device=number.device)
        kept = stays[place % total].nonzero().view(-1)
        start += edge_index.size(1)
        _replace_edges(data, edge_type, edge_index[:, kept], kept)


@contextmanager
def _presences(
    model: nn.Module, caller: HeteroCaller, data: HeteroData, edge_type: EdgeType | None, presence: Tensor | None
) -> Iterator[None]:
    """Inside, the edges of a type have these presences, through the model's own weights or through its layers.

    A layer is one of this edge type if it is given the very edges of that type.
    """
    if presence is None or edge_type is None:
        yield
        return
    store = data[edge_type]
    if caller.accepts("edge_weight") and not caller.wants_data:
        own = store.get("edge_weight")
        store.edge_weight = presence if own is None else own * presence.to(own.dtype)
        yield
        return
    with ExitStack() as stack:
        for name, conv in _convolutions(model):
            stack.enter_context(_forward_as(name, conv, store.edge_index, presence))
        yield


def _convolutions(model: nn.Module) -> list[tuple[str, MessagePassing]]:
    return [(name, module) for name, module in model.named_modules() if isinstance(module, MessagePassing)]


@contextmanager
def _forward_as(name: str, conv: MessagePassing, edges: Tensor, presence: Tensor) -> Iterator[None]:
    own = conv.forward
    had = vars(conv).get("forward")

    def forward(*args: Any, **kwargs: Any) -> Any:
        is_given = any(value is edges for value in (*args, *kwargs.values()))
        is_mixed = any(isinstance(v, dict) and any(e is edges for e in v.values()) for v in (*args, *kwargs.values()))
        if not is_given and not is_mixed:
            return own(*args, **kwargs)
        reason = why_unsupported(conv) if is_given else f"{type(conv).__name__} has no edge weights"
        if reason is not None:
            raise UnsupportedLayerError(f"{name}: {reason}; edge_steps=0 still works")
        return weighted_forward(conv, presence)(*args, **kwargs)

    conv.forward = forward
    try:
        yield
    finally:
        del conv.forward
        if had is not None:
            conv.forward = had
