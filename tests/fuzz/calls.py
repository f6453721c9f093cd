"""Calls of the library with odd graphs, odd models and odd arguments; model and graph must be left as they were."""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch_geometric.data import Data

import graphmend
import graphmend.adapters
import graphmend.transforms
from fuzz.cases import Case, Violation
from fuzz.graph_defects import CLASSES, IN, any_graph, generator_from, sound_graph
from fuzz.model_kinds import any_model, good_model, may_interrupt
from fuzz.odd_values import arguments, odd_value
from fuzz.watching import content, left_alone
from graphmend import Gate, GTrans, Limits, Patch, mend
from graphmend.adapters import ADAPTERS, Identity
from graphmend.files.graph_files import load_graph, save_graph
from graphmend.graph.convert import with_edge_index
from graphmend.lab.attacks import EdgeAttack
from graphmend.lab.backbones import BACKBONES, build
from graphmend.lab.data import SHIFTS, Splits
from graphmend.lab.training import TRAINERS
from graphmend.outputs import predictions
from graphmend.results.adaptation import Adaptation
from graphmend.results.results import Results
from graphmend.results.scores import METRICS, score
from graphmend.surrogates import SURROGATES, Moments, Supervised
from graphmend.transforms import VIEWS

Deed = Callable[[], object]
ODD = ("graph", "graph", "model", "model", "arguments", "arguments", "options", "everything")
"""What is odd about a call: one thing, so that the call gets far, or everything."""


@dataclass(frozen=True)
class Scene:
    """What a call is made with, and which part of it is odd."""

    rng: random.Random
    folder: Path
    odd: str
    model: Any
    data: Any

    def is_odd(self, part: str) -> bool:
        return self.odd in (part, "everything")

    def arguments(self, function: Callable[..., Any], **given: Any) -> dict[str, Any]:
        """Arguments for a function or a class, odd ones only if that is what is odd here."""
        return arguments(self.rng, function, given, 0.2 if self.is_odd("arguments") else 0.0)[1]

    def size(self, name: str, dimension: int, otherwise: int) -> int:
        """The size of a tensor of the graph, if it has one."""
        value = self.data.get(name) if isinstance(self.data, Data) else None
        return value.size(dimension) if isinstance(value, torch.Tensor) and value.dim() else otherwise

    def mask(self, size: int) -> Any:
        """A mask for so many entries; an odd one half of the time if that is what is odd here."""
        some = torch.rand(size, generator=generator_from(self.rng)) < 0.5
        if not self.is_odd("options") or self.rng.random() < 0.5:
            return some
        tensors = (some.float(), some.long(), ~some & some, some[1:], some.unsqueeze(1), some.nonzero())
        return self.rng.choice((*tensors, some.tolist(), some.numpy(), None, "all"))


def _limits(scene: Scene) -> Any:
    rng = scene.rng
    edges = scene.size("edge_index", -1, 40)
    sizes = {"frozen_nodes": scene.size("x", 0, 20), "frozen_edges": edges}
    sizes |= dict.fromkeys(("frozen_columns", "binary", "non_negative"), IN)
    chosen = {name: scene.mask(size) for name, size in sizes.items() if rng.random() < 0.25}
    for name in ("minimum", "maximum"):
        if rng.random() < 0.25:
            bounds = (-1.0, 0, 1.0, 2.0, torch.linspace(-1, 1, IN), torch.ones(IN).half(), torch.ones(2))
            chosen[name] = (
                rng.choice((*bounds, odd_value(rng)[1])) if scene.is_odd("options") else rng.choice((-9.0, 9.0))
            )
    return "none" if scene.is_odd("options") and rng.random() < 0.05 else Limits(**chosen)


def _surrogate(scene: Scene) -> Any:
    def of_logits(model: Any, graph: Data) -> torch.Tensor:
        return model(graph.x, graph.edge_index, graph.get("edge_weight")).square().mean()

    rng, odd = scene.rng, scene.is_odd("arguments")
    results: tuple[Any, ...] = (None, 1.0, torch.tensor(torch.nan), torch.ones(3), {"a": torch.ones(())}, "loss")
    result, kind = rng.choice(results), SURROGATES[rng.choice(list(SURROGATES))]
    choices: list[Callable[[], Any]] = [
        lambda: rng.choice(list(SURROGATES)),
        lambda: kind(**scene.arguments(kind, view=_view(scene))),
        lambda: Supervised(scene.mask(scene.size("x", 0, 9))) + 0.1 * SURROGATES["contrastive"](),
        lambda: of_logits,
    ]
    if odd:
        choices += [
            lambda: rng.choice((2.0, -1, torch.nan, "x", None, torch.ones(2))) * SURROGATES["contrastive"](),
            lambda: lambda model, graph: result,
            lambda: odd_value(rng)[1],
        ]
    return rng.choice(choices)()


def _view(scene: Scene) -> Any:
    kind = VIEWS[scene.rng.choice(list(VIEWS))]
    return kind(**scene.arguments(kind))


def _mend(scene: Scene) -> object:
    rng, model, data = scene.rng, scene.model, scene.data
    kind = rng.choice((Gate, Gate, GTrans, GTrans, GTrans, *ADAPTERS.values()))
    adapter = kind(**scene.arguments(kind, surrogate=_surrogate(scene)))
    adapter = adapter >> Identity() if rng.random() < 0.1 else adapter
    options = arguments(rng, Identity().__call__, {}, 0.2 if scene.is_odd("options") else 0.0)[1]
    if rng.random() < 0.4:
        options["limits"] = _limits(scene)
    if rng.random() < 0.2:
        options["mode"] = "eager"
    if rng.random() < 0.5 and isinstance(model, nn.Module) and "card" not in options:
        options["source"] = sound_graph(rng, plain=True)
    result = mend(model, data, adapter, **options)
    if isinstance(result, Results):  # of a batch: one for each of its graphs
        return result.data
    _check_result(rng, result, data)
    return result


def _check_result(rng: random.Random, result: Adaptation, data: Data) -> None:
    """The graph comes back bit for bit, and what the result can be asked for is there."""
    result.summary()
    str(result.verdict)
    back, data = result.patch.revert(result.data), with_edge_index(data)  # a sparse matrix comes back as an edge list
    for name in ("x", "edge_index", "edge_weight"):
        before, after = data.get(name), back.get(name)
        if (before is None) != (after is None) or (before is not None and _values(before) != _values(after)):
            raise Violation(f"{name} does not come back when the patch is reverted")
    if result.logits.size(0) != data.x.size(0):
        raise Violation("there is not one row of logits per node")
    nodes = result.questions(rng.choice((1, 5, 1000)))
    if len(nodes):
        answers = {int(node): rng.choice((0, 1)) for node in nodes}
        result.decide(answers).summary()


def _values(value: torch.Tensor) -> Any:
    return content(value.detach().clone())[-2:]


def _decide(scene: Scene) -> object:
    """Ask for, and hand in, odd labels."""
    rng, odd = scene.rng, odd_value(scene.rng)[1]
    result = mend(scene.model, scene.data, source=sound_graph(rng, plain=True))
    if rng.random() < 0.3:
        result.questions(odd)
    key = odd if isinstance(odd, int | str) else 0
    return result.decide(rng.choice((odd, {0: odd}, {key: 1}, [0, 1], torch.zeros(len(result.questions(25))))))


def _frozen(scene: Scene) -> object:
    options = scene.arguments(graphmend.FrozenGNN)
    with graphmend.FrozenGNN(scene.model, scene.data, **options) as frozen:
        return frozen.predict(scene.data), frozen.embed(scene.data.x, scene.data.edge_index)


def _card(scene: Scene) -> object:
    rng, model, data = scene.rng, scene.model, scene.data
    options, graphs = scene.arguments(graphmend.card), data
    if scene.is_odd("options"):
        graphs = rng.choice(([data], [data, data], [], [data, sound_graph(rng)], (data,), None, "graphs", [None]))
    made = graphmend.card(**{**options, "model": model, "train_data": graphs})
    made.summary()
    if rng.random() < 0.5:
        mend(model, data, card=made)
        mend(model, data, GTrans(Moments(made), steps=2))
    return made


def _transform(scene: Scene) -> object:
    """Every class that ``graphmend.transforms`` lists, and the simulated shifts."""
    rng, names = scene.rng, graphmend.transforms.__all__
    kinds = [kind for kind in (getattr(graphmend.transforms, name) for name in names) if inspect.isclass(kind)]
    shifts = [kind for kind in SHIFTS.values() if inspect.isclass(kind)]
    kind = rng.choice([kind for kind in (*kinds, *shifts) if kind not in (EdgeAttack, graphmend.transforms.View)])
    if kind in VIEWS.values():  # part of a loss, in its innermost loop: there the graph was checked before
        return kind(**scene.arguments(kind))(sound_graph(rng), generator_from(rng))
    nodes, given = scene.size("x", 0, 9), dict[str, Any]()
    for name in ("nodes", "known"):
        if rng.random() < 0.3:
            given[name] = scene.mask(nodes)
    if rng.random() < 0.2:
        labels = (torch.zeros(nodes, dtype=torch.long), torch.ones(nodes), torch.full((nodes,), 9), "labels")
        given["labels"] = rng.choice(labels) if scene.is_odd("options") else labels[0]
    return kind(
        **{**scene.arguments(kind, **given), **({"model": scene.model} if issubclass(kind, EdgeAttack) else {})}
    )(scene.data)


def _train(scene: Scene) -> object:
    """Train one of our own models; an error of a user's own model while it is trained is for the user to see."""
    rng, data = scene.rng, scene.data
    kind = TRAINERS[rng.choice(list(TRAINERS))]
    splits = Splits.transductive(data) if rng.random() < 0.6 else Splits([data], [data], [data])
    return kind(**scene.arguments(kind, epochs=1))(good_model(rng), splits)


def _patch(scene: Scene) -> object:
    """A patch on a graph that it was, or was not, made for."""
    own = sound_graph(scene.rng)
    patch: Patch = mend(good_model(scene.rng), own, GTrans(steps=2, budget=3)).patch
    use = scene.rng.choice((patch.apply, patch.revert))
    return use(scene.rng.choice((scene.data, own, patch.apply(own))))


def _scores(scene: Scene) -> object:
    rng, labels = scene.rng, torch.arange(20) % 3
    logits = rng.choice((torch.randn(20, CLASSES), torch.randn(20), torch.randn(20, 1), torch.randn(20, 0)))
    logits = rng.choice((logits, logits, logits * torch.nan, logits.half(), logits.long(), odd_value(rng)[1]))
    y = rng.choice((labels, labels, labels.float(), labels.unsqueeze(1), labels[:5], labels * 10**15, labels - 1))
    y = y if rng.random() < 0.9 else odd_value(rng)[1]
    return predictions(logits), score(rng.choice((*METRICS, odd_value(rng)[1])), logits, y, scene.mask(20))


def _build(scene: Scene) -> object:
    rng = scene.rng
    name = rng.choice(list(BACKBONES))
    given = {"in_channels": IN, "hidden_channels": 4, "out_channels": CLASSES}
    options = arguments(rng, BACKBONES[name], given, 0.2)[1]
    return build(name if rng.random() < 0.95 else odd_value(rng)[1], **options)


def _files(scene: Scene) -> object:
    path = scene.folder / scene.rng.choice(("graph.npz", "a/b/graph.npz", "graph"))
    save_graph(path, scene.data)
    return load_graph(path)


KINDS: dict[str, tuple[int, Callable[[Scene], object]]] = {
    "mend": (50, _mend),
    "card": (12, _card),
    "transform": (18, _transform),
    "frozen": (6, _frozen),
    "train": (4, _train),
    "patch": (5, _patch),
    "decide": (3, _decide),
    "scores": (4, _scores),
    "build": (3, _build),
    "files": (3, _files),
}
"""The public calls, and how often each is tried."""
DRAWS = ("train", "patch", "scores", "build")
"""Calls that make models or numbers of their own, for which the global generators are used."""


def calls(rng: random.Random, folder: Path) -> Case:
    """Any of the public calls."""
    kind = rng.choices(list(KINDS), weights=[weight for weight, _ in KINDS.values()])[0]
    odd = rng.choice(ODD) if kind != "decide" else "options"
    told, data = any_graph(rng) if odd in ("graph", "everything") else ("sound", sound_graph(rng))
    if odd in ("model", "everything"):
        about, model = any_model(rng)
    else:
        model = good_model(rng)
        about = type(model).__name__
    scene = Scene(rng, folder, odd, model, data)
    watched = (model,) if kind == "frozen" else (model, data)  # FrozenGNN hands tensors over, as a call of a model does

    def run() -> object:
        with torch.random.fork_rng(enabled=kind in DRAWS):
            try:
                return left_alone(lambda: KINDS[kind][1](scene), *watched)
            except KeyboardInterrupt:
                if may_interrupt(model):
                    return None
                raise

    return Case(f"{kind}: odd {odd}: {about}; {told}", run)
