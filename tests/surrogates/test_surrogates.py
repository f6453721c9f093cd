"""Sums of surrogates, functions as surrogates, and what tells losses apart."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data

from graphmend import GTrans
from graphmend.surrogates import Contrastive, Custom, Supervised, Surrogate, embed_views, surrogate_of
from graphmend.transforms import DropEdge, DropNode, Shuffle
from support.graphs import rng
from support.surrogate_cases import N, graph, model, some


def test_weighted_sums_read_as_they_are_written() -> None:
    data, gcn, mask, view = graph(), model(), some(), DropEdge(0.3)
    loss = Supervised(mask) + 0.01 * Contrastive(view)
    parts = Supervised(mask).terms(gcn, data) | Contrastive(view).terms(gcn, data, rng(2))
    terms = loss.terms(gcn, data, rng(2))
    expected = {name: value * (1 if name == "supervised" else 0.01) for name, value in parts.items()}
    assert list(terms) == ["supervised", "pull", "push"]
    torch.testing.assert_close(terms, expected)
    torch.testing.assert_close(loss(gcn, data, rng(2)), sum(expected.values()))
    scaled = (Supervised(mask) + 3 * Supervised(~mask)) * 2
    torch.testing.assert_close(scaled(gcn, data), 2 * Supervised(mask)(gcn, data) + 6 * Supervised(~mask)(gcn, data))
    with pytest.raises(TypeError):
        Contrastive() + 3  # type: ignore[operator]


def test_terms_of_the_same_name_add_up_with_draws_of_their_own() -> None:
    data, gcn = graph(), model()
    generator = rng(4)
    expected = Contrastive(DropEdge(0.2))(gcn, data, generator) + Contrastive(DropNode(0.2))(gcn, data, generator)
    both = Contrastive(DropEdge(0.2)) + Contrastive(DropNode(0.2))
    torch.testing.assert_close(both(gcn, data, rng(4)), expected)
    assert list(both.terms(gcn, data, rng(4))) == ["pull", "push"]


def entropy(model: Any, data: Data) -> Tensor:
    p = model(data.x, data.edge_index, data.edge_weight).softmax(-1)
    return -(p * p.log()).sum(-1).mean()


class Norm(Surrogate):
    """A surrogate of one's own is one method."""

    def terms(self, model: Any, data: Data, generator: torch.Generator | None = None) -> dict[str, Tensor]:
        return {"norm": model.embed(data.x, data.edge_index, data.edge_weight).square().mean()}


def test_a_function_is_a_surrogate() -> None:
    data, gcn = graph(), model()
    loss = surrogate_of(entropy)
    assert isinstance(loss, Custom) and list(loss.terms(gcn, data)) == ["entropy"] and surrogate_of(loss) is loss
    torch.testing.assert_close(loss(gcn, data), entropy(gcn, data))
    torch.testing.assert_close((loss + 2 * loss)(gcn, data), 3 * entropy(gcn, data))
    assert surrogate_of(lambda model, data: entropy(model, data).view(1))(gcn, data).shape == ()


@pytest.mark.parametrize(("surrogate", "term"), [(entropy, "entropy"), (Norm() + 0.1 * Contrastive(), "norm")])
def test_surrogates_of_ones_own_are_brought_down(surrogate: Any, term: str) -> None:
    result = GTrans(surrogate, steps=6, lr_feature=0.1)(model(), graph())
    values = [step.terms[term] for step in result.history]
    assert result.reason is None and values[-1] < values[0] and result.engine.shared_features


class Unnamed:
    """A surrogate that has no code of its own to be known by."""

    def __call__(self, model: Any, data: Data) -> Tensor:
        return entropy(model, data)


def test_trials_are_kept_under_the_signature() -> None:
    class Mine(Supervised):
        pass

    everywhere = torch.ones(N, dtype=torch.bool)
    assert Supervised(some()).signature() == Supervised(everywhere).signature() != Mine(some()).signature()
    both = Supervised(some()) + 0.5 * Contrastive(DropEdge(0.1))
    assert both.signature() == (Supervised(everywhere) + 2 * Contrastive(DropEdge(0.9))).signature()
    assert both.signature() != (Supervised(some()) + Contrastive(DropNode())).signature()
    functions = [lambda model, data: entropy(model, data) for _ in range(2)]
    assert surrogate_of(functions[0]).signature() == surrogate_of(functions[1]).signature()  # one piece of code
    assert surrogate_of(entropy).signature() != surrogate_of(functions[0]).signature()
    for loss in (both, surrogate_of(entropy), surrogate_of(Unnamed())):
        hash(loss.signature())


def test_views_go_through_a_model_one_by_one_unless_it_says_otherwise() -> None:
    data, gcn = graph(), model()
    graphs = [data, DropEdge()(data, rng()), Shuffle()(data, rng())]
    alone = [gcn.embed(view.x, view.edge_index, view.edge_weight) for view in graphs]
    assert all(map(torch.equal, embed_views(gcn, graphs), alone))

    class Together:
        def embed_views(self, graphs: Any) -> str:
            return f"{len(graphs)} at once"

    assert embed_views(Together(), graphs) == "3 at once"  # type: ignore[arg-type]
