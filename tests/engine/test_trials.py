"""Trials find out which losses give the same numbers with shared features, and leave no trace."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data

from graphmend.engine.shared_features import as_tensor
from graphmend.engine.trials import why_features_are_not_shared
from support.graphs import rng
from support.sparse_patterns import devices
from support.tiny import (
    Agreement,
    ClampsFirst,
    OfEmbedding,
    ScalesAfterwards,
    Smoothness,
    SmoothnessIfAny,
    Tiny,
    tiny_graph,
)


def generator_states(device: str) -> list[Tensor]:
    return [torch.get_rng_state()] + ([torch.cuda.get_rng_state()] if device == "cuda" else [])


def why_not(surrogate: Any, *, weighted: bool = True, device: str = "cpu") -> str | None:
    data = tiny_graph(device)
    if weighted:
        data.edge_weight = torch.rand(data.num_edges, generator=rng(1)).to(device)
    before, model, states = data.clone(), Tiny().to(device), generator_states(device)
    reason = why_features_are_not_shared(model, surrogate, data, 3)
    assert all(map(torch.equal, generator_states(device), states))
    assert torch.equal(data.x, before.x) and not data.x.requires_grad  # trials work on copies
    assert not weighted or (torch.equal(data.edge_weight, before.edge_weight) and not data.edge_weight.requires_grad)
    return reason


@devices
@pytest.mark.parametrize("weighted", [True, False])
def test_a_loss_nobody_has_seen_can_share(weighted: bool, device: str) -> None:
    assert why_not(Agreement(), weighted=weighted, device=device) is None


def of_ordinary_features(data: Data) -> bool:
    return as_tensor(data.x) is data.x


GOOD = {
    "the features themselves": lambda z, data: z.square().mean() + data.x.square().mean(),
    "random numbers of torch": lambda z, data: (z * torch.rand_like(z)).sum(),
    "a tensor of one number": lambda z, data: z.square().mean().view(1, 1),
    "no gradient": lambda z, data: z.detach().square().mean(),
    "a number": lambda z, data: 3.0,
    "edges alone": lambda z, data: data.edge_weight.square().sum(),
}


@pytest.mark.parametrize("function", GOOD.values(), ids=GOOD)
def test_what_can_be_shared(function: Any) -> None:
    assert why_not(OfEmbedding(function)) is None


BAD = {
    "the loss": (lambda z, data: z.square().mean() * (1.0 if of_ordinary_features(data) else 1.01), "the loss differs"),
    "the features": (
        lambda z, data: (z if of_ordinary_features(data) else 0.9 * z + 0.1 * z.detach()).square().mean(),
        "the gradient of the features differs",
    ),
    "the edges": (
        lambda z, data: z.square().mean() + (0.0 if of_ordinary_features(data) else 1.0) * _nothing(data.edge_weight),
        "the gradient of the edges differs",
    ),
    "an error": (lambda z, data: z.sum() if of_ordinary_features(data) else 1 / 0, "ZeroDivisionError"),
}


def _nothing(weight: Tensor) -> Tensor:
    """0 with a gradient."""
    return (weight - weight.detach()).sum()


@pytest.mark.parametrize(("function", "reason"), BAD.values(), ids=BAD)
def test_what_differs_is_named(function: Any, reason: str) -> None:
    message = why_not(OfEmbedding(function))
    assert message is not None and reason in message


@pytest.mark.parametrize("surrogate", [Smoothness(), SmoothnessIfAny()], ids=lambda s: type(s).__name__)
def test_a_loss_that_differentiates_by_the_features_itself_cannot_share(surrogate: Any) -> None:
    assert why_not(surrogate) is not None


@pytest.mark.parametrize("surrogate", [ClampsFirst(), ScalesAfterwards()], ids=lambda s: type(s).__name__)
def test_a_loss_that_writes_into_the_features_cannot_share(surrogate: Any) -> None:
    """Even where one loss by itself is right: products would not follow what is written later."""
    assert why_not(surrogate) == "the loss writes into the features"


def test_a_loss_that_does_not_work_at_all_says_so_itself() -> None:
    with pytest.raises(ZeroDivisionError):
        why_not(OfEmbedding(lambda z, data: 1 / 0))


@devices
def test_both_ways_have_the_same_random_numbers(device: str) -> None:
    seen: list[list[float]] = []

    class Draws(Agreement):
        def terms(self, model: Tiny, data: Data, generator: torch.Generator | None = None) -> dict[str, Tensor]:
            own = torch.rand(2, device=device, generator=generator)
            seen.append([*torch.rand(2, device=device).tolist(), *torch.rand(2).tolist(), *own.tolist()])
            return super().terms(model, data, generator)

    assert why_not(Draws(), device=device) is None  # it compares the states of the caller's generators, too
    assert len(seen) == 2 and seen[0] == seen[1]


def test_gradients_are_computed_whatever_the_caller_has_switched_off() -> None:
    with torch.no_grad():
        assert why_not(OfEmbedding(lambda z, data: z.square().mean() if z.requires_grad else 1 / 0)) is None
