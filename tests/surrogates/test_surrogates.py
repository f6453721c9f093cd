"""Sums of surrogates, functions and names as surrogates, and views that go through a model together."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data

from graphmend import GTrans
from graphmend.errors import GraphMendError
from graphmend.lab.backbones import GCN
from graphmend.surrogates import SURROGATES, Contrastive, Custom, Supervised, Surrogate, embed_views, surrogate_of
from graphmend.transforms import DropEdge, DropNode, Shuffle
from support.graphs import rng
from support.surrogate_cases import IN, OUT, N, graph, model, some

# ---------------------------------------------------------------- sums


def test_weighted_sums_read_as_they_are_written() -> None:
    data, gcn, mask, view = graph(), model(), some(), DropEdge(0.3)
    loss = Supervised(mask) + 0.01 * Contrastive(view)
    expected = Supervised(mask)(gcn, data) + 0.01 * Contrastive(view)(gcn, data, rng(2))
    torch.testing.assert_close(loss(gcn, data, rng(2)), expected)
    terms = loss.terms(gcn, data, rng(2))
    parts = Contrastive(view).terms(gcn, data, rng(2))
    assert list(terms) == ["supervised", "pull", "push"]
    torch.testing.assert_close(terms["pull"], 0.01 * parts["pull"])
    torch.testing.assert_close(sum(terms.values()), expected)
    torch.testing.assert_close((Contrastive(view) * 0.01)(gcn, data, rng(2)), 0.01 * sum(parts.values()))
    scaled = 2 * (Supervised(mask) + 3 * Supervised(~mask))
    torch.testing.assert_close(scaled(gcn, data), 2 * Supervised(mask)(gcn, data) + 6 * Supervised(~mask)(gcn, data))


def test_terms_of_the_same_name_add_up_with_draws_of_their_own() -> None:
    data, gcn = graph(), model()
    generator = rng(4)
    expected = Contrastive(DropEdge(0.2))(gcn, data, generator) + Contrastive(DropNode(0.2))(gcn, data, generator)
    both = Contrastive(DropEdge(0.2)) + Contrastive(DropNode(0.2))
    torch.testing.assert_close(both(gcn, data, rng(4)), expected)
    assert list(both.terms(gcn, data, rng(4))) == ["pull", "push"]


def test_sums_refuse_what_is_no_surrogate() -> None:
    with pytest.raises(TypeError):
        Contrastive() + 3  # type: ignore[operator]
    for factor in (float("nan"), float("inf")):
        with pytest.raises(GraphMendError, match="factor must be a finite number"):
            factor * Contrastive()


# ---------------------------------------------------------------- functions and names


def entropy(model: Any, data: Data) -> Tensor:
    p = model(data.x, data.edge_index, data.edge_weight).softmax(-1)
    return -(p * p.log()).sum(-1).mean()


def test_a_function_is_a_surrogate() -> None:
    data, gcn = graph(), model()
    loss = surrogate_of(entropy)
    assert isinstance(loss, Custom) and list(loss.terms(gcn, data)) == ["entropy"]
    torch.testing.assert_close(loss(gcn, data), entropy(gcn, data))
    torch.testing.assert_close((loss + 2 * loss)(gcn, data), 3 * entropy(gcn, data))
    result = GTrans(entropy, steps=6, lr_feature=0.1)(gcn, data)
    losses = [step.terms["entropy"] for step in result.history]
    assert result.reason is None and losses[-1] < losses[0]
    one = surrogate_of(lambda model, data: entropy(model, data).view(1))
    assert one(gcn, data).shape == ()


@pytest.mark.parametrize("value", [3.0, None, torch.ones(N), torch.ones(2, 1)], ids=str)
def test_a_function_must_return_one_number(value: Any) -> None:
    with pytest.raises(GraphMendError, match="the surrogate bad must return a tensor with one number"):

        def bad(model: Any, data: Data) -> Any:
            return value

        surrogate_of(bad)(GCN(IN, 8, OUT), graph())


def test_names() -> None:
    assert surrogate_of("contrastive") == Contrastive() and "contrastive" in SURROGATES
    made = Contrastive(DropNode())
    assert surrogate_of(made) is made
    with pytest.raises(GraphMendError) as error:
        surrogate_of("constrastive")
    assert "'constrastive'" in str(error.value) and all(name in str(error.value) for name in SURROGATES)
    for name, remedy in {"moments": "Moments(graphmend.card(", "supervised": "Supervised(mask)"}.items():
        with pytest.raises(GraphMendError) as error:
            surrogate_of(name)
        assert f"the surrogate {name!r} cannot be made by name: it needs" in str(error.value)
        assert remedy in str(error.value)
    with pytest.raises(GraphMendError, match=r"a surrogate is .* a function .*got 3"):
        surrogate_of(3)  # type: ignore[arg-type]


# ---------------------------------------------------------------- what tells losses apart


def test_trials_are_kept_under_the_signature() -> None:
    class Mine(Supervised):
        pass

    everywhere = torch.ones(N, dtype=torch.bool)
    assert Supervised(some()).signature() == Supervised(everywhere).signature() != Mine(some()).signature()
    both = Supervised(some()) + 0.5 * Contrastive()
    assert both.signature() == (Supervised(everywhere) + 2 * Contrastive()).signature()
    assert both.signature() != (Supervised(some()) + Contrastive(DropNode())).signature()
    functions = [lambda model, data: entropy(model, data) for _ in range(2)]
    assert surrogate_of(functions[0]).signature() == surrogate_of(functions[1]).signature()  # one piece of code
    assert surrogate_of(entropy).signature() != surrogate_of(functions[0]).signature()
    for loss in (both, surrogate_of(entropy), surrogate_of(Unnamed())):
        hash(loss.signature())


class Unnamed:
    """A surrogate that has no code of its own to be known by."""

    def __call__(self, model: Any, data: Data) -> Tensor:
        return entropy(model, data)


# ---------------------------------------------------------------- several views


def test_views_go_through_a_model_one_by_one_unless_it_says_otherwise() -> None:
    data, gcn = graph(), model()
    graphs = [data, DropEdge()(data, rng()), Shuffle()(data, rng())]
    alone = [gcn.embed(view.x, view.edge_index, view.edge_weight) for view in graphs]
    assert all(map(torch.equal, embed_views(gcn, graphs), alone))

    class Together:
        def embed_views(self, graphs: Any) -> str:
            return f"{len(graphs)} at once"

    assert embed_views(Together(), graphs) == "3 at once"  # type: ignore[arg-type]


def test_a_surrogate_of_ones_own_is_one_method() -> None:
    class Norm(Surrogate):
        def terms(self, model: Any, data: Data, generator: torch.Generator | None = None) -> dict[str, Tensor]:
            return {"norm": model.embed(data.x, data.edge_index, data.edge_weight).square().mean()}

    data, gcn = graph(), model()
    result = GTrans(Norm() + 0.1 * Contrastive(), steps=6, lr_feature=0.1)(gcn, data)
    norms = [step.terms["norm"] for step in result.history]
    assert result.reason is None and norms[-1] < norms[0] and result.engine.shared_features


@pytest.mark.parametrize("factor", ["x", None, True, 1j, torch.ones(2), np.ones(2)], ids=repr)
def test_a_factor_that_is_no_number_is_named(factor: Any) -> None:
    with pytest.raises(GraphMendError, match="a surrogate's factor must be a finite number"):
        Contrastive().__mul__(factor)
