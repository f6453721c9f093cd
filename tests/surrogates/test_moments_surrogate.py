"""The moments surrogate against a slow reference, its gradients, and what it says when it cannot work."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from graphmend import FrozenGNN, GraphMendError, GTrans
from graphmend.cards import SourceCard, card
from graphmend.lab.backbones import GCN
from graphmend.surrogates import Moments
from support.graphs import dense, dense_norm
from support.surrogate_cases import IN, OUT, graph, model


def shifted(data: Data) -> Data:
    out = copy.copy(data)
    out.x = 1.3 * data.x + 0.5
    return out


def columns(net: nn.Module, data: Data) -> tuple[np.ndarray, np.ndarray]:
    """The first layer and Z of a two-layer GCN, with dense matrices."""
    hop = dense_norm(dense(data.edge_index, data.x.size(0)))
    h = hop @ data.x @ net.convs[0].weight + net.convs[0].bias
    return h.numpy(), h.relu().numpy()


def slow_squared_distance(now: np.ndarray, then: np.ndarray) -> float:
    """One column after another, one row after another."""
    total, width = 0.0, then.shape[1]
    deviations = [float(np.sqrt(np.mean((then[:, k] - np.mean(then[:, k])) ** 2))) for k in range(width)]
    floor = 0.05 * sum(deviations) / width
    for k in range(width):
        unit = max(deviations[k], floor)
        mean = sum(now[i, k] for i in range(len(now))) / len(now)
        deviation = (sum((now[i, k] - mean) ** 2 for i in range(len(now))) / len(now)) ** 0.5
        total += ((mean - np.mean(then[:, k])) / unit) ** 2 + ((deviation - deviations[k]) / unit) ** 2
    return total / width


def test_the_terms_equal_a_slow_reference() -> None:
    net, data = model().requires_grad_(False), graph()
    test = shifted(data)
    with FrozenGNN(net, test) as frozen:
        terms = Moments(card(net, data)).terms(frozen, test)
    (h, z), (h0, z0) = columns(net, test), columns(net, data)
    assert list(terms) == ["first", "embedding"]
    assert float(terms["first"]) == pytest.approx(slow_squared_distance(h, h0), rel=1e-10)
    assert float(terms["embedding"]) == pytest.approx(slow_squared_distance(z, z0), rel=1e-10)


def test_on_the_training_graph_it_is_zero_and_flat() -> None:
    net, data = model().requires_grad_(False), graph()
    x = data.x.clone().requires_grad_()
    changed = copy.copy(data)
    changed.x = x
    with FrozenGNN(net, data) as frozen:
        loss = Moments(card(net, data))(frozen, changed)
        (slope,) = torch.autograd.grad(loss, x)
    assert float(loss.detach()) < 1e-25 and float(slope.abs().max()) < 1e-12


@pytest.mark.parametrize("name", ["gcn", "sage"])
def test_gradients_equal_finite_differences_also_where_the_first_layer_sees_edges(name: str) -> None:
    net, data = model(name).requires_grad_(False), graph()
    surrogate, test = Moments(card(net, data)), shifted(data)
    with FrozenGNN(net, test) as frozen:

        def loss(x: Tensor, weight: Tensor) -> Tensor:
            return surrogate(frozen, Data(x=x, edge_index=test.edge_index, edge_weight=weight))

        weight = torch.linspace(0.2, 1.0, test.edge_index.size(1), dtype=torch.float64)
        assert torch.autograd.gradcheck(loss, (test.x.clone().requires_grad_(), weight.requires_grad_()))


def test_units_that_never_fire_have_a_gradient() -> None:
    """A ReLU that is off at every node has no spread, and the root of 0 no slope."""
    net, data = model().requires_grad_(False), graph()
    net.convs[0].bias[:3] = -100.0
    x = shifted(data).x.requires_grad_()
    with FrozenGNN(net, data) as frozen:
        terms = Moments(card(net, data)).terms(frozen, Data(x=x, edge_index=data.edge_index))
    for value in terms.values():
        (slope,) = torch.autograd.grad(value, x, retain_graph=True)
        assert bool(value.isfinite()) and bool(slope.isfinite().all()) and float(slope.abs().max()) > 0


@pytest.mark.parametrize("edge_steps", [0, 1])
def test_steps_lead_back_to_the_moments_of_the_card(edge_steps: int) -> None:
    torch.manual_seed(0)
    net, data = GCN(IN, 8, OUT).double(), graph()
    made, test = card(net, data), shifted(data)
    adapter = GTrans(Moments(made), steps=60, lr_feature=0.05, edge_steps=edge_steps, budget=2)
    result = adapter(net, test)
    assert result.reason is None and result.engine.shared_features
    assert result.history[-1].loss < 0.02 * result.history[0].loss
    assert set(result.history[0].terms) == {"first", "embedding"}


def test_the_card_may_be_of_another_type_than_the_graph() -> None:
    net, data = model().requires_grad_(False), graph()
    surrogate = Moments(card(net, data))
    test = shifted(data)
    with FrozenGNN(net, test) as frozen:
        double = surrogate(frozen, test)
    single = copy.copy(test)
    single.x = test.x.float()
    with FrozenGNN(copy.deepcopy(net).float(), single) as frozen:
        loss = surrogate(frozen, single)
    assert loss.dtype == torch.float32 and float(loss) == pytest.approx(float(double), rel=1e-4)


def test_what_it_cannot_work_with_is_named() -> None:
    net, data = model(), graph()
    with pytest.raises(GraphMendError, match=r"needs a source card \(got str\); make one with graphmend.card"):
        Moments("card.safetensors")  # type: ignore[arg-type]
    with pytest.raises(GraphMendError, match=r"first layer, which GCN does not show; wrap the model"):
        Moments(card(net, data))(net, data)  # type: ignore[arg-type]
    torch.manual_seed(0)
    other: SourceCard = card(GCN(IN, 5, OUT).double(), data)
    with (
        FrozenGNN(net, data) as frozen,
        pytest.raises(GraphMendError, match="the first layer has 8 columns, but 5 in the source card"),
    ):
        Moments(other)(frozen, data)
