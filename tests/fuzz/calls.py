"""Calls of the library with odd graphs, odd models and odd arguments; model and graph must be left as they were."""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch_geometric.data import Data

import graphmend
import graphmend.adapters
import graphmend.training
import graphmend.transforms
from fuzz.cases import Case, Violation
from fuzz.graph_defects import CLASSES, IN, any_graph, generator_from, odd_graph, sound_graph
from fuzz.model_kinds import any_model, good_model, may_interrupt
from fuzz.odd_values import arguments, odd_value
from fuzz.watching import content, left_alone
from graphmend import Gate, GTrans, Limits, Patch, mend
from graphmend.adapters import ADAPTERS, Identity
from graphmend.datasets import SHIFTS, Splits
from graphmend.io.graph_files import load_graph, save_graph
from graphmend.metrics import METRICS, predictions, score
from graphmend.nn import BACKBONES, build
from graphmend.results.adaptation import Adaptation
from graphmend.surrogates import SURROGATES, Moments, Supervised
from graphmend.transforms import VIEWS, EdgeAttack

Deed = Callable[[], object]


def _odd_mask(rng: random.Random, size: int) -> Any:
    """A mask for so many entries, a good one half of the time."""
    some = torch.rand(size, generator=generator_from(rng)) < 0.5
    tensors = (some, some, some, some, some.float(), some.long(), ~some & some, some[1:], some.unsqueeze(1))
    return rng.choice((*tensors, some.nonzero(), some.tolist(), some.numpy(), None, "all"))


def _limits(rng: random.Random, data: Any) -> Any:
    nodes, edges = 20, 40
    if isinstance(data, Data) and isinstance(data.get("x"), torch.Tensor) and data.x.dim() > 0:
        nodes = data.x.size(0)
    if isinstance(data, Data) and isinstance(data.get("edge_index"), torch.Tensor):
        edges = data.edge_index.size(-1) if data.edge_index.dim() else 1
    sizes = {"frozen_nodes": nodes, "frozen_columns": IN, "frozen_edges": edges, "binary": IN, "non_negative": IN}
    chosen = {name: _odd_mask(rng, size) for name, size in sizes.items() if rng.random() < 0.25}
    for name in ("minimum", "maximum"):
        if rng.random() < 0.25:
            bounds = (-1.0, 0, 1.0, 2.0, torch.linspace(-1, 1, IN), torch.ones(IN).half(), torch.ones(2))
            chosen[name] = rng.choice((*bounds, odd_value(rng)[1]))
    return rng.choice(("none", None)) if rng.random() < 0.03 else Limits(**chosen)


def _surrogate(rng: random.Random, data: Any) -> Any:
    def of_logits(model: Any, graph: Data) -> torch.Tensor:
        return model(graph.x, graph.edge_index, graph.get("edge_weight")).square().mean()

    odd_results: tuple[Any, ...] = (None, 1.0, torch.tensor(torch.nan), torch.ones(3), {"a": torch.ones(())}, "loss")
    result = rng.choice(odd_results)
    nodes = data.x.size(0) if isinstance(data, Data) and isinstance(data.get("x"), torch.Tensor) and data.x.dim() else 9
    chance = rng.random()
    if chance < 0.3:
        return rng.choice(list(SURROGATES))
    if chance < 0.5:
        kind = SURROGATES[rng.choice(list(SURROGATES))]
        made = kind(**arguments(rng, kind, {"view": _view(rng)})[1])
        return made if rng.random() < 0.5 else rng.choice((2.0, -1, torch.nan, "x", None)) * made
    if chance < 0.7:
        return Supervised(_odd_mask(rng, nodes)) + 0.1 * SURROGATES["contrastive"]()
    if chance < 0.8:
        return of_logits
    if chance < 0.9:
        return lambda model, graph: result
    return odd_value(rng)[1]


def _view(rng: random.Random) -> Any:
    kind = VIEWS[rng.choice(list(VIEWS))]
    return kind(**arguments(rng, kind, {})[1])


def _adapter(rng: random.Random, data: Any) -> Any:
    kind = rng.choice((Gate, GTrans, GTrans, GTrans, *ADAPTERS.values()))
    made = kind(**arguments(rng, kind, {"surrogate": _surrogate(rng, data)}, 0.15)[1])
    if rng.random() < 0.1:
        return made >> Identity()
    return made


def _call_options(rng: random.Random, data: Any) -> dict[str, Any]:
    """Arguments of a call of an adapter."""
    options = arguments(rng, Identity().__call__, {}, 0.06)[1]
    options.pop("model", None), options.pop("data", None)
    if rng.random() < 0.4:
        options["limits"] = _limits(rng, data)
    if rng.random() < 0.2:
        options["mode"] = "eager"
    return options


def _mend(rng: random.Random, model: Any, data: Any) -> Deed:
    def deed() -> object:
        adapter, options = _adapter(rng, data), _call_options(rng, data)
        if rng.random() < 0.3 and isinstance(model, nn.Module):
            options["source"] = sound_graph(rng, plain=True)
            options.pop("card", None)
        result = mend(model, data, adapter, **options)
        _check_result(rng, result, data)
        return result

    return deed


def _check_result(rng: random.Random, result: Adaptation, data: Data) -> None:
    """The graph comes back bit for bit, and what the result can be asked for is there."""
    result.summary()
    str(result.verdict)
    back = result.patch.revert(result.data)
    for name in ("x", "edge_index", "edge_weight"):
        before, after = data.get(name), back.get(name)
        if (before is None) != (after is None) or (before is not None and _values(before) != _values(after)):
            raise Violation(f"{name} does not come back when the patch is reverted")
    if result.logits.size(0) != data.x.size(0):
        raise Violation("there is not one row of logits per node")
    nodes = result.questions(rng.choice((1, 5, 1000)))
    if len(nodes):
        answers = {int(node): rng.choice((0, 1, 2)) for node in nodes}
        result.decide(answers).summary()


def _values(value: torch.Tensor) -> Any:
    return content(value.detach().clone())[-2:]


def _decide(rng: random.Random, model: Any, data: Any) -> Deed:
    """Ask for, and hand in, odd labels."""

    def deed() -> object:
        graph = sound_graph(rng, plain=True)
        result = mend(good_model(rng), graph, source=sound_graph(rng, plain=True))
        result.questions(odd_value(rng)[1])
        odd = odd_value(rng)[1]
        return result.decide(rng.choice((odd, {0: odd}, {odd: 1} if isinstance(odd, int | str) else {}, [0, 1])))

    return deed


def _frozen(rng: random.Random, model: Any, data: Any) -> Deed:
    options = arguments(rng, graphmend.FrozenGNN, {}, 0.1)[1]
    options.pop("model", None), options.pop("data", None)

    def deed() -> object:
        with graphmend.FrozenGNN(model, data, **options) as frozen:
            return frozen.predict(data), frozen.embed(data.x, data.edge_index)

    return deed


def _card(rng: random.Random, model: Any, data: Any) -> Deed:
    options = arguments(rng, graphmend.card, {}, 0.1)[1]
    graphs = data if rng.random() < 0.8 else rng.choice(([data], [data, data], [], [data, sound_graph(rng)], (data,)))
    options |= {"model": model, "train_data": graphs}

    def deed() -> object:
        made = graphmend.card(**options)
        made.summary()
        if isinstance(model, nn.Module) and rng.random() < 0.5:
            mend(model, data, card=made)
            mend(model, data, GTrans(Moments(made), steps=2))
        return made

    return deed


def _transform(rng: random.Random, model: Any, data: Any) -> Deed:
    """Every class that ``graphmend.transforms`` lists, and the simulated shifts."""
    listed = [getattr(graphmend.transforms, name) for name in graphmend.transforms.__all__]
    kinds = [kind for kind in listed if inspect.isclass(kind) and kind not in (EdgeAttack, graphmend.transforms.View)]
    kind = rng.choice((*kinds, *_shifts()))
    nodes = data.x.size(0) if isinstance(data, Data) and isinstance(data.get("x"), torch.Tensor) and data.x.dim() else 9
    given: dict[str, Any] = {"model": model}
    for name in ("nodes", "known"):
        if rng.random() < 0.3:
            given[name] = _odd_mask(rng, nodes)
    if rng.random() < 0.2:
        given["labels"] = rng.choice((torch.zeros(nodes, dtype=torch.long), torch.ones(nodes), torch.full((nodes,), 9)))

    def deed() -> object:
        return kind(**arguments(rng, kind, given, 0.15)[1])(data)

    return deed


def _shifts() -> list[Any]:
    return [kind for kind in SHIFTS.values() if inspect.isclass(kind)]


def _train(rng: random.Random, model: Any, data: Any) -> Deed:
    listed = [getattr(graphmend.training, name) for name in graphmend.training.__all__]
    kind = rng.choice([thing for thing in listed if inspect.isclass(thing)])

    def deed() -> object:
        trained = good_model(rng) if not isinstance(model, nn.Module) or rng.random() < 0.5 else model
        splits = Splits.transductive(data) if rng.random() < 0.6 else Splits([data], [data], [data])
        return kind(**arguments(rng, kind, {"epochs": 1}, 0.1)[1])(trained, splits)

    return deed


def _patch(rng: random.Random, model: Any, data: Any) -> Deed:
    """A patch on a graph that it was, or was not, made for, and in a file."""

    def deed() -> object:
        own = sound_graph(rng)
        patch: Patch = mend(good_model(rng), own, GTrans(steps=2, budget=3)).patch
        use = rng.choice((patch.apply, patch.revert))
        return use(rng.choice((data, own, patch.apply(own))))

    return deed


def _scores(rng: random.Random, model: Any, data: Any) -> Deed:
    logits = rng.choice((torch.randn(20, CLASSES), torch.randn(20), torch.randn(20, 1), torch.randn(20, 0)))
    logits = rng.choice((logits, logits, logits * torch.nan, logits.half(), logits.long(), odd_value(rng)[1]))
    labels = torch.arange(20) % 3
    y = rng.choice((labels, labels, labels.float(), labels.unsqueeze(1), labels[:5], labels * 10**15, labels - 1))
    y = y if rng.random() < 0.9 else odd_value(rng)[1]
    metric = rng.choice((*METRICS, odd_value(rng)[1]))
    mask = _odd_mask(rng, 20)
    return lambda: (predictions(logits), score(metric, logits, y, mask))


def _build(rng: random.Random, model: Any, data: Any) -> Deed:
    name = rng.choice((*BACKBONES, "gcn", odd_value(rng)[1]))
    kind = BACKBONES.get(name, BACKBONES["gcn"]) if isinstance(name, str) else BACKBONES["gcn"]
    given = {"in_channels": IN, "hidden_channels": 4, "out_channels": CLASSES}
    options = arguments(rng, kind, given, 0.2)[1]
    return lambda: build(name, **options)


def _files(folder: Path) -> Callable[[random.Random, Any, Any], Deed]:
    def deed(rng: random.Random, model: Any, data: Any) -> Deed:
        path = folder / rng.choice(("graph.npz", "a/b/graph.npz", "graph"))

        def write_and_read() -> object:
            save_graph(path, data)
            return load_graph(path)

        return write_and_read

    return deed


def calls(rng: random.Random, folder: Path) -> Case:
    """Any of the public calls."""
    kinds: dict[str, Callable[[random.Random, Any, Any], Deed]] = {
        "mend": _mend,
        "card": _card,
        "transform": _transform,
        "frozen": _frozen,
        "train": _train,
        "patch": _patch,
        "decide": _decide,
        "scores": _scores,
        "build": _build,
        "files": _files(folder),
    }
    kind = rng.choices(list(kinds), weights=(50, 12, 18, 6, 4, 5, 3, 4, 3, 3))[0]
    told, data = any_graph(rng) if kind != "decide" else odd_graph(rng, 0)
    about, model = any_model(rng)
    name = f"{kind}: {about}; {told}"
    deed = kinds[kind](rng, model, data)
    trains = kind == "train"  # which changes the model, as it should, and the generators of a model's own

    def run() -> object:
        with torch.random.fork_rng(enabled=kind in ("train", "build", "patch", "decide")):
            try:
                return left_alone(deed, data) if trains else left_alone(deed, model, data)
            except KeyboardInterrupt:
                if may_interrupt(model):
                    return None
                raise

    return Case(name, run)
