"""The source card of a heterogeneous model: one card per node type, in one file."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import HeteroData

from graphmend.cards import SourceCard
from graphmend.cards import card as plain_card
from graphmend.errors import GraphMendError, listed, require, seed_number
from graphmend.files.files import read_header, read_safetensors, write_safetensors
from graphmend.graph.stores import check_hetero, feature_types, node_count, private_copy
from graphmend.graph.tasks import check_task
from graphmend.hetero.calling import HeteroCaller, Place, find_place, predicted_type
from graphmend.hetero.one_type import OneType, output_of, task_of_type
from graphmend.hetero.patch import is_of_format
from graphmend.model.call import Output, check_output_name
from graphmend.model.frozen import check_model
from graphmend.model.restore import frozen_model, untouched_rng
from graphmend.outputs import Task
from graphmend.results.tables import html_table, text_lines
from graphmend.wrappers import unwrapped

__all__ = ["HeteroCard", "frozen_caller", "hetero_card", "look_at", "read_any_card"]

FORMAT = "graphmend-hetero-card-1"


@dataclass(frozen=True, eq=False)
class HeteroCard:
    """What a heterogeneous model saw when it was trained: a source card for each node type.

    Args:
        node_type: The node type that the model predicts.
        place: Where its embedding is, see :class:`~graphmend.hetero.calling.Place`.
        cards: The source cards, by node type. On the cards of types that are not predicted, predictions are means
            around their nodes.
        output: Which part of what the model returns has the scores.

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
        >>> from graphmend.hetero import HeteroCard
        >>> graphmend.card(model, data, task="classes").save("library.card.safetensors")
        >>> card = HeteroCard.load("library.card.safetensors")
        >>> card["author"].nodes
        30
    """

    node_type: str
    place: str
    cards: dict[str, SourceCard]
    output: Output = None

    def __getitem__(self, node_type: str) -> SourceCard:
        """The card of one node type."""
        require(
            node_type in self.cards,
            f"the source card knows no node type {node_type!r}, only {listed(self.cards)}; "
            "make a card from the graph the model was trained on",
        )
        return self.cards[node_type]

    @property
    def task(self) -> Task:
        """What the rows of the predicted type are; a type without features has no card, and all have the same task."""
        if self.node_type in self.cards:
            return self.cards[self.node_type].known_task
        return Task(next(iter(self.cards.values())).known_task.kind)

    def check(self, data: HeteroData) -> None:
        """Raise unless there is a card for every node type of a graph that has features."""
        for kind in feature_types(data):
            columns, given = self[kind].column_mean.numel(), data[kind].x.size(1)
            require(
                columns == given,
                f"node type {kind!r}: the source card is of {columns} feature columns, this graph has {given}; "
                "make a card from the graph the model was trained on",
            )

    def facts(self) -> dict[str, Any]:
        """The essentials, ready for JSON."""
        return {
            "predicts": self.node_type,
            "task": str(self.task),
            "embedding": self.place,
            **{f"{kind}: nodes": card.nodes for kind, card in self.cards.items()},
            **{f"{kind}: features": card.column_mean.numel() for kind, card in self.cards.items()},
            **{f"{kind}: first layer": card.first_layer.removeprefix("model.") for kind, card in self.cards.items()},
            **{f"{kind}: noise level": card.noise for kind, card in self.cards.items()},
        }

    def summary(self) -> str:
        """What the cards hold."""
        lines = [f"source card of a heterogeneous model that predicts {self.task} of {self.node_type!r}"]
        return "\n".join([*lines, *(f"{kind}: {card.summary()}" for kind, card in self.cards.items())])

    def __repr__(self) -> str:
        return text_lines(self._title, self._rows())

    def _repr_html_(self) -> str:
        return html_table(self._title, self._rows())

    @property
    def _title(self) -> str:
        return f"HeteroCard of a model that predicts {self.task} of {self.node_type!r}"

    def _rows(self) -> list[tuple[str, str]]:
        """One row for each node type."""
        return [
            (kind, f"{card.nodes:,} nodes, {card.column_mean.numel()} feature columns, noise level {card.noise:.3f}")
            for kind, card in self.cards.items()
        ]

    def save(self, path: str | Path) -> None:
        """Write all cards as one safetensors file with a JSON header, atomically."""
        tensors: dict[str, Tensor] = {}
        numbers = []
        for number, (kind, card) in enumerate(self.cards.items()):
            own, rest = card.parts()
            tensors |= {f"{number}.{name}": value for name, value in own.items()}
            numbers.append([kind, rest])
        header = {
            "format": FORMAT,
            "node_type": self.node_type,
            "place": self.place,
            "output": self.output,
            "cards": numbers,
        }
        write_safetensors(path, tensors, {"graphmend": json.dumps(header)})

    @classmethod
    def of(cls, card: HeteroCard | str | PathLike[str]) -> HeteroCard:
        """A card, or the one in a file."""
        if isinstance(card, (str, PathLike)):
            return cls.load(Path(card))
        given = type(card).__name__
        made = "one that graphmend.card(model, train_data) makes of a HeteroData"
        require(isinstance(card, HeteroCard), f"card must be {made}, or its file (got {given})")
        return card

    @classmethod
    def load(cls, path: str | Path) -> HeteroCard:
        """Read a card written by :meth:`save`."""
        tensors, metadata = read_safetensors(path)
        written = {"kind": "heterogeneous source card", "written_by": "'graphmend card'", "remedy": "make it again"}
        header = read_header(path, metadata, FORMAT, **written)
        try:
            cards = {}
            for number, (kind, rest) in enumerate(header["cards"]):
                start = f"{number}."
                own = {name.removeprefix(start): t for name, t in tensors.items() if name.startswith(start)}
                cards[str(kind)] = SourceCard.of_parts(own, rest, path)
            made = cls(str(header["node_type"]), str(header["place"]), cards, check_output_name(header["output"]))
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            if isinstance(error, GraphMendError):
                raise
            raise GraphMendError(f"the source card {path} is incomplete ({error!r:.80}); make it again") from error
        Place.of(made.place)
        kinds = {card.known_task.kind for card in cards.values()}
        require(len(kinds) == 1, f"the source card {path} is damaged: its node types have different tasks, or none")
        return made


def hetero_card(
    model: nn.Module,
    train_data: HeteroData | Sequence[HeteroData],
    *,
    embedding: str | None = None,
    seed: int = 0,
    output: Output = None,
    task: str | None = None,
) -> HeteroCard:
    """A source card for a trained heterogeneous model; arguments as in :func:`graphmend.cards.card`.

    The task is that of the predicted type; rows of the other types, which are means of predictions around them, have
    the same task.

    Example:
        >>> import torch
        >>> from torch_geometric.data import HeteroData
        >>> from graphmend.hetero import hetero_card
        >>> from torch_geometric.nn import HGTConv
        >>> data = HeteroData()
        >>> data["paper"].x, data["author"].x = torch.rand(20, 4), torch.rand(10, 3)
        >>> data["author", "writes", "paper"].edge_index = torch.stack([torch.arange(20) % 10, torch.arange(20)])
        >>> class Net(torch.nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.conv = HGTConv({"paper": 4, "author": 3}, 8, data.metadata())
        ...         self.lin = torch.nn.Linear(8, 2)
        ...     def forward(self, x_dict, edge_index_dict):
        ...         return self.lin(self.conv(x_dict, edge_index_dict)["paper"].relu())
        >>> hetero_card(Net(), data, task="classes").node_type
        'paper'
    """
    graphs = [train_data] if isinstance(train_data, HeteroData) else list(train_data)
    require(len(graphs) > 0, "train_data is an empty list; give the graph the model was trained on")
    seed, task = seed_number("seed", seed), check_task(task)
    for data in graphs:
        check_hetero(data)
        same = feature_types(data) == feature_types(graphs[0])
        require(same, "the training graphs have different node types; give graphs of one kind")
    own = [private_copy(data) for data in graphs]
    with frozen_caller(model, seed, output) as caller:
        node_type, place = look_at(caller, own[0], embedding)
        with torch.no_grad():
            outputs = [output_of(caller(data), node_type) for data in own]
        kind_of_rows = task_of_type(outputs, own, node_type, task).known().kind
        cards = {}
        for kind in feature_types(own[0]):
            view = OneType.of(caller, own, kind, node_type, place)
            cards[kind] = plain_card(view, view.plain_graphs(), seed=seed, task=kind_of_rows)
    return HeteroCard(node_type, place.text, cards, output)


def read_any_card(path: str | PathLike[str]) -> SourceCard | HeteroCard:
    """A source card of either kind of model, as the header of the file says.

    Example:
        >>> import graphmend
        >>> from graphmend.hetero import read_any_card
        >>> from graphmend.lab.data import embedded
        >>> from torch_geometric.nn import GCN
        >>> graphmend.card(GCN(13, 16, 2, 3), embedded("wine").test[0]).save("any.card.safetensors")
        >>> type(read_any_card("any.card.safetensors")).__name__
        'SourceCard'
    """
    path = Path(path)
    _, metadata = read_safetensors(path)
    return HeteroCard.load(path) if is_of_format(metadata, FORMAT) else SourceCard.load(path)


@contextmanager
def frozen_caller(model: nn.Module, seed: int, output: Output) -> Iterator[HeteroCaller]:
    """A model, frozen and left as it was, with the way in which it is called."""
    check_model(model)
    with torch.inference_mode(False), torch.enable_grad(), untouched_rng(seed), frozen_model(model):
        yield HeteroCaller(unwrapped(model), check_output_name(output))


def look_at(caller: HeteroCaller, data: HeteroData, embedding: str | None) -> tuple[str, Place]:
    """The node type that a model predicts, and where its embedding is, found on a graph."""
    with torch.no_grad():
        node_type = predicted_type(caller(data), data)

    def run(with_all_edges: bool) -> Any:
        return caller(data if with_all_edges else _half_of(data))

    return node_type, find_place(caller.model, run, node_type, node_count(data, node_type), embedding)


def _half_of(data: HeteroData) -> HeteroData:
    """A copy with every second edge of each type."""
    out = private_copy(data)
    for edge_type in out.edge_types:
        store = out[edge_type]
        edges = store.edge_index.size(1)
        for name, value in list(store.items()):
            if isinstance(value, Tensor) and name != "edge_index" and value.shape[:1] == (edges,):
                store[name] = value[::2]
        store.edge_index = store.edge_index[:, ::2].contiguous()
    return out
