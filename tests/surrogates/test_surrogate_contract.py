"""One contract for every surrogate of the registry, and for whatever can be made of them."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from typer.testing import CliRunner

from graphmend import FrozenGNN, GTrans
from graphmend.cards import card
from graphmend.cli import app
from graphmend.files.graph_files import save_graph
from graphmend.lab.backbones import BACKBONES, GCN, save_model
from graphmend.surrogates import (
    ADGCL,
    SLAPS,
    SURROGATES,
    Contrastive,
    Entropy,
    Moments,
    Reconstruction,
    Supervised,
    Surrogate,
    surrogate_of,
)
from graphmend.transforms import VIEWS, view_of
from support.graphs import labelled, rng
from support.sample_models import basic, seeded
from support.surrogate_cases import graph, model, some, training_graph, weights
from support.untouched import assert_same, state_of


def entropy(model: Any, data: Data) -> Tensor:
    p = model(data.x, data.edge_index, data.get("edge_weight")).softmax(-1)
    return -(p * p.log()).sum(-1).mean()


def smoothness(model: Any, data: Data) -> Tensor:
    """A loss that looks at the features themselves as well."""
    z = model.embed(data.x, data.edge_index, data.get("edge_weight"))
    source, target = data.edge_index
    weight = 1.0 if data.get("edge_weight") is None else data.edge_weight
    return (weight * (z[source] - z[target]).square().sum(-1)).mean() + 0.1 * data.x.square().mean()


CASES: dict[str, Callable[[], Surrogate]] = {
    **SURROGATES,
    **{f"contrastive, {name}": lambda name=name: Contrastive(view_of(name)) for name in VIEWS},
    "entropy of the first nodes": lambda: Entropy(nodes=5),
    "reconstruction as released": lambda: Reconstruction(weighted=False),
    "slaps": lambda: SLAPS.fit(training_graph(), epochs=10),
    "slaps as released": lambda: SLAPS.fit(training_graph(), epochs=10, denoise=False),
    "sum with adgcl": lambda: 0.1 * ADGCL(steps=3, batch_size=5) + Contrastive(),
    "supervised": lambda: Supervised(some()),
    "scaled": lambda: 0.3 * Contrastive(),
    "sum": lambda: Supervised(some()) + 0.01 * Contrastive(),
    "sum of sums": lambda: 2.0 * (Contrastive() + surrogate_of(entropy)) + Supervised(~some()) * 0.5,
    "function": lambda: surrogate_of(entropy),
    "lambda": lambda: surrogate_of(lambda m, d: m.embed(d.x, d.edge_index, d.edge_weight).square().mean()),
    "function of the features": lambda: surrogate_of(smoothness),
}
OF_A_MODEL: dict[str, Callable[[nn.Module], Surrogate]] = {
    "moments": lambda net: Moments(card(net, training_graph(), task="classes")),
    "sum with moments": lambda net: Moments(card(net, training_graph(), task="classes")) + 0.1 * Contrastive(),
}
"""Those that are made for one model, and look at its first layer, which only a frozen model shows."""
surrogates = pytest.mark.parametrize("name", [*CASES, *OF_A_MODEL])


def made(name: str, net: nn.Module) -> Surrogate:
    """The surrogate, after what adapters do before they use it."""
    return (OF_A_MODEL[name](net) if name in OF_A_MODEL else CASES[name]()).prepare(net, graph())  # type: ignore[arg-type]


def weighted_graph(dtype: torch.dtype = torch.float64) -> Data:
    """Without weights of 0, around which a random walk changes its way."""
    data = graph(dtype)
    data.edge_weight = weights(data).clamp(min=0.2)
    return data


@contextmanager
def shown(net: nn.Module, data: Data, frozen: bool) -> Iterator[Any]:
    """The model itself, or a frozen one; there, presences come on top of a graph's own weights."""
    if not frozen:
        yield net
        return
    plain = copy.copy(data)
    del plain.edge_weight
    with FrozenGNN(net, plain) as wrapped:
        yield wrapped


@surrogates
def test_it_is_a_pure_function_of_its_arguments(name: str) -> None:
    net, data = model(), weighted_graph()
    surrogate = made(name, net)
    with shown(net, data, name in OF_A_MODEL) as of:
        before, generator = state_of(net, data), rng(5)
        terms = surrogate.terms(of, data, generator)
        drawn = generator.get_state()
        again = surrogate.terms(of, data, rng(5))
        assert_same(before, state_of(net, data))
        assert terms and all(isinstance(value, Tensor) and value.dim() == 0 for value in terms.values())
        assert list(terms) == list(again) and all(torch.equal(terms[key], again[key]) for key in terms)
        generator.manual_seed(5)
        other = made(name, model())
        assert torch.equal(surrogate(of, data, generator), other(of, copy.copy(data), rng(5)))
        assert torch.equal(generator.get_state(), drawn), "it draws the same numbers every time"
        torch.testing.assert_close(surrogate(of, data, rng(5)), torch.stack(list(terms.values())).sum())


@surrogates
def test_to_prepare_it_leaves_everything_as_it_was_and_depends_on_the_seed_alone(name: str) -> None:
    net, data = model(), weighted_graph()
    surrogate = OF_A_MODEL[name](net) if name in OF_A_MODEL else CASES[name]()
    before = state_of(net, data)
    ready = surrogate.prepare(net, data, seed=3)  # type: ignore[arg-type]
    assert_same(before, state_of(net, data))
    torch.manual_seed(99)
    again = surrogate.prepare(net, data, seed=3)  # type: ignore[arg-type]
    with shown(net, data, name in OF_A_MODEL) as of:
        assert torch.equal(ready(of, data, rng(1)), again(of, data, rng(1)))
        twice = ready.prepare(of, data, seed=4)
        assert torch.equal(ready(of, data, rng(1)), twice(of, data, rng(1))), "what is prepared stays so"


@surrogates
@pytest.mark.parametrize("frozen", [False, True], ids=["bare model", "frozen model"])
def test_gradients_equal_finite_differences(name: str, frozen: bool) -> None:
    if name in OF_A_MODEL and not frozen:
        pytest.skip(f"{name} looks into a frozen model")
    net, data = model("sage" if name in OF_A_MODEL else "gpr"), weighted_graph()
    surrogate = made(name, net)
    with shown(net, data, frozen) as of:

        def loss(x: Tensor, weight: Tensor) -> Tensor:
            changed = copy.copy(data)
            changed.x, changed.edge_weight = x, weight
            return surrogate(of, changed, rng(1))

        assert torch.autograd.gradcheck(loss, [t.clone().requires_grad_() for t in (data.x, data.edge_weight)])


@surrogates
def test_features_of_zeros_have_a_finite_loss_and_gradient(name: str) -> None:
    net, data = model(), weighted_graph()
    surrogate = made(name, net)
    with shown(net, data, name in OF_A_MODEL) as of:
        surrogate(of, data, rng(1))  # a first layer cannot be found on features of zeros
        data.x = torch.zeros_like(data.x)
        given = [t.requires_grad_() for t in (data.x, data.edge_weight)]
        loss = surrogate(of, data, rng(1))
        for tensor in (loss, *torch.autograd.grad(loss, given, allow_unused=True)):
            assert tensor is None or bool(tensor.isfinite().all())


@surrogates
@pytest.mark.parametrize("kind", [*BACKBONES, "GCN", "GraphSAGE", "GAT", "GATv2"])
def test_it_runs_with_shared_features_and_agrees_with_the_plain_way(name: str, kind: str) -> None:
    net = model(kind) if kind in BACKBONES else seeded(lambda: basic(kind, num_layers=2), torch.float64)
    data = graph()
    surrogate = OF_A_MODEL[name](net) if name in OF_A_MODEL else CASES[name]()
    adapter = GTrans(surrogate, steps=6, feature_steps=2, lr_feature=0.02, lr_edge=0.3, budget=3)
    fast, plain = (adapter(net, data, mode=mode) for mode in ("auto", "eager"))
    assert fast.reason is None and plain.reason is None
    assert fast.engine.shared_features, fast.engine.reasons
    assert not plain.engine.shared_features and plain.engine.reasons["shared_features"] == "mode is 'eager'"
    for mine, other in zip([*fast.history, *fast.candidates], [*plain.history, *plain.candidates], strict=True):
        assert mine.loss == pytest.approx(other.loss, rel=1e-8, abs=1e-8)
    torch.testing.assert_close(fast.data.x, plain.data.x, rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(fast.logits, plain.logits, rtol=1e-6, atol=1e-8)
    assert torch.equal(fast.data.edge_index, plain.data.edge_index)


@surrogates
def test_single_precision(name: str) -> None:
    net, data, surrogate = model().float(), weighted_graph(torch.float32), made(name, model())
    with shown(model(), weighted_graph(), name in OF_A_MODEL) as of:
        double = surrogate(of, weighted_graph(), rng(1))
    with shown(net, data, name in OF_A_MODEL) as of:
        single = surrogate(of, data, rng(1))
    assert single.dtype == torch.float32
    assert float(single) == pytest.approx(float(double), rel=1e-4, abs=1e-5)


@surrogates
def test_its_signature_says_what_runs_but_not_with_which_numbers(name: str) -> None:
    one, two = made(name, model()), made(name, model("gpr"))
    assert one.signature() == two.signature()
    hash(one.signature())
    assert (2.0 * one).signature() == (3.0 * two).signature()
    others = {other: made(other, model()).signature() for other in (*CASES, *OF_A_MODEL) if other not in SURROGATES}
    same = [other for other, signature in others.items() if signature == one.signature() and other != name]
    assert same == (["contrastive, drop_edge"] if name == "contrastive" else [])


@pytest.mark.parametrize("name", SURROGATES)
@pytest.mark.parametrize("labels", [False, True], ids=["alone", "beside labels"])
def test_those_of_the_registry_are_made_by_name(name: str, labels: bool, tmp_path: Path) -> None:
    """In Python and on the command line."""
    assert type(surrogate_of(name)) is SURROGATES[name]
    save_model(GCN(5, 8, 3), tmp_path / "model.safetensors")
    save_graph(tmp_path / "graph.npz", labelled())
    files = ["--model", str(tmp_path / "model.safetensors"), "--graph", str(tmp_path / "graph.npz")]
    more = [*(["--label-mask", "train_mask"] if labels else []), "--steps", "3", "--json"]
    out = ["--out", str(tmp_path / "out")]
    done = CliRunner().invoke(app, ["mend", *files, *out, "--adapter", "gtrans", "--surrogate", name, *more])
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)[0]
    assert len(report["history"]) == 3 and report["reason"] is None
    assert ("supervised" in report["history"][0]["terms"]) == labels
