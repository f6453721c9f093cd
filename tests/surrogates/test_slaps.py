"""SLAPS against its formula with dense matrices and loops, its training, and what it asks for."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data

from graphmend import GraphMendError, GTrans
from graphmend.surrogates import SLAPS, Contrastive, surrogate_of
from support.graphs import dense, dense_norm, rng
from support.surrogate_cases import IN, N, graph, model
from support.untouched import assert_same, state_of


def training_graph() -> Data:
    data = graph()
    return Data(x=1.5 * data.x.flip(0) + 0.4, edge_index=data.edge_index)


def slow(surrogate: SLAPS, data: Data, ratio: float, denoise: bool, seed: int) -> float:
    """Entry by entry, with the draws of the generator."""
    net, generator = surrogate.autoencoder.module, rng(seed)
    mask = torch.rand(N, IN, generator=generator) < ratio
    noise = torch.randn(N, IN, generator=generator).double() if denoise else torch.zeros(N, IN)
    x = data.x.clone()
    for i in range(N):
        for k in range(IN):
            if mask[i, k]:
                x[i, k] += noise[i, k]
    hop = dense_norm(dense(data.edge_index, N, data.edge_weight))
    hidden = (hop @ x @ net.encode + net.encode_bias).clamp(min=0)
    restored = hop @ hidden @ net.decode + net.decode_bias
    errors = [float(restored[i, k] - data.x[i, k]) ** 2 for i in range(N) for k in range(IN) if mask[i, k]]
    return float(np.mean(errors)) if errors else 0.0


@torch.no_grad()
@pytest.mark.parametrize("denoise", [True, False])
@pytest.mark.parametrize("ratio", [0.1, 0.6, 1.0])
def test_it_is_the_formula_for_the_same_draws(ratio: float, denoise: bool) -> None:
    surrogate = SLAPS.fit(training_graph(), epochs=5, mask_ratio=ratio, denoise=denoise)
    data = graph()
    data.edge_weight = torch.rand(data.edge_index.size(1), generator=rng(3), dtype=torch.float64)
    terms = surrogate.terms(model(), data, rng(5))
    assert list(terms) == ["slaps"]
    assert float(terms["slaps"]) == pytest.approx(slow(surrogate, data, ratio, denoise, 5), rel=1e-10)


def test_the_defaults_are_those_of_the_paper() -> None:
    surrogate = SLAPS.fit(training_graph(), epochs=1)
    net = surrogate.autoencoder.module
    assert net.encode.shape == (IN, 32) and net.decode.shape == (32, IN)
    assert surrogate.mask_ratio == 0.1 and surrogate.denoise


@pytest.mark.parametrize("denoise", [True, False])
def test_gradients_equal_finite_differences(denoise: bool) -> None:
    surrogate = SLAPS.fit(training_graph(), epochs=5, mask_ratio=0.5, denoise=denoise)
    data, net = graph(), model()

    def loss(x: Tensor, weight: Tensor) -> Tensor:
        return surrogate(net, Data(x=x, edge_index=data.edge_index, edge_weight=weight), rng(1))

    weight = torch.rand(data.edge_index.size(1), generator=rng(3), dtype=torch.float64) + 0.2
    assert torch.autograd.gradcheck(loss, (data.x.requires_grad_(), weight.requires_grad_()))


@torch.no_grad()
def test_training_makes_it_better_at_the_training_graph() -> None:
    data = training_graph()

    def mean_loss(surrogate: SLAPS) -> float:
        return float(torch.stack([surrogate(model(), data, rng(seed)) for seed in range(20)]).mean())

    options = {"mask_ratio": 0.5}
    short, long = (SLAPS.fit(data, epochs=epochs, **options) for epochs in (1, 200))  # type: ignore[arg-type]
    assert mean_loss(long) < 0.8 * mean_loss(short)


def test_fitting_leaves_everything_as_it_was_and_depends_on_the_seed_alone() -> None:
    data, net = training_graph(), model()
    before = state_of(net, data)
    first = SLAPS.fit(data, epochs=3, seed=1).autoencoder.module
    assert_same(before, state_of(net, data))
    torch.manual_seed(99)
    again, other = (SLAPS.fit(data, epochs=3, seed=seed).autoencoder.module for seed in (1, 2))
    assert torch.equal(first.encode, again.encode) and not torch.equal(first.encode, other.encode)
    assert not any(parameter.requires_grad or parameter.grad is not None for parameter in first.parameters())


@torch.inference_mode()
def test_it_can_be_fitted_inside_inference_mode() -> None:
    data = Data(x=training_graph().x.clone(), edge_index=training_graph().edge_index.clone())
    plain = SLAPS.fit(training_graph(), epochs=3).autoencoder.module
    assert torch.equal(SLAPS.fit(data, epochs=3).autoencoder.module.decode, plain.decode)


def test_the_graphs_own_weights_are_not_used_for_training() -> None:
    data = training_graph()
    weighted = copy.copy(data)
    weighted.edge_weight = torch.rand(data.edge_index.size(1), generator=rng(), dtype=torch.float64)
    one, two = (SLAPS.fit(each, epochs=3).autoencoder.module for each in (data, weighted))
    assert torch.equal(one.encode, two.encode)


def test_steps_lead_to_features_that_are_restored_better() -> None:
    surrogate = SLAPS.fit(training_graph(), mask_ratio=0.5)
    result = GTrans(surrogate, steps=40, edge_steps=0, lr_feature=0.1)(model(), graph())
    assert result.reason is None and result.engine.shared_features
    assert result.history[-1].loss < 0.7 * result.history[0].loss
    both = GTrans(surrogate + Contrastive(), steps=5, budget=2)(model(), graph())
    assert both.reason is None and set(both.history[0].terms) == {"slaps", "pull", "push"}


def test_without_a_training_graph_it_says_what_it_needs() -> None:
    for by_name in (lambda: surrogate_of("slaps"), lambda: GTrans("slaps")):
        with pytest.raises(GraphMendError, match=r"needs an auto-encoder .* training graph; pass SLAPS.fit\(train_da"):
            by_name()
    with pytest.raises(GraphMendError, match=r"needs an auto-encoder .*got Data.; use SLAPS.fit"):
        SLAPS(training_graph())  # type: ignore[arg-type]


def test_what_it_cannot_work_with_is_named() -> None:
    with pytest.raises(GraphMendError, match=r"4 feature columns but the graph of SLAPS\.fit had 3"):
        SLAPS.fit(Data(x=torch.rand(5, 3), edge_index=torch.tensor([[0, 1], [1, 0]])))(model(), graph())
    for options, message in {
        ("mask_ratio", 0.0): r"mask_ratio must be a number in \(0, 1\] \(got 0.0\)",
        ("epochs", 0): r"epochs must be a whole number of at least 1 \(got 0\)",
        ("lr", float("nan")): r"lr must be a number in .0, 1000. \(got nan\)",
        ("hidden_channels", 0): r"hidden_channels must be a whole number of at least 1 \(got 0\)",
    }.items():
        with pytest.raises(GraphMendError, match=message):
            SLAPS.fit(training_graph(), **dict([options]))
    with pytest.raises(GraphMendError, match="no feature tensor x"):
        SLAPS.fit(Data(edge_index=torch.tensor([[0], [1]])))
