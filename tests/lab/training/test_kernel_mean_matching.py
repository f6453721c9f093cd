"""Weights by kernel mean matching, compared with a general solver, and their use in SR-GNN."""

from __future__ import annotations

import math
from itertools import combinations
from statistics import median_low

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize
from torch import Tensor
from torch_geometric.data import Data

from graphmend.lab.backbones import GCN
from graphmend.lab.data import Splits
from graphmend.lab.training import SRGNN, mean_risk, risk
from graphmend.lab.training.sr_gnn import instance_weights, matched_weights
from support.graphs import dense, dense_norm, rng, undirected

pytestmark = pytest.mark.usefixtures("one_thread")


def rows(number: int, seed: int, shift: float = 0.0, columns: int = 2) -> Tensor:
    return torch.randn(number, columns, generator=rng(seed), dtype=torch.float64) + shift


def slow_problem(x: list[list[float]], t: list[list[float]]) -> tuple[np.ndarray, np.ndarray]:
    """The kernel matrix and the vector, number by number."""
    width = median_low([math.dist(a, b) for a, b in combinations([*x, *t], 2)])

    def k(a: list[float], b: list[float]) -> float:
        return math.exp(-(math.dist(a, b) ** 2) / (2 * width**2))

    kernel = np.array([[k(a, b) for b in x] for a in x])
    return kernel, np.array([len(x) / len(t) * math.fsum(k(a, b) for b in t) for a in x])


def slow_weights(kernel: np.ndarray, target: np.ndarray, lower: float, upper: float) -> np.ndarray:
    found = minimize(
        lambda b: 0.5 * b @ kernel @ b - target @ b,
        np.ones(len(target)),
        jac=lambda b: kernel @ b - target,
        method="SLSQP",
        bounds=[(lower, upper)] * len(target),
        constraints={"type": "eq", "fun": lambda b: b.mean() - 1, "jac": lambda b: np.full(len(b), 1 / len(b))},
        options={"ftol": 1e-15, "maxiter": 1000},
    )
    return found.x


def value(kernel: np.ndarray, target: np.ndarray, weights: np.ndarray) -> float:
    return float(0.5 * weights @ kernel @ weights - target @ weights)


@pytest.mark.parametrize(("lower", "upper"), [(0.2, 10.0), (0.0, 1.5), (0.9, 1.1), (1.0, 1.0)])
@pytest.mark.parametrize("shift", [0.0, 1.0, 4.0])
def test_the_weights_are_those_of_a_general_solver(shift: float, lower: float, upper: float) -> None:
    x, t = rows(9, 1), rows(14, 2, shift)
    kernel, target = slow_problem(x.tolist(), t.tolist())
    actual = instance_weights(x, t, lower=lower, upper=upper).numpy()
    expected = slow_weights(kernel, target, lower, upper)
    assert actual.dtype == np.float64 and actual.mean() == pytest.approx(1.0, abs=1e-12)
    assert lower <= actual.min() and actual.max() <= upper
    assert value(kernel, target, actual) <= value(kernel, target, expected) + 1e-9
    assert np.abs(actual - expected).max() < 1e-3


@given(st.integers(0, 999), st.integers(1, 7))
def test_no_other_weights_within_the_bounds_are_better(seed: int, number: int) -> None:
    factor = torch.rand(number, number, generator=rng(seed), dtype=torch.float64)
    kernel, target = factor @ factor.t(), 3 * torch.rand(number, generator=rng(seed + 1), dtype=torch.float64)
    weights = matched_weights(kernel, target, 0.2, 5.0)
    slope = kernel @ weights - target
    can_fall, can_grow = weights > 0.2 + 1e-7, weights < 5.0 - 1e-7
    if can_fall.any() and can_grow.any():  # moving weight from one to another does not pay
        assert slope[can_fall].max() <= slope[can_grow].min() + 1e-4


def test_the_weighted_mean_comes_nearer_to_the_other_sample() -> None:
    x, t = rows(200, 1, columns=3), rows(300, 2, 0.7, columns=3)
    weights = instance_weights(x, t)
    plain, weighted = x.mean(0), (weights[:, None] * x).mean(0)
    assert (weighted - t.mean(0)).norm() < 0.5 * (plain - t.mean(0)).norm()
    same = instance_weights(x, x)
    assert (same - 1).abs().max() < 1e-3


def test_rows_that_are_all_the_same_get_the_same_weight() -> None:
    weights = instance_weights(torch.ones(5, 3), torch.ones(2, 3))
    assert weights.dtype == torch.float32 and torch.equal(weights, torch.ones(5))
    assert instance_weights(torch.ones(1, 1), torch.zeros(1, 1)).tolist() == [1.0]


def graph(seed: int, shift: float = 0.0, nodes: int = 14) -> Data:
    y = torch.arange(nodes) % 3
    return Data(x=rows(nodes, seed, shift, 4), edge_index=undirected(nodes, seed), y=y)


def splits() -> Splits:
    first, second = graph(0), graph(1, nodes=6)
    first.mask = torch.arange(14) % 2 == 0
    second.edge_weight = torch.rand(second.num_edges, generator=rng(), dtype=torch.float64)
    return Splits([first, second], [graph(2)], [graph(3, 1.0), graph(4, 1.0, 5)])


def two_hops(data: Data) -> Tensor:
    hat = dense_norm(dense(data.edge_index, int(data.num_nodes), data.edge_weight))
    return hat @ hat @ data.x


@torch.no_grad()
def test_sr_gnn_weighs_its_risk() -> None:
    torch.manual_seed(0)
    data, model = splits(), GCN(4, 6, 3).double()
    first, second = data.train
    labelled = torch.cat([two_hops(first)[first.mask], two_hops(second)])
    weights = instance_weights(labelled, torch.cat([two_hops(part) for part in data.test]))
    assert weights.numel() == 13 and weights.std() > 0.05
    parts = []
    for part, mask, weight in ((first, first.mask, weights[:7]), (second, torch.arange(6), weights[7:])):
        logs = model(part.x, part.edge_index, part.edge_weight).log_softmax(1)[mask]
        parts.append(float((-weight * logs[torch.arange(len(weight)), part.y[mask]]).mean()))
    loss = SRGNN(weight=0.0, kmm=True).objective(model, data).loss(0)
    assert float(loss) == pytest.approx(sum(parts) / 2, rel=1e-7)


def test_weighted_training_is_reproducible_and_differs_from_plain_training() -> None:
    def trained(kmm: bool, poison: bool = False) -> list[Tensor]:
        data = splits()
        if poison:
            data.test[0].y.fill_(-99)
        torch.manual_seed(0)
        model = SRGNN(epochs=3, kmm=kmm)(GCN(4, 6, 3).double(), data)
        return [p.detach().clone() for p in model.parameters()]

    plain, one, two, poisoned = trained(False), trained(True), trained(True), trained(True, poison=True)
    assert all(map(torch.equal, one, two)) and all(map(torch.equal, one, poisoned))
    assert not all(map(torch.equal, plain, one))


@pytest.mark.parametrize(("task", "columns"), [("multiclass", 3), ("binary", 2), ("binary", 1)])
def test_a_weight_counts_a_node_so_many_times(task: str, columns: int) -> None:
    logits, y = rows(4, 1, columns=columns), torch.tensor([0, 1, 1, 0])
    repeats = torch.tensor([2, 0, 1, 1])
    repeated = risk(logits.repeat_interleave(repeats, 0), y.repeat_interleave(repeats), task)
    assert risk(logits, y, task, repeats.double()).item() == pytest.approx(repeated.item())
    assert risk(logits, y, task, torch.ones(4)).item() == pytest.approx(risk(logits, y, task).item())
    whole = Data(x=logits, y=y, mask=torch.tensor([True, True, True, False]))
    weights = torch.tensor([0.5, 1.5, 1.0])
    expected = (risk(logits[:3], y[:3], task, weights) + risk(logits[:3], y[:3], task, torch.ones(3))) / 2
    actual = mean_risk([logits, logits], [whole, whole], task, [weights, torch.ones(3)])
    assert actual.item() == pytest.approx(expected.item())
