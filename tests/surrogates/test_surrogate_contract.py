"""One contract for every surrogate of the registry, and for whatever can be made of them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from graphmend import FrozenGNN, GTrans
from graphmend.cards import card
from graphmend.lab.backbones import BACKBONES, build
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
from support.graphs import rng, undirected
from support.sample_models import basic, seeded
from support.untouched import assert_same, generator_states, state_of

N, IN, HID, OUT = 12, 5, 8, 3


def entropy(model: Any, data: Data) -> Tensor:
    p = model(data.x, data.edge_index, data.get("edge_weight")).softmax(-1)
    return -(p * p.log()).sum(-1).mean()


def smoothness(model: Any, data: Data) -> Tensor:
    """A loss that looks at the features themselves as well."""
    z = model.embed(data.x, data.edge_index, data.get("edge_weight"))
    source, target = data.edge_index
    weight = 1.0 if data.get("edge_weight") is None else data.edge_weight
    return (weight * (z[source] - z[target]).square().sum(-1)).mean() + 0.1 * data.x.square().mean()


def known() -> Tensor:
    return torch.arange(N) % 2 == 0


CASES: dict[str, Callable[[], Surrogate]] = {
    **SURROGATES,
    **{f"contrastive, {name}": lambda name=name: Contrastive(view_of(name)) for name in VIEWS},
    "entropy of the first nodes": lambda: Entropy(nodes=5),
    "reconstruction as released": lambda: Reconstruction(weighted=False),
    "slaps": lambda: SLAPS.fit(training_graph(), epochs=10),
    "slaps as released": lambda: SLAPS.fit(training_graph(), epochs=10, denoise=False),
    "sum with adgcl": lambda: 0.1 * ADGCL(steps=3, batch_size=5) + Contrastive(),
    "supervised": lambda: Supervised(known()),
    "scaled": lambda: 0.3 * Contrastive(),
    "sum": lambda: Supervised(known()) + 0.01 * Contrastive(),
    "sum of sums": lambda: 2.0 * (Contrastive() + surrogate_of(entropy)) + Supervised(~known()) * 0.5,
    "function": lambda: surrogate_of(entropy),
    "lambda": lambda: surrogate_of(lambda m, d: m.embed(d.x, d.edge_index, d.edge_weight).square().mean()),
    "function of the features": lambda: surrogate_of(smoothness),
}
OF_A_MODEL: dict[str, Callable[[nn.Module], Surrogate]] = {
    "moments": lambda net: Moments(card(net, training_graph())),
    "sum with moments": lambda net: Moments(card(net, training_graph())) + 0.1 * Contrastive(),
}
"""Those that are made for one model, and look at its first layer, which only a frozen model shows."""
surrogates = pytest.mark.parametrize("name", [*CASES, *OF_A_MODEL])


def made(name: str, net: nn.Module) -> Surrogate:
    """The surrogate, after what adapters do before they use it."""
    return (OF_A_MODEL[name](net) if name in OF_A_MODEL else CASES[name]()).prepare(net, graph())  # type: ignore[arg-type]


@contextmanager
def shown(name: str, net: nn.Module, data: Data) -> Iterator[Any]:
    """The model itself, or a frozen one; there, presences come on top of a graph's own weights."""
    if name not in OF_A_MODEL:
        yield net
        return
    plain = copy.copy(data)
    del plain.edge_weight
    with FrozenGNN(net, plain) as frozen:
        yield frozen


def graph(dtype: torch.dtype = torch.float64) -> Data:
    edge_index = undirected(N, 1, density=0.3)
    x = torch.randn(N, IN, generator=rng(), dtype=torch.float64).to(dtype)
    weight = (0.2 + 0.8 * torch.rand(edge_index.size(1), generator=rng(3), dtype=torch.float64)).to(dtype)
    return Data(x=x, edge_index=edge_index, edge_weight=weight, y=torch.arange(N) % OUT)


def training_graph() -> Data:
    """Another one, on which representations have other moments."""
    data = graph()
    return Data(x=data.x.flip(0) * 1.5 + 0.4, edge_index=data.edge_index)


def model(name: str = "gcn") -> nn.Module:
    torch.manual_seed(0)
    return build(name, IN, HID, OUT).double().eval().requires_grad_(False)


@surrogates
def test_it_is_a_pure_function_of_its_arguments(name: str) -> None:
    net, data = model(), graph()
    surrogate = made(name, net)
    with shown(name, net, data) as of:
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
    net, data = model(), graph()
    surrogate = OF_A_MODEL[name](net) if name in OF_A_MODEL else CASES[name]()
    before = state_of(net, data)
    ready = surrogate.prepare(net, data, seed=3)  # type: ignore[arg-type]
    assert_same(before, state_of(net, data))
    torch.manual_seed(99)
    again = surrogate.prepare(net, data, seed=3)  # type: ignore[arg-type]
    with shown(name, net, data) as of:
        assert torch.equal(ready(of, data, rng(1)), again(of, data, rng(1)))
        twice = ready.prepare(of, data, seed=4)
        assert torch.equal(ready(of, data, rng(1)), twice(of, data, rng(1))), "what is prepared stays so"


@surrogates
def test_it_draws_from_its_generator_alone(name: str) -> None:
    net, data = model(), graph()
    surrogate = made(name, net)
    with shown(name, net, data) as of:
        before = generator_states()
        first = surrogate(of, data, rng(1))
        assert_same(before, generator_states())
        torch.manual_seed(99)
        assert torch.equal(surrogate(of, data, rng(1)), first)


@surrogates
@pytest.mark.parametrize("frozen", [False, True], ids=["bare model", "frozen model"])
def test_gradients_equal_finite_differences(name: str, frozen: bool) -> None:
    if name in OF_A_MODEL and not frozen:
        pytest.skip(f"{name} looks into a frozen model")
    net, data = model("gpr"), graph()
    surrogate = made(name, net)

    def check(of: Any) -> bool:
        def loss(x: Tensor, weight: Tensor) -> Tensor:
            changed = copy.copy(data)
            changed.x, changed.edge_weight = x, weight
            return surrogate(of, changed, rng(1))

        x, weight = (tensor.clone().requires_grad_() for tensor in (data.x, data.edge_weight))
        return torch.autograd.gradcheck(loss, (x, weight))

    if frozen:
        plain = copy.copy(data)
        del plain.edge_weight  # presences come on top of a graph's own weights
        with FrozenGNN(net, plain) as wrapped:
            assert check(wrapped)
    else:
        assert check(net)


@surrogates
@pytest.mark.parametrize("kind", [*BACKBONES, "GCN", "GraphSAGE", "GAT", "GATv2"])
def test_it_runs_with_shared_features_and_agrees_with_the_plain_way(name: str, kind: str) -> None:
    net = model(kind) if kind in BACKBONES else seeded(lambda: basic(kind, num_layers=2), torch.float64)
    data = graph()
    del data.edge_weight
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
    net, data, surrogate = model().float(), graph(torch.float32), made(name, model())
    with shown(name, model(), graph()) as of:
        double = surrogate(of, graph(), rng(1))
    with shown(name, net, data) as of:
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
def test_those_of_the_registry_are_made_by_name(name: str) -> None:
    assert type(surrogate_of(name)) is SURROGATES[name]
    assert GTrans(name, steps=1)(model(), graph()).reason is None
