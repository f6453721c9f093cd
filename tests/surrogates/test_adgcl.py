"""AD-GCL: the concrete relaxation, the edge scores, the game of view learner and head, and the whole loss, by hand."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
import torch
from torch import Tensor

import graphmend.surrogates.view_learner as module
from graphmend import FrozenGNN, GTrans
from graphmend.engine.adjacency import Adjacency
from graphmend.surrogates import ADGCL, Contrastive
from graphmend.surrogates.view_learner import ViewLearner
from support.graphs import directed, rng
from support.surrogate_cases import N, graph, model, most_kept_numbers, weights


def fitted(net: torch.nn.Module, **options: float) -> ADGCL:
    return ADGCL(**{"steps": 5, **options}).prepare(net, graph())  # type: ignore[arg-type]


def slow_scores(learner: ViewLearner, z: np.ndarray, edge_index: Tensor) -> list[float]:
    """Edge by edge: a perceptron on the concatenated embeddings of both ends."""
    first = torch.cat([learner.source.weight, learner.target.weight], dim=1).detach().numpy()
    shift, last = learner.target.bias.detach().numpy(), learner.last.weight.detach().numpy()[0]
    out = []
    for i, j in edge_index.t().tolist():
        hidden = np.maximum(first @ np.concatenate([z[i], z[j]]) + shift, 0)
        out.append(float(last @ hidden) + learner.last.bias.item())
    return out


def slow_info_nce(u: np.ndarray, v: np.ndarray, temperature: float) -> float:
    nodes, total = len(u), 0.0
    cosine = [[float(a @ b) / math.sqrt((a @ a) * (b @ b)) for b in v] for a in u]
    for i in range(nodes):
        forth = sum(math.exp(cosine[i][j] / temperature) for j in range(nodes) if j != i)
        back = sum(math.exp(cosine[j][i] / temperature) for j in range(nodes) if j != i)
        positive = math.exp(cosine[i][i] / temperature)
        total -= 0.5 * (math.log(positive / forth) + math.log(positive / back))
    return total / nodes


@pytest.fixture(params=["one block", "many blocks"])
def blocks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "many blocks":
        monkeypatch.setattr(module, "_NUMBERS", 100)


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_scores_are_those_of_a_perceptron_on_both_ends(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    learner, edge_index = ViewLearner(6, 9).double(), directed(N, 2, loops=True)
    z = torch.randn(N, 6, generator=rng(), dtype=torch.float64)
    expected = slow_scores(learner, z.numpy(), edge_index)
    scores = learner.to(dtype)(z.to(dtype), edge_index)
    assert scores.tolist() == pytest.approx(expected, rel=1e-4 if dtype == torch.float32 else 1e-12, abs=1e-6)


@pytest.mark.usefixtures("blocks")
def test_gradients_of_scores_equal_finite_differences() -> None:
    torch.manual_seed(0)
    learner, edge_index = ViewLearner(4, 5).double(), directed(N, 2, loops=True)
    names = list(dict(learner.named_parameters()))

    def scores(z: Tensor, *parameters: Tensor) -> Tensor:
        return torch.func.functional_call(learner, dict(zip(names, parameters, strict=True)), (z, edge_index))

    z = torch.randn(N, 4, generator=rng(), dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(scores, (z, *learner.parameters()))


@torch.no_grad()
def test_draws_are_the_concrete_relaxation_with_clipped_noise() -> None:
    learner, edge_index = ViewLearner(4, 5).double(), directed(N, 2)
    z = torch.randn(N, 4, generator=rng(), dtype=torch.float64)
    noise = [1e-4 + (1 - 2e-4) * r for r in torch.rand(edge_index.size(1), generator=rng(5)).tolist()]
    gates = [math.log(r) - math.log(1 - r) + s for r, s in zip(noise, learner(z, edge_index).tolist(), strict=True)]
    drawn = learner.draw(z, edge_index, rng(5)).tolist()
    assert drawn == pytest.approx([1 / (1 + math.exp(-gate)) for gate in gates], abs=1e-7)


@torch.no_grad()
def test_the_loss_is_the_formula_for_the_same_draws() -> None:
    data, net = graph(), model()
    data.edge_weight = weights(data)
    surrogate = fitted(net)
    assert surrogate.networks is not None
    networks = surrogate.networks.module
    z = net.embed(data.x, data.edge_index, data.edge_weight)
    noise = 1e-4 + (1 - 2e-4) * torch.rand(data.edge_index.size(1), generator=rng(5)).double()
    gate = noise.logit() + torch.tensor(slow_scores(networks.learner, z.numpy(), data.edge_index))
    view = net.embed(data.x, data.edge_index, data.edge_weight * gate.sigmoid())
    expected = slow_info_nce(networks.head(z).numpy(), networks.head(view).numpy(), 0.2)
    terms = surrogate.terms(net, data, rng(5))
    assert list(terms) == ["info_nce"] and float(terms["info_nce"]) == pytest.approx(expected, abs=1e-6)


@torch.no_grad()
def test_the_view_learner_goes_up_and_the_price_of_dropping_keeps_edges() -> None:
    data, net = graph(), model()
    z = net.embed(data.x, data.edge_index)

    def kept(surrogate: ADGCL) -> float:
        assert surrogate.networks is not None
        learner = surrogate.networks.module.learner
        return float(torch.stack([learner.draw(z, data.edge_index, rng(seed)).mean() for seed in range(10)]).mean())

    free, dear = (fitted(net, steps=60, lr=0.01, regularisation=price) for price in (0.0, 50.0))
    before = kept(fitted(net, steps=0))
    assert kept(free) < before < kept(dear)
    assert kept(dear) > 0.9


@torch.no_grad()
def test_the_head_goes_down() -> None:
    """With a price so high that the view learner has nothing else in mind, the loss falls."""
    net, data = model(), graph()
    first, last = (fitted(net, steps=steps, lr=0.01, regularisation=1e6) for steps in (0, 60))
    assert float(last(net, data, rng(1))) < float(first(net, data, rng(1)))
    assert first.networks is not None and last.networks is not None
    learner = last.networks.module.learner
    swapped = copy.deepcopy(first)
    assert swapped.networks is not None
    swapped.networks.module.learner.load_state_dict(learner.state_dict())
    assert float(last(net, data, rng(1))) < float(swapped(net, data, rng(1))), "with the same view learner, too"


def test_adapters_prepare_it_by_themselves() -> None:
    net, data = model(), graph()
    for surrogate in ("adgcl", ADGCL(steps=3), Contrastive() + 0.1 * ADGCL(steps=3, batch_size=5)):
        result = GTrans(surrogate, steps=5, budget=2)(net, data)
        assert result.reason is None and result.engine.shared_features and "info_nce" in result.history[0].terms
    unprepared, seeded = ADGCL(steps=3), GTrans(ADGCL(steps=3), steps=5, budget=2)
    assert unprepared.networks is None
    one, two = (seeded(net, data, seed=4).history[0].loss for _ in range(2))
    with FrozenGNN(net, data, seed=4) as frozen:
        ready = unprepared.prepare(frozen, data, seed=4)
    assert one == two == GTrans(ready, steps=5, budget=2)(net, data, seed=4).history[0].loss


def test_no_pass_keeps_as_many_numbers_as_edges_times_hidden_units(monkeypatch: pytest.MonkeyPatch) -> None:
    """What autograd keeps of the scores: the projections of the nodes, not of the edges."""
    monkeypatch.setattr(module, "_NUMBERS", 100)
    nodes, hidden = 30, 40
    edge_index = directed(nodes, 1, density=0.9, isolated=0)
    learner, z = ViewLearner(4, hidden), torch.randn(nodes, 4, requires_grad=True)
    Adjacency.of(edge_index, nodes)
    assert most_kept_numbers(lambda: learner(z, edge_index)) < edge_index.size(1) * hidden / 5
