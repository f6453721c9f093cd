"""Simulated shifts: what all of them promise, and what each does."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

import graphmend.lab.data
from graphmend.errors import GraphMendError
from graphmend.lab.data import SHIFTS, ColumnShift, EdgeSubsample, LabelShift, MissingColumns
from graphmend.lab.data.corruptions import FeatureNoise
from support.graphs import labelled, pairs
from support.untouched import assert_same, generator_states

every_shift = pytest.mark.parametrize("name", SHIFTS)
CHANGES = {**SHIFTS, "noise": FeatureNoise}
every_change = pytest.mark.parametrize("name", CHANGES)


@pytest.fixture
def data() -> Data:
    graph = labelled(60, loops=True)
    graph.edge_attr = torch.arange(graph.num_edges).float()
    return graph


@every_change
def test_leaves_input_and_generators_as_they_were(name: str, data: Data) -> None:
    before, states = data.clone(), generator_states()
    kept = {key: (id(value), value._version) for key, value in data.to_dict().items()}
    shifted = CHANGES[name]()(data)
    assert shifted is not data
    assert_same(states, generator_states())
    assert {key: (id(value), value._version) for key, value in data.to_dict().items()} == kept
    for key, value in before.to_dict().items():
        assert torch.equal(data[key], value)


@every_change
def test_is_seeded(name: str, data: Data) -> None:
    first, again, other = (CHANGES[name](seed=seed)(data) for seed in (1, 1, 2))
    assert all(torch.equal(first[key], again[key]) for key in data.keys())  # noqa: SIM118
    assert any(
        first[key].shape != other[key].shape or not torch.equal(first[key], other[key]) for key in ("x", "edge_index")
    )


@every_shift
def test_changes_something_and_stays_a_graph(name: str, data: Data) -> None:
    shifted = SHIFTS[name]()(data)
    shifted.validate()
    assert shifted.x.dtype == data.x.dtype
    assert shifted.x.shape != data.x.shape or not torch.equal(shifted.x, data.x) or shifted.num_edges < data.num_edges
    assert set(shifted.keys()) == set(data.keys())


@every_shift
def test_is_exported_and_documented(name: str) -> None:
    shift = SHIFTS[name]
    assert shift.__name__ in graphmend.lab.data.__all__
    assert ">>>" in (shift.__doc__ or "") and "Args:" in (shift.__doc__ or "")


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("labels", {"seed": -1}, "got -1"),
        ("columns", {"seed": 0.5}, "got 0.5"),
        ("labels", {"concentration": 0.0}, "concentration"),
        ("labels", {"shares": (1.0, -1.0, 0.5)}, "negative"),
        ("labels", {"shares": (0.0, 0.0, 0.0)}, "not all 0"),
        ("labels", {"shares": (0.5, 0.5)}, "all 3 classes"),
        ("labels", {"shares": (0.5, 0.2, 0.2, 0.1)}, "no node"),
        ("columns", {"share": 1.5}, r"\[0, 1\] \(got 1.5\)"),
        ("columns", {"scale": 0.5}, "at least 1"),
        ("columns", {"offset": float("inf")}, "finite"),
        ("missing columns", {"share": -0.1}, "got -0.1"),
        ("missing columns", {"value": float("nan")}, "finite"),
        ("edges", {"keep": 2.0}, "keep must be"),
    ],
)
def test_bad_arguments(data: Data, name: str, options: dict[str, object], message: str) -> None:
    with pytest.raises(GraphMendError, match=message):
        SHIFTS[name](**options)(data)


@every_shift
def test_bad_graph(name: str) -> None:
    with pytest.raises(GraphMendError, match="feature tensor x"):
        SHIFTS[name]()(Data(edge_index=torch.zeros(2, 0, dtype=torch.long)))


def test_label_shift_has_the_shares_and_the_induced_edges(data: Data) -> None:
    data.number = torch.arange(60)
    shifted = LabelShift((0.5, 0.25, 0.25))(data)
    assert shifted.y.bincount().tolist() == [20, 10, 10]
    kept = shifted.number
    assert torch.equal(shifted.x, data.x[kept]) and torch.equal(shifted.train_mask, data.train_mask[kept])
    assert torch.equal(shifted.y, data.y[kept])
    inside = {(i, j) for i, j in data.edge_index.t().tolist() if i in set(kept.tolist()) and j in set(kept.tolist())}
    assert {(int(kept[i]), int(kept[j])) for i, j in shifted.edge_index.t().tolist()} == inside
    assert shifted.edge_attr.numel() == shifted.num_edges


def test_label_shift_drops_a_class_without_a_share(data: Data) -> None:
    assert LabelShift((1.0, 1.0, 0.0))(data).y.bincount().tolist() == [20, 20]


def test_concentration_is_the_strength_of_a_label_shift() -> None:
    y = torch.arange(3000) % 3
    data = Data(x=torch.ones(3000, 1), edge_index=torch.tensor([[0], [1]]), y=y)

    def distance(concentration: float) -> float:
        shifted = [
            LabelShift(concentration=concentration, seed=seed)(data).y.bincount(minlength=3) for seed in range(20)
        ]
        return float(torch.stack([(counts / counts.sum() - 1 / 3).abs().sum() for counts in shifted]).mean())

    assert distance(1000.0) < 0.05 < distance(10.0) < distance(0.5)


def test_label_shift_needs_labels() -> None:
    graph = Data(x=torch.ones(2, 1), edge_index=torch.tensor([[0], [1]]))
    with pytest.raises(GraphMendError, match="no y"):
        LabelShift()(graph)
    for wrong, message in (
        (torch.tensor([0, -1]), r"got -1\.\.0"),
        (torch.tensor([0, 20_000_000]), r"got 0\.\.20000000\); number the classes from 0 without gaps"),
        (torch.tensor([0.0, torch.nan]), "y holds nan"),
        (torch.ones(2, 2), "one label per node, 2 in all"),
    ):
        graph.y = wrong
        with pytest.raises(GraphMendError, match=message):
            LabelShift()(graph)


def test_column_shift_is_affine_within_its_limits(data: Data) -> None:
    data.x = torch.cat([data.x, torch.ones(60, 1)], dim=1)
    shifted = ColumnShift(share=1.0, scale=2.0, offset=0.5, seed=3)(data)
    mean, deviation = data.x.mean(0), data.x.std(0, correction=0)
    assert torch.equal(shifted.x[:, 5], data.x[:, 5])  # the constant column
    stretch = (shifted.x.std(0, correction=0) / deviation)[:5]
    move = ((shifted.x.mean(0) - mean) / deviation)[:5]
    assert bool(((stretch > 0.5) & (stretch < 2.0)).all()) and bool((move.abs() < 0.5).all())
    assert stretch.unique().numel() == move.unique().numel() == 5
    again = mean[:5] + stretch * (data.x[:, :5] - mean[:5]) + move * deviation[:5]
    assert torch.allclose(shifted.x[:, :5], again, atol=1e-5)


@pytest.mark.parametrize(("share", "count"), [(0.0, 0), (0.2, 1), (0.59, 2), (0.6, 3), (1.0, 5)])
def test_the_share_of_columns_is_rounded_down(data: Data, share: float, count: int) -> None:
    for shift in (ColumnShift(share=share), MissingColumns(share=share, value=7.0)):
        assert int((shift(data).x != data.x).any(0).sum()) == count
    assert int((MissingColumns(share=share, value=7.0)(data).x == 7.0).all(0).sum()) == count


@pytest.mark.parametrize("keep", [0.0, 0.3, 1.0])
def test_edges_stay_in_pairs_and_loops_stay(data: Data, keep: float) -> None:
    shifted = EdgeSubsample(keep=keep)(data)
    before, after = ({pair for pair in pairs(graph.edge_index) if pair[0] < pair[1]} for graph in (data, shifted))
    assert after <= before and len(after) == round(keep * len(before))
    edges = set(map(tuple, shifted.edge_index.t().tolist()))
    assert edges == {(j, i) for i, j in edges}
    assert {(0, 0), (2, 2)} <= edges
    place = shifted.edge_attr.long()
    assert torch.equal(data.edge_index[:, place], shifted.edge_index)


def test_a_value_that_the_features_cannot_hold_is_named() -> None:
    data = labelled()
    data.x = data.x.half()
    with pytest.raises(GraphMendError, match=r"value is 1e\+30, more than torch.float16 can hold"):
        MissingColumns(value=1e30)(data)


def test_masks_that_are_arrays_are_shifted_with_their_nodes() -> None:
    data = labelled(30)
    data.val_mask = np.arange(30) % 2 == 0
    shifted = LabelShift(seed=1)(data)
    assert shifted.val_mask.shape == (shifted.num_nodes,)
