"""Tuning: every point is scored, the best wins, failures are kept, and test labels do not exist."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from graphmend import GraphMendError, GTrans, Identity
from graphmend.lab.backbones import GCN
from graphmend.lab.bench import ByAdapting, ByTraining, grid_points, tune
from graphmend.lab.data import Splits, embedded, masked
from graphmend.lab.training import ERM
from graphmend.results.scores import score


def valley(lr: float, steps: int) -> float:
    return -abs(lr - 0.1) - abs(steps - 5)


@pytest.fixture(scope="module")
def wine() -> Splits:
    return embedded("wine")


@pytest.fixture(scope="module")
def model(wine: Splits) -> nn.Module:
    torch.manual_seed(0)
    return ERM(epochs=30)(GCN(13, 8, 3), wine)


@pytest.mark.parametrize("jobs", [1, 2])
def test_the_best_point_wins_whoever_computes_it(jobs: int) -> None:
    grid = {"lr": [1.0, 0.1], "steps": [10, 5, 1]}
    tuned = tune(valley, grid, jobs=jobs)
    assert tuned.settings == {"lr": 0.1, "steps": 5} and tuned.score == 0
    assert [trial.settings for trial in tuned.trials] == grid_points(grid) and len(tuned.trials) == 6


def test_among_equals_the_first_wins() -> None:
    assert tune(lambda lr: 1.0, {"lr": [3, 2, 1]}).settings == {"lr": 3}


def test_a_point_that_fails_does_not_end_the_search() -> None:
    def picky(lr: float) -> float:
        if lr == 1:
            raise MemoryError("too large\nreally")
        return float("nan") if lr == 2 else -lr

    tuned = tune(picky, {"lr": [1, 2, 3, 4]})
    assert tuned.settings == {"lr": 3}
    assert [trial.error for trial in tuned.trials[:2]] == ["MemoryError: too large", "the score is not a number"]
    with pytest.raises(GraphMendError, match="none of 1 settings could be scored; the first said: MemoryError: too"):
        tune(picky, {"lr": [1]})


def test_a_grid_needs_values() -> None:
    with pytest.raises(GraphMendError, match="no values for lr, steps; give at least one"):
        tune(valley, {"lr": [], "steps": []})


def test_an_adapter_is_scored_on_the_nodes_of_the_mask(wine: Splits, model: nn.Module) -> None:
    data = wine.val[0]
    evaluate = ByAdapting(GTrans, model, [data], fixed={"edge_steps": 0}, call={"seed": 3})
    expected = GTrans(edge_steps=0, steps=2, lr_feature=0.1)(model, data, seed=3).logits
    assert evaluate(steps=2, lr_feature=0.1) == score("accuracy", expected, data.y, data.mask)
    tuned = tune(evaluate, {"steps": [1, 2]}, jobs=2)
    assert tuned.score == max(evaluate(steps=steps) for steps in (1, 2))


def test_labels_outside_the_mask_do_not_count(wine: Splits, model: nn.Module) -> None:
    data = wine.val[0].clone()
    before = ByAdapting(Identity, model, [data])()
    data.y[~data.mask] = 0
    assert ByAdapting(Identity, model, [data])() == before
    few = masked(data, torch.arange(data.num_nodes) < 20)
    assert ByAdapting(Identity, model, [few])() != before


def test_a_trainer_sees_no_test_label(wine: Splits) -> None:
    seen: list[torch.Tensor] = []

    class Spy(ERM):
        def __call__(self, model: Any, splits: Splits, progress: bool = False) -> Any:
            seen.extend(data.y for data in splits.test)
            return super().__call__(model, splits, progress)

    state = torch.get_rng_state()
    tuned = tune(ByTraining(Spy, lambda: GCN(13, 8, 3), wine), {"epochs": [1, 30]})
    assert tuned.settings == {"epochs": 30} and all(bool((y == -1).all()) for y in seen)
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(0)
    trained = ERM(epochs=30)(GCN(13, 8, 3), wine)
    data = wine.val[0]
    assert tuned.score == score("accuracy", trained(data.x, data.edge_index), data.y, data.mask)
