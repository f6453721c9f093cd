"""SLAPS against its formula with dense matrices and loops, and its training."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from graphmend.surrogates import SLAPS
from support.graphs import dense, dense_norm, rng
from support.surrogate_cases import IN, N, graph, model, training_graph, weights
from support.untouched import assert_same, state_of


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
    data.edge_weight = weights(data)
    terms = surrogate.terms(model(), data, rng(5))
    assert list(terms) == ["slaps"]
    assert float(terms["slaps"]) == pytest.approx(slow(surrogate, data, ratio, denoise, 5), rel=1e-10)


def test_the_defaults_are_those_of_the_paper() -> None:
    surrogate = SLAPS.fit(training_graph(), epochs=1)
    net = surrogate.autoencoder.module
    assert net.encode.shape == (IN, 32) and net.decode.shape == (32, IN)
    assert surrogate.mask_ratio == 0.1 and surrogate.denoise


@torch.no_grad()
def test_training_makes_it_better_at_the_training_graph() -> None:
    data = training_graph()
    short, long = (
        torch.stack([surrogate(model(), data, rng(seed)) for seed in range(20)]).mean()
        for surrogate in (SLAPS.fit(data, epochs=epochs, mask_ratio=0.5) for epochs in (1, 200))
    )
    assert float(long) < 0.8 * float(short)


def test_fitting_leaves_everything_as_it_was_and_depends_on_the_seed_and_the_edges_alone() -> None:
    data, net = training_graph(), model()
    before = state_of(net, data)
    first = SLAPS.fit(data, epochs=3, seed=1).autoencoder.module
    assert_same(before, state_of(net, data))
    assert not any(parameter.requires_grad or parameter.grad is not None for parameter in first.parameters())
    torch.manual_seed(99)
    weighted = copy.copy(data)
    weighted.edge_weight = torch.rand(data.edge_index.size(1), generator=rng(), dtype=torch.float64)
    for given, seed in ((data, 1), (weighted, 1), (data, 2)):  # the graph's own weights are not used
        again = SLAPS.fit(given, epochs=3, seed=seed).autoencoder.module
        assert torch.equal(first.encode, again.encode) is (seed == 1)


@torch.inference_mode()
def test_it_can_be_fitted_inside_inference_mode() -> None:
    data = Data(x=training_graph().x.clone(), edge_index=training_graph().edge_index.clone())
    plain = SLAPS.fit(training_graph(), epochs=3).autoencoder.module
    assert torch.equal(SLAPS.fit(data, epochs=3).autoencoder.module.decode, plain.decode)
