"""Imputation: which rows are abnormal, with a card and without, and what they get instead."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch_geometric.nn as pyg
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch_geometric.data import Data

from graphmend import Limits
from graphmend.adapters import Impute
from graphmend.adapters.broken_rows import abnormal_rows, outlying_rows
from graphmend.adapters.impute import _usual_cosine, refilled
from graphmend.cards import SourceCard, card, rows
from support.graphs import directed, rng, undirected
from support.untouched import assert_same, state_of

N, IN, OUT = 200, 20, 3


def bag_of_words(seed: int = 0, n: int = N) -> Data:
    """Sparse features of 0 and 1, a few in every row."""
    x = (torch.rand(n, IN, generator=rng(seed), dtype=torch.float64) < 0.3).double()
    x[:, 0] = 1.0
    return Data(x=x, edge_index=undirected(n, seed, density=0.02))


def dense_features(seed: int = 0, n: int = N) -> Data:
    x = torch.randn(n, IN, generator=rng(seed), dtype=torch.float64)
    return Data(x=x, edge_index=undirected(n, seed, density=0.02))


def model() -> nn.Module:
    torch.manual_seed(0)
    made: nn.Module = pyg.GCN(IN, 8, num_layers=2, out_channels=OUT).double()
    return made


def card_of(data: Data) -> SourceCard:
    return card(model(), data, task="classes")


BAD = torch.arange(N) % 10 == 3


def with_noise(data: Data) -> Data:
    noise = 3.0 * torch.randn(N, IN, generator=rng(9), dtype=torch.float64)
    return Data(x=torch.where(BAD.unsqueeze(1), data.x + noise, data.x), edge_index=data.edge_index)


def with_zeros(data: Data) -> Data:
    return Data(x=data.x.masked_fill(BAD.unsqueeze(1), 0.0), edge_index=data.edge_index)


def with_scale(data: Data) -> Data:
    return Data(x=torch.where(BAD.unsqueeze(1), 50.0 * data.x, data.x), edge_index=data.edge_index)


@pytest.mark.parametrize("make", [bag_of_words, dense_features])
@pytest.mark.parametrize("corrupt", [with_noise, with_scale])
def test_corrupted_rows_are_found_with_a_card(make: Any, corrupt: Any) -> None:
    """On another graph of the same kind as well."""
    made = card_of(make())
    for data in (make(), make(1)):
        if (make, corrupt) == (dense_features, with_noise):
            continue  # a sum of two normal numbers looks normal
        assert torch.equal(abnormal_rows(corrupt(data).x, made), BAD)


@pytest.mark.parametrize("make", [bag_of_words, dense_features])
def test_empty_rows_are_missing_only_where_there_are_far_more_than_in_training(make: Any) -> None:
    full, some_empty = make(), with_zeros(make())
    assert torch.equal(abnormal_rows(some_empty.x, card_of(full)), BAD)
    assert not bool(abnormal_rows(some_empty.x, card_of(some_empty)).any())
    few = full.x.clone()
    few[:1] = 0.0
    assert not bool(abnormal_rows(few, card_of(full)).any()), "a few are what they are"


@pytest.mark.parametrize("make", [bag_of_words, dense_features])
@pytest.mark.parametrize("seed", range(4))
def test_normal_rows_are_left_alone(make: Any, seed: int) -> None:
    assert not bool(abnormal_rows(make(seed).x, card_of(make())).any())
    assert not bool(outlying_rows(make(seed).x).any())


def test_a_shift_of_all_rows_makes_none_of_them_an_outlier() -> None:
    made = card_of(dense_features())
    assert not bool(abnormal_rows(5 * dense_features(1).x + 3, made).any())


def test_a_single_entry_out_of_range_makes_no_row_abnormal() -> None:
    data = dense_features()
    made = card_of(data)
    x = data.x.clone()
    x[5, 3], x[6, 3] = float(made.column_max[3]) * 1.3, float(made.column_min[3]) * 1.3
    assert not bool(abnormal_rows(x, made).any())
    x[5, 3] = 1e4
    assert abnormal_rows(x, made).nonzero().view(-1).tolist() == [5], "unless it outgrows the row"


@pytest.mark.parametrize("columns", [2, 3, 5, 8, 13])
def test_few_columns_make_no_row_abnormal_but_do_not_hide_one(columns: int) -> None:
    """One entry out of range is a third of a row of three, and yet every large graph has such rows."""
    torch.manual_seed(0)
    narrow: nn.Module = pyg.GCN(columns, 8, num_layers=2, out_channels=OUT).double()

    def draw(seed: int, n: int) -> Data:
        x = torch.randn(n, columns, generator=rng(seed), dtype=torch.float64)
        return Data(x=x, edge_index=directed(n, seed, density=0.02))

    made = card(narrow, draw(0, 100), task="classes")
    for seed in range(1, 6):
        x = draw(seed, 1000).x
        assert bool(((x < made.column_min) | (x > made.column_max)).any()), "otherwise nothing is tested"
        assert not bool(abnormal_rows(x, made).any()) and not bool(abnormal_rows(1.3 * x, made).any())
        broken = torch.arange(1000) % 10 == 3
        assert torch.equal(abnormal_rows(torch.where(broken.unsqueeze(1), 1000.0 * x, x), made), broken)


def slow_usual(values: list[float], least: float) -> tuple[float, float]:
    """The centre and the deviation of the shortest interval with half of the numbers."""
    ordered, half = sorted(values), len(values) // 2
    width, low = min((ordered[i + half] - ordered[i], ordered[i]) for i in range(len(values) - half))
    return low + width / 2, max(width / 2 / 0.6745, least)


def slow_set_apart(distances: list[float]) -> list[bool]:
    """Every gap that begins at 2 or at a row is tried from below."""
    for start in sorted({2.0, *(d for d in distances if d >= 2)}):
        inside = sum(start < d < 2 * start for d in distances)
        beyond = sum(d >= 2 * start for d in distances)
        if beyond and inside <= 0.05 * beyond:
            return [d >= 2 * start for d in distances]
    return [False] * len(distances)


def slow_statistics(x: Tensor, made: SourceCard) -> list[list[float]]:
    statistics = []
    for row in x.tolist():
        norm, largest = math.sqrt(sum(v * v for v in row)), max(map(abs, row))
        density = sum(v != 0 for v in row) / len(row)
        outside = 0
        for v, low, high in zip(row, made.column_min.tolist(), made.column_max.tolist(), strict=True):
            outside += v < low - 0.1 * (high - low) or v > high + 0.1 * (high - low)
        logs = [math.log(max(v, 1e-12)) for v in (norm, density, largest)]
        statistics.append([*logs, outside / len(row)])
    return statistics


def slow_abnormal(x: Tensor, made: SourceCard) -> list[bool]:
    """The rule, a row and a statistic at a time."""
    statistics = slow_statistics(x, made)
    empty = [row[0] <= math.log(1e-12) for row in statistics]
    flagged = [is_empty and sum(empty) / len(empty) > 0.01 + 4 * made.empty_rows for is_empty in empty]
    for k in range(4):
        low, high = float(made.row_low[k]), float(made.row_high[k])
        column = [row[k] for row in statistics]
        full = [v for v, is_empty in zip(column, empty, strict=True) if not is_empty]
        known = [v for v in full if low <= v <= high]
        reference = known if 2 * len(known) >= len(full) else full
        if not reference:
            continue
        centre, deviation = slow_usual(reference, max(0.05, 1 / x.size(1)))
        for sign in (1, -1):
            distances = [max(0.0, sign * (v - centre) / deviation) for v in column]
            distances = [0.0 if is_empty else d for d, is_empty in zip(distances, empty, strict=True)]
            for i, apart in enumerate(slow_set_apart(distances)):
                flagged[i] |= apart and not empty[i] and not low <= column[i] <= high
    return flagged


@settings(max_examples=25)
@given(st.integers(0, 10**6), st.floats(0.0, 4.0), st.booleans())
def test_abnormal_rows_equal_a_slow_reference(seed: int, size: float, is_sparse: bool) -> None:
    data = bag_of_words(seed, 40) if is_sparse else dense_features(seed, 40)
    made = card_of(data)
    x = data.x + size * torch.randn(40, IN, generator=rng(seed + 1), dtype=torch.float64) * (torch.arange(40) < 7).view(
        -1, 1
    )
    assert abnormal_rows(x, made).tolist() == slow_abnormal(x, made)


def slow_outlying(x: Tensor) -> list[bool]:
    flagged = [False] * x.size(0)
    for k in range(3):
        r = []
        for row in x.tolist():
            values = math.sqrt(sum(v * v for v in row)), sum(v != 0 for v in row) / len(row), max(map(abs, row))
            r.append(math.log(max(values[k], 1e-12)))
        centre, deviation = slow_usual(r, 0.3)
        above = slow_set_apart([max(0.0, (v - centre) / deviation) for v in r])
        if 3 <= sum(above) <= len(r) / 2:
            flagged = [a or b for a, b in zip(flagged, above, strict=True)]
    return flagged


@settings(max_examples=40)
@given(st.integers(0, 10**6), st.floats(1.0, 1e4), st.integers(0, 30), st.booleans())
def test_outlying_rows_equal_a_slow_reference(seed: int, factor: float, number: int, is_sparse: bool) -> None:
    x = bag_of_words(seed, 40).x if is_sparse else dense_features(seed, 40).x
    x = torch.where((torch.arange(40) < number).view(-1, 1), factor * x, x)
    assert outlying_rows(x).tolist() == slow_outlying(x)


def test_without_a_card_only_rows_above_a_wide_gap_are_found() -> None:
    data = dense_features()
    assert torch.equal(outlying_rows(with_scale(data).x), BAD)
    assert not bool(outlying_rows(with_zeros(data).x).any()), "filling zeros costs more than it gains"
    few = data.x.clone()
    few[:2] *= 1e4
    assert not bool(outlying_rows(few).any()), "two rows may be what they are"
    few[:3] *= 1e4
    assert outlying_rows(few)[:3].all() and int(outlying_rows(few).sum()) == 3
    many = data.x.clone()
    many[:120] *= 1e4
    assert not bool(outlying_rows(many).any()), "more than half of the rows are no outliers"
    assert not bool(outlying_rows(data.x[:1]).any()) and not bool(outlying_rows(torch.zeros(5, 2)).any())


def cosine(a: Tensor, b: Tensor) -> float:
    return float(a @ b) / max(float(a.norm() * b.norm()), 1e-12)


def slow_usual_cosine(x: Tensor, edge_index: Tensor, normal: list[int]) -> float:
    """Between normal rows and the means of their normal neighbours; the lower median, 1 if there are none."""
    found = []
    for i in normal:
        around = [b if a == i else a for a, b in edge_index.t().tolist() if i in (a, b) and a != b]
        around = [j for j in around if j in normal]
        if around:
            found.append(cosine(x[i], x[around].mean(0)))
    return sorted(found)[(len(found) - 1) // 2] if found else 1.0


def slow_refilled(x: Tensor, edge_index: Tensor, bad: Tensor) -> Tensor:
    out, missing = x.clone(), {i for i in range(x.size(0)) if bool(bad[i])}
    normal = [i for i in range(x.size(0)) if i not in missing]
    for _ in range(3):
        filled = {}
        for i in missing:
            pairs = edge_index.t().tolist()
            around = [b if a == i else a for a, b in pairs if i in (a, b)]
            around = [j for j in around if j not in missing]
            if around:
                filled[i] = torch.stack([out[j] for j in around]).mean(0)
        for i, value in filled.items():
            out[i] = value
        missing -= set(filled)
    for i in missing:
        out[i] = x[normal].mean(0)
    usual = slow_usual_cosine(x, edge_index, normal)
    size = sorted(float(x[i].norm()) for i in normal)[(len(normal) - 1) // 2]
    for i in set(range(x.size(0))) - set(normal):
        if float(x[i].norm()) > 0 and cosine(x[i], out[i]) >= 0.5 * usual:
            out[i] = x[i] * size / x[i].norm()
    return out


@settings(max_examples=40)
@given(st.integers(0, 10**6), st.floats(0.05, 0.9), st.booleans())
def test_filling_equals_a_slow_reference(seed: int, share: float, is_directed: bool) -> None:
    n = 14
    edge_index = (directed if is_directed else undirected)(n, seed, density=0.15, loops=True)
    x = torch.randn(n, 3, generator=rng(seed), dtype=torch.float64)
    bad = torch.rand(n, generator=rng(seed + 1)) < share
    bad[seed % n] = False
    before = x.clone()
    torch.testing.assert_close(refilled(x, edge_index, bad), slow_refilled(x, edge_index, bad))
    assert torch.equal(x, before)


def test_filling_spreads_over_three_rounds_and_ends_with_the_mean() -> None:
    """A path: 0 is normal, 1 to 5 are not and point the other way; 6 and 7 are normal and apart."""
    x = torch.tensor([[1.0], [-90.0], [-90.0], [-90.0], [-90.0], [-90.0], [2.0], [6.0]])
    path = torch.stack([torch.arange(5), torch.arange(1, 6)])
    bad = torch.tensor([False, True, True, True, True, True, False, False])
    assert refilled(x, path, bad).view(-1).tolist() == [1.0, 1.0, 1.0, 1.0, 3.0, 3.0, 2.0, 6.0]


def test_rows_that_point_where_their_neighbours_point_only_get_the_usual_size() -> None:
    """Two rows are out of size, one of them points elsewhere as well."""
    x = torch.tensor([[1.0, 1.0], [1.0, 0.9], [0.9, 1.0], [50.0, 40.0], [50.0, -50.0]])
    ring = torch.tensor([[0, 1, 2, 3, 4], [1, 2, 3, 4, 0]])
    out = refilled(x, ring, torch.tensor([False, False, False, True, True]))
    torch.testing.assert_close(out[3], x[3] / x[3].norm() * x[1].norm())
    torch.testing.assert_close(out[4], x[0])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_small_floats_do_not_overflow(dtype: torch.dtype) -> None:
    """The mean of all normal rows, and rows whose norm is beyond the largest number of half precision."""
    data = dense_features()
    x = (1000.0 + data.x).to(dtype)
    x[BAD] = 60_000.0
    x[3] = -60_000.0
    nowhere = data.edge_index[:, ~(BAD[data.edge_index] & (torch.arange(N) == 3)[data.edge_index]).any(0)]
    for edges in (data.edge_index, nowhere):
        out = refilled(x, edges, BAD)
        assert out.dtype == dtype and bool(out.isfinite().all())
        torch.testing.assert_close(out.double(), slow_refilled(x.double(), edges, BAD), rtol=2e-2, atol=1.0)


def test_the_usual_cosine_comes_from_the_same_rows_in_every_numbering(monkeypatch: pytest.MonkeyPatch) -> None:
    data, order = dense_features(), torch.randperm(N, generator=rng(3))
    both = torch.cat([data.edge_index, data.edge_index.flip(0)], dim=1)
    monkeypatch.setattr("graphmend.adapters.impute.SAMPLED", 20)
    one = _usual_cosine(data.x, both, ~BAD)
    assert one != 1.0 and _usual_cosine(data.x[order], order.argsort()[both], ~BAD[order]) == pytest.approx(one)
    monkeypatch.setattr("graphmend.adapters.impute.BLOCK", 3 * IN)
    assert _usual_cosine(data.x, both, ~BAD) == pytest.approx(one)


def test_large_graphs_are_filled_some_edges_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    data = dense_features()
    whole = refilled(data.x, data.edge_index, BAD)
    monkeypatch.setattr("graphmend.adapters.impute.BLOCK", 3 * IN)
    monkeypatch.setattr("graphmend.adapters.missing.BLOCK", 3 * IN)
    torch.testing.assert_close(refilled(data.x, data.edge_index, BAD), whole)
    assert rows.BLOCK > 1000


@pytest.mark.parametrize("has_card", [True, False])
def test_only_the_abnormal_rows_change(has_card: bool) -> None:
    net, data = model(), dense_features()
    test = with_scale(data)
    before = state_of(net, test)
    result = Impute()(net, test, card=card(net, data, task="classes") if has_card else None)
    assert_same(before, state_of(net, test))
    assert result.reason is None and torch.equal(result.patch.rows, BAD.nonzero().view(-1))
    assert torch.equal(result.data.x[~BAD], test.x[~BAD])
    torch.testing.assert_close(result.data.x, slow_refilled(test.x, test.edge_index, BAD))
    assert result.patch.num_removed == result.patch.num_added == 0 and result.history == []


def test_nothing_to_do_changes_nothing() -> None:
    net, data = model(), dense_features()
    for made in (card(net, data, task="classes"), None):
        result = Impute()(net, data, card=made)
        assert result.reason is None and result.patch.num_rows == 0


def test_where_most_rows_look_abnormal_nothing_is_done() -> None:
    """Of each kind, large rows, small rows and empty ones, there are fewer than a quarter."""
    net, data = model(), dense_features()
    x = data.x.clone()
    x[:48] *= 1e4
    x[48:96] *= 1e-4
    x[96:144, 1:] = 0.0
    x[96:144, 0] = math.sqrt(IN)
    test = Data(x=x, edge_index=data.edge_index)
    assert int(abnormal_rows(x, card(net, data, task="classes")).sum()) == 144
    result = Impute()(net, test, card=card(net, data, task="classes"))
    assert result.reason is not None and result.reason.startswith("72 % of the rows look broken")
    assert torch.equal(result.data.x, test.x)


def test_limits_are_respected() -> None:
    net, data = model(), dense_features()
    test = with_scale(data)
    frozen = torch.arange(N) < 100
    limits = Limits(frozen_nodes=frozen, minimum=-0.05, maximum=0.05)
    result = Impute()(net, test, card=card(net, data, task="classes"), limits=limits)
    assert torch.equal(result.data.x[frozen], test.x[frozen])
    assert float(result.data.x[~frozen].abs().max()) <= 0.05
