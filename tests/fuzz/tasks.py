"""Models whose rows are no classes of nodes but labels, numbers, embeddings or graphs; and labels of all kinds."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch_geometric.nn as pyg
from torch import Tensor, nn
from torch_geometric.data import Batch, Data
from torch_geometric.loader import DataLoader

import graphmend
from fuzz.cases import Case, Violation
from fuzz.graph_defects import generator_from, odd_graph, sound_graph
from fuzz.model_kinds import Plain
from fuzz.odd_values import odd_value
from fuzz.watching import left_alone
from graphmend.adapters import ADAPTERS
from graphmend.outputs import KINDS
from graphmend.results.adaptation import Adaptation
from graphmend.results.results import Failure, Results


class Encoder(nn.Module):
    """Encodes and decodes, as examples of link prediction do."""

    def __init__(self, out: int) -> None:
        super().__init__()
        self.gnn = Plain(out)

    def encode(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.gnn(x, edge_index)

    def decode(self, z: Tensor, edge_label_index: Tensor) -> Tensor:
        return (z[edge_label_index[0]] * z[edge_label_index[1]]).sum(-1)


class OddDecoder(Encoder):
    """Decodes into something that is no score."""

    def decode(self, z: Tensor, edge_label_index: Tensor) -> Any:
        return {"scores": super().decode(z, edge_label_index)[1:]}


class PerGraph(Plain):
    """One row per graph."""

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:  # type: ignore[override]
        return pyg.global_mean_pool(super().forward(x, edge_index), batch)


class PerGraphOfBatch(PerGraph):
    """The same; it needs a batch."""

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:  # type: ignore[override]
        return super().forward(x, edge_index, batch)


class Probabilities(Plain):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return super().forward(x, edge_index).softmax(-1)


class Sigmoid(Plain):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return super().forward(x, edge_index).sigmoid()


class Flat(Plain):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return super().forward(x, edge_index)[:, 0]


MODELS: dict[str, Callable[[int], nn.Module]] = {
    "plain": Plain,
    "encodes": Encoder,
    "decodes oddly": OddDecoder,
    "GAE": lambda out: pyg.GAE(Plain(out)),
    "per graph": PerGraph,
    "per graph of a batch": PerGraphOfBatch,
    "probabilities": Probabilities,
    "sigmoid": Sigmoid,
    "one dimension": Flat,
}


def labels_for(rng: random.Random, rows: int, columns: int) -> Any:
    """Labels of any kind."""
    generator = generator_from(rng)
    numbers = torch.randn(rows, columns, generator=generator)
    makes: tuple[Callable[[], Any], ...] = (
        lambda: torch.arange(rows) % max(columns, 2),
        lambda: numbers,
        lambda: numbers[:, 0],
        lambda: (numbers > 0).float(),
        lambda: (numbers > 0).long(),
        lambda: numbers > 0,
        lambda: torch.where(numbers > 1, torch.nan, (numbers > 0).float()),
        lambda: torch.where(numbers > 1, torch.inf, numbers),
        lambda: numbers.half(),
        lambda: torch.full((rows,), -1),
        lambda: torch.full((rows, columns), torch.nan),
        lambda: numbers.numpy(),
        lambda: numbers.tolist(),
        lambda: torch.eye(columns)[torch.arange(rows) % columns],
        lambda: numbers[:-1],
        lambda: numbers.unsqueeze(0),
        lambda: numbers.to_sparse(),
        lambda: torch.complex(numbers, numbers),
        lambda: torch.full((rows,), 2**62),
    )
    return rng.choice(makes)()


def odd_labels(rng: random.Random, logits: Tensor) -> dict[str, Any]:
    """Arguments of ``compare``."""
    rows, columns = logits.size(0), logits.size(1) if logits.dim() == 2 else 1
    given: dict[str, Any] = {"y": labels_for(rng, rows, columns) if rng.random() < 0.8 else odd_value(rng)[1]}
    if rng.random() < 0.3:
        some = torch.arange(rows) % 2 == 0
        given["mask"] = rng.choice((some, some.long(), ~some & some, some[1:], some.unsqueeze(1), "all", some.tolist()))
    if rng.random() < 0.3:
        given["task"] = rng.choice((*KINDS, "classes", odd_value(rng)[1]))
    return given


def _pairs(rng: random.Random, nodes: int) -> Any:
    pairs = torch.randint(nodes, (2, 12), generator=generator_from(rng))
    return rng.choice((pairs, pairs, pairs, pairs + 5, pairs[:, :0], pairs.float(), pairs.t(), pairs[0], None, "x"))


def _graph(rng: random.Random, out: int, is_odd: bool) -> tuple[str, Data]:
    told, data = odd_graph(rng, 1 if is_odd else 0, plain=True)
    nodes = data.x.size(0) if isinstance(data.x, Tensor) and data.x.dim() else 9
    if rng.random() < 0.6:
        per_graph = rng.random() < 0.4
        if per_graph:
            data.batch = (torch.arange(nodes) * 3) // max(nodes, 1)
        data.y = labels_for(rng, 3 if per_graph else nodes, out)
    if rng.random() < 0.3:
        data.edge_label_index = _pairs(rng, nodes)
    return told, data


def _several(rng: random.Random, data: Data) -> Any:
    """The graph with others, in what holds several."""
    graphs = [sound_graph(rng, plain=True) for _ in range(2)]
    loader: DataLoader[Any] = DataLoader(graphs, batch_size=rng.choice((1, 2)))
    makes: tuple[Callable[[], Any], ...] = (
        lambda: [data, *graphs],
        lambda: [*graphs, None],
        lambda: Batch.from_data_list(graphs),
        lambda: loader,
        lambda: iter([*graphs, data]),
        lambda: [],
    )
    return rng.choice(makes)()


def _ask(rng: random.Random, result: Adaptation) -> None:
    """Everything a result can be asked for, each with a result or a refusal."""
    repr(result)
    result.summary()
    ask: list[Callable[[], object]] = [
        lambda: result.compare(**odd_labels(rng, result.logits)),
        lambda: result.compare(torch.arange(12) % 2, edge_label_index=_pairs(rng, result.data.x.size(0))),
        lambda: (result.predictions, result.changed),
        lambda: result.decide(dict.fromkeys(result.questions(5).tolist(), rng.choice((1, [0.0], [1, 0], 0.5)))),
    ]
    rng.choice(ask)()


def _mend(rng: random.Random, model: nn.Module, data: Data, out: int, folder: Path) -> object:
    options: dict[str, Any] = {}
    if rng.random() < 0.4:
        options["task"] = rng.choice((*KINDS, *KINDS, odd_value(rng)[1]))
    if rng.random() < 0.5:
        source = _graph(rng, out, False)[1]
        made = graphmend.card(model, source, task=options.get("task"))
        made.save(folder / "a.card")
        options["card"] = rng.choice((made, folder / "a.card"))
    if rng.random() < 0.2:
        results = graphmend.mend(model, _several(rng, data), **options)
        if isinstance(results, Results):
            repr(results)
            results.summary()
            for one in results:
                if isinstance(one, Failure) and "Error" in one.reason:
                    raise Violation(f"a graph of several failed with {one.reason}")
        return results
    adapter = rng.choice((None, None, None, "gtrans", *ADAPTERS))
    kind = None if adapter is None else ADAPTERS[adapter]
    steps = {"steps": 2} if adapter in ("gtrans", "tent", "fine_tune") else {}
    result = graphmend.mend(model, data, None if kind is None else kind(**steps), **options)
    _ask(rng, result)
    return result


def tasks(rng: random.Random, folder: Path) -> Case:
    """A model of any task on a graph with labels that tell another one, or none."""
    name, out = rng.choice(list(MODELS)), rng.choice((1, 2, 3, 6))
    model = MODELS[name](out).train(rng.random() < 0.2)
    told, data = _graph(rng, out, rng.random() < 0.3)
    return Case(
        f"{name} of {out} columns: {told}",
        lambda: left_alone(lambda: _mend(rng, model, data, out, folder), model, data),
    )
