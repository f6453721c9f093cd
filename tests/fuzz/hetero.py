"""Heterogeneous graphs with odd stores, odd models and odd arguments, and their cards, patches and files."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch_geometric.nn as pyg
from torch import Tensor, nn
from torch_geometric.data import HeteroData

import graphmend
from fuzz.cases import Case, Violation
from fuzz.graph_defects import CLASSES, DEFECTS, IN, generator_from, sound_graph
from fuzz.model_kinds import HIDDEN
from fuzz.odd_values import arguments, odd_value
from fuzz.tasks import odd_labels
from fuzz.watching import content, left_alone
from graphmend import Gate, GTrans, Limits
from graphmend.adapters import ADAPTERS, Identity
from graphmend.files.graph_files import load_graph, save_graph
from graphmend.hetero import HeteroAdaptation, HeteroCard, mend_hetero, read_any_patch

PAPERS, AUTHORS = "paper", "author"
CITES, WRITES, BACK = (PAPERS, "cites", PAPERS), (AUTHORS, "writes", PAPERS), (PAPERS, "rev_writes", AUTHORS)
METADATA = ([PAPERS, AUTHORS], [CITES, WRITES, BACK])


def sound_library(rng: random.Random) -> HeteroData:
    """Papers that cite each other, and authors; with labels, masks, weights, or without."""
    generator, papers, authors = generator_from(rng), sound_graph(rng), rng.randint(4, 12)
    data = HeteroData()
    for name, value in papers.to_dict().items():
        of_edges = name in ("edge_index", "edge_weight", "edge_attr")
        (data[CITES] if of_edges else data[PAPERS])[name] = value
    data[AUTHORS].x = torch.randn(authors, IN - 1, generator=generator)
    ends = [torch.randint(n, (3 * authors,), generator=generator) for n in (authors, papers.x.size(0))]
    data[WRITES].edge_index = torch.unique(torch.stack(ends), dim=1)
    data[BACK].edge_index = data[WRITES].edge_index.flip(0)
    return data


def _plain_defect(rng: random.Random, data: HeteroData) -> str:
    """One of those that plain graphs have, of one type."""
    kind = rng.choice((CITES, CITES, WRITES))
    name = rng.choice(list(DEFECTS))
    plain = sound_graph(rng, plain=True)
    plain.update({**data[kind[0]].to_dict(), **data[kind].to_dict()})
    before = plain.to_dict()
    DEFECTS[name](rng, plain)
    for key, value in plain.to_dict().items():
        if value is not before.get(key):
            (data[kind] if key.startswith(("edge", "adj")) else data[kind[0]])[key] = value
    return f"{name} ({kind[1]})"


def _without(kind: Any, name: str) -> Callable[[HeteroData], object]:
    return lambda data: data[kind].pop(name, None)


def _set(kind: Any, name: str, value: Any) -> Callable[[HeteroData], object]:
    return lambda data: data[kind].__setitem__(name, value)


OWN_DEFECTS: dict[str, Callable[[HeteroData], object]] = {
    "no features of a type": _without(AUTHORS, "x"),
    "no features of the predicted type": _without(PAPERS, "x"),
    "indices for features": _set(AUTHORS, "x", torch.arange(4)),
    "no edges of a type": _without(WRITES, "edge_index"),
    "an edge type without an edge": _set(CITES, "edge_index", torch.empty(2, 0, dtype=torch.long)),
    "a type that the model does not know": _set("venue", "x", torch.ones(3, 2)),
    "a type without anything": _set("venue", "name", "x"),
    "edges of types that are not there": _set(("a", "b", "c"), "edge_index", torch.tensor([[0], [0]])),
    "a type named oddly": _set("a__b\x1b[31m\n", "x", torch.ones(3, 2)),
    "an edge type named oddly": _set((PAPERS, "a__b\n", PAPERS), "edge_index", torch.tensor([[0], [1]])),
    "numbers of nodes": _set(AUTHORS, "num_nodes", 10**12),
    "labels of another type": _set(AUTHORS, "y", torch.arange(4)),
    "further values": lambda data: data.__setitem__("name", {"a": object()}),
    "one node": _set(AUTHORS, "x", torch.ones(1, IN - 1)),
    "no node": _set(AUTHORS, "x", torch.ones(0, IN - 1)),
}


def any_library(rng: random.Random, defects: int) -> tuple[str, HeteroData]:
    """One with so many defects, and what they are."""
    data, told = sound_library(rng), []
    for _ in range(defects):
        if rng.random() < 0.5:
            name = rng.choice(list(OWN_DEFECTS))
            OWN_DEFECTS[name](data)
            told.append(name)
            continue
        try:
            told.append(_plain_defect(rng, data))
        except (RuntimeError, IndexError, TypeError, AttributeError, ValueError, NotImplementedError):
            continue  # of an earlier defect
    return "; ".join(told) or "sound", data


class _Sage(nn.Module):
    def __init__(self, out: int) -> None:
        super().__init__()
        self.a, self.b = pyg.SAGEConv((-1, -1), HIDDEN), pyg.SAGEConv((-1, -1), out)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.b(self.a(x, edge_index).relu(), edge_index)


class Layers(nn.Module):
    """A layer for each edge type, of any kinds, and one linear map."""

    def __init__(self, convs: dict[Any, nn.Module], out: int) -> None:
        super().__init__()
        self.conv, self.lin = pyg.HeteroConv(convs), nn.Linear(HIDDEN, out)

    def forward(self, x_dict: dict[str, Tensor], edge_index_dict: dict[Any, Tensor]) -> Any:
        return self.lin(self.conv(x_dict, edge_index_dict)[PAPERS].relu())


class Transformer(nn.Module):
    def __init__(self, out: int) -> None:
        super().__init__()
        self.conv = pyg.HGTConv({PAPERS: IN, AUTHORS: IN - 1}, HIDDEN, METADATA, 2)
        self.lin = nn.Linear(HIDDEN, out)

    def forward(self, data: HeteroData) -> Tensor:
        return self.lin(self.conv(data.x_dict, data.edge_index_dict)[PAPERS])


class Odd(Layers):
    """Does one thing that a model should not do."""

    def __init__(self, deed: Callable[[Tensor], Any]) -> None:
        super().__init__(_mixed(), CLASSES)
        self._deed = deed

    def forward(self, x_dict: dict[str, Tensor], edge_index_dict: dict[Any, Tensor]) -> Any:
        return self._deed(super().forward(x_dict, edge_index_dict))


def _mixed() -> dict[Any, nn.Module]:
    sage = [pyg.SAGEConv((-1, -1), HIDDEN) for _ in range(2)]
    return {CITES: pyg.GCNConv(-1, HIDDEN), WRITES: sage[0], BACK: sage[1]}


def _fails(out: Tensor) -> Any:
    raise RuntimeError("the model failed\nhere")


DEEDS: dict[str, Callable[[Tensor], Any]] = {
    "an error": _fails,
    "NaN": lambda out: out * torch.nan,
    "one row less": lambda out: out[1:],
    "a tuple": lambda out: (out, out),
    "both types": lambda out: {PAPERS: out, AUTHORS: out[:4]},
    "no type": lambda out: {},
    "other keys": lambda out: {"logits": out},
    "None by type": lambda out: {PAPERS: None},
    "None": lambda out: None,
    "whole numbers": lambda out: out.argmax(1),
    "three dimensions": lambda out: out.unsqueeze(0),
    "no columns": lambda out: out[:, :0],
    "noise": lambda out: out + torch.randn_like(out),
    "half precision": lambda out: out.half(),
}


def _ready(model: nn.Module) -> nn.Module:
    """A model whose sizes are known."""
    data = sound_library(random.Random(0))
    with torch.no_grad():
        model(data) if isinstance(model, Transformer) else model(data.x_dict, data.edge_index_dict)
    return model


def any_model(rng: random.Random, is_odd: bool) -> tuple[str, Any]:
    """A model that predicts papers, an odd one if wanted."""
    if is_odd and rng.random() < 0.1:
        return "no model", rng.choice((None, len, "gcn", pyg.GCN(IN, HIDDEN, 2, CLASSES), Layers))
    if is_odd and rng.random() < 0.7:
        name = rng.choice(list(DEEDS))
        model: Any = _ready(Odd(lambda out: out))
        model._deed = DEEDS[name]
        return f"a model with {name}", model.train(rng.random() < 0.5)
    out = rng.choice((CLASSES, CLASSES, 1, 4))
    makes: tuple[Callable[[], nn.Module], ...] = (
        lambda: pyg.to_hetero(_Sage(out), METADATA),
        lambda: Layers(_mixed(), out),
        lambda: Transformer(out),
    )
    made = rng.choice(makes)()
    return type(made).__name__, (made if is_odd and rng.random() < 0.2 else _ready(made)).train(rng.random() < 0.3)


def _limits(rng: random.Random, is_odd: bool) -> Any:
    generator = generator_from(rng)
    rows = {
        kind: torch.rand(nodes, generator=generator) < 0.5
        for kind, nodes in ((PAPERS, rng.choice((9, 20))), (AUTHORS, 6))
    }
    sound = {kind: Limits(frozen_nodes=mask) for kind, mask in rows.items()}
    odd = (Limits(frozen_nodes=rows[PAPERS]), {"venue": Limits()}, {PAPERS: "none"}, "none", {}, odd_value(rng)[1])
    return rng.choice(odd) if is_odd else rng.choice((Limits(minimum=-9.0), sound))


def _mend(rng: random.Random, model: Any, data: HeteroData, is_odd: bool, folder: Path) -> object:
    kind = rng.choice((*[Gate] * 12, *[GTrans] * 8, *ADAPTERS.values()))
    adapter = kind(**arguments(rng, kind, {}, 0.2 if is_odd else 0.0)[1])
    options = arguments(rng, mend_hetero, {}, 0.2 if is_odd else 0.0)[1]
    options.pop("adapter", None)
    if rng.random() < 0.3:
        options["limits"] = _limits(rng, is_odd)
    options["output"], options["task"] = PAPERS, rng.choice((None, None, "classes", "numbers", "labels"))
    if rng.random() < 0.5:
        options["source"] = sound_library(rng)
        options.pop("card", None)
    result: Any = graphmend.mend(model, data, adapter, **options)
    _check_result(rng, result, data, folder)
    return result


def _check_result(rng: random.Random, result: HeteroAdaptation, data: HeteroData, folder: Path) -> None:
    """The graph comes back bit for bit, and what the result can be asked for is there or refused."""
    result.summary()
    repr(result)
    result.patch.save(folder / "a.patch.safetensors")
    patch: Any = read_any_patch(folder / "a.patch.safetensors")
    back = patch.revert(result.data)
    for store in data.stores:
        for name, value in store.items():
            if isinstance(value, Tensor):
                other = back[store._key][name] if store._key else back[name]
                if content(value.detach())[-2:] != content(other.detach())[-2:]:
                    raise Violation(f"{store._key} {name} does not come back when the patch is reverted")
    if result.logits.size(0) != data[result.node_type].num_nodes:
        raise Violation("there is not one row of logits per node")
    if rng.random() < 0.5:
        result.compare(**odd_labels(rng, result.logits))


def _card(rng: random.Random, model: Any, data: HeteroData, is_odd: bool, folder: Path) -> object:
    options: dict[str, Any] = {"output": PAPERS, "task": rng.choice((None, "classes", "numbers", "embedding"))}
    if is_odd:
        options |= arguments(rng, graphmend.card, {})[1]
    graphs: Any = rng.choice((data, [data], [data, sound_library(rng)], [])) if is_odd else data
    made: Any = graphmend.card(**{**options, "model": model, "train_data": graphs})
    repr(made)
    made.save(folder / "a.card")
    again = HeteroCard.load(folder / "a.card")
    return graphmend.mend(model, data, card=rng.choice((made, again, folder / "a.card")))  # type: ignore[arg-type]


def _files(rng: random.Random, model: Any, data: HeteroData, is_odd: bool, folder: Path) -> object:
    path = folder / rng.choice(("graph.npz", "graph.pt", "a/graph.npz", "graph"))
    save_graph(path, data)
    return load_graph(path)


def _patch(rng: random.Random, model: Any, data: HeteroData, is_odd: bool, folder: Path) -> object:
    """A patch on a graph that it was, or was not, made for."""
    own = sound_library(rng)
    made: Any = graphmend.mend(_ready(Layers(_mixed(), CLASSES)), own, Identity(), output=PAPERS)
    use = rng.choice((made.patch.apply, made.patch.revert))
    return use(rng.choice((data, own, sound_graph(rng), None)))


KINDS: dict[str, tuple[int, Callable[..., object]]] = {
    "mend": (12, _mend),
    "card": (5, _card),
    "files": (3, _files),
    "patch": (1, _patch),
}


def heterogeneous(rng: random.Random, folder: Path) -> Case:
    """Any of the public calls for heterogeneous graphs."""
    kind = rng.choices(list(KINDS), weights=[weight for weight, _ in KINDS.values()])[0]
    odd = rng.choice(("graph", "graph", "model", "arguments", "nothing", "everything"))
    told, data = any_library(rng, rng.choice((1, 1, 2, 3)) if odd in ("graph", "everything") else 0)
    about, model = any_model(rng, odd in ("model", "everything"))
    is_odd = odd in ("arguments", "everything")

    def run() -> object:
        with torch.random.fork_rng(enabled=kind == "patch"):
            return left_alone(lambda: KINDS[kind][1](rng, model, data, is_odd, folder), model, data)

    return Case(f"{kind}: odd {odd}: {about}; {told}", run)
