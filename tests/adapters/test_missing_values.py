"""Missing values: what they are filled with, that nothing else changes, and that taking it back restores them."""

from __future__ import annotations

import copy
import math
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
import torch_geometric.nn as pyg
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch_geometric.data import Data

from graphmend import Limits, Patch, mend
from graphmend.adapters import ADAPTERS, Adapter, Align, Case, GTrans, Identity, Impute, Proposal, Stopped, missing
from graphmend.adapters.broken_rows import broken_rows
from graphmend.adapters.gate import Gate
from graphmend.adapters.impute import refilled
from graphmend.adapters.missing import Filling, _Sums, filled, neighbour_means
from graphmend.cards import SourceCard, card
from graphmend.errors import GraphMendError
from graphmend.results.adaptation import Adaptation
from graphmend.results.patch import as_bits
from graphmend.results.tables import node_columns
from support.graphs import directed, rng, undirected
from support.untouched import Boom, assert_same, generator_states, snapshot

N, IN, OUT = 60, 6, 3
NAN = math.nan


def complete(seed: int = 0, dtype: torch.dtype = torch.float32) -> Data:
    x = torch.randn(N, IN, generator=rng(seed)).to(dtype)
    return Data(x=x, edge_index=undirected(N, seed, density=0.06), y=torch.arange(N) % OUT)


def with_holes(data: Data, share: float = 0.1, seed: int = 5) -> Data:
    """Some values are missing, and of row 4 all."""
    out = copy.copy(data)
    holes = torch.rand(data.x.shape, generator=rng(seed)) < share
    holes[4] = True
    out.x = data.x.masked_fill(holes, NAN)
    return out


def model(dtype: torch.dtype = torch.float32) -> nn.Module:
    torch.manual_seed(0)
    made: nn.Module = pyg.GCN(IN, 8, num_layers=2, out_channels=OUT).to(dtype)
    return made.eval()


def card_of(dtype: torch.dtype = torch.float32) -> SourceCard:
    return card(model(dtype), complete(1, dtype), task="classes")


def same_bits(first: Tensor, second: Tensor) -> bool:
    return torch.equal(as_bits(first.contiguous()), as_bits(second.contiguous()))


def seen_by_a_user(net: nn.Module, data: Data) -> list[Any]:
    """Generators, graph and model, with the features as bits, as NaN differs from itself."""
    return [*generator_states(), id(data.x), as_bits(data.x).clone(), data.x._version, *snapshot(net)]


# the rule


def slow_filled(x: Tensor, edge_index: Tensor, column_mean: Tensor | None) -> Tensor:
    """The rule, a value at a time."""
    rows, columns = x.shape
    values: list[list[float]] = x.double().tolist()
    around: list[list[int]] = [[] for _ in range(rows)]
    for a, b in edge_index.t().tolist():
        if a != b:
            around[a].append(b)
            around[b].append(a)
    for _ in range(3):
        before = copy.deepcopy(values)
        for i in range(rows):
            for c in range(columns):
                near = [before[j][c] for j in around[i] if not math.isnan(before[j][c])]
                if math.isnan(before[i][c]) and near:
                    values[i][c] = sum(near) / len(near)
    for c in range(columns):
        present = [v for v in x[:, c].double().tolist() if not math.isnan(v)]
        mean = sum(present) / len(present) if present else 0.0
        mean = mean if column_mean is None else float(column_mean[c])
        for i in range(rows):
            values[i][c] = mean if math.isnan(values[i][c]) else values[i][c]
    return torch.tensor(values, dtype=torch.float64)


@st.composite
def graphs(draw: st.DrawFn) -> tuple[Tensor, Tensor, Tensor | None]:
    """Features with holes, edges, and perhaps the means of a card."""
    seed, n, columns = draw(st.integers(0, 10**6)), draw(st.integers(2, 14)), draw(st.integers(1, 5))
    make = directed if draw(st.booleans()) else undirected
    edge_index = make(n, seed, density=draw(st.sampled_from([0.05, 0.2, 0.5])), loops=n > 2)
    x = torch.randn(n, columns, generator=rng(seed), dtype=torch.float64)
    x = x.masked_fill(torch.rand(n, columns, generator=rng(seed + 1)) < draw(st.floats(0.0, 1.0)), NAN)
    mean = torch.randn(columns, generator=rng(seed + 2), dtype=torch.float64) if draw(st.booleans()) else None
    return x, edge_index, mean


@settings(max_examples=60)
@given(graphs())
def test_filling_equals_a_slow_reference(graph: tuple[Tensor, Tensor, Tensor | None]) -> None:
    x, edge_index, mean = graph
    before = x.clone()
    out, left = filled(x, edge_index, mean)
    torch.testing.assert_close(out, slow_filled(x, edge_index, mean))
    assert same_bits(x, before) and not bool(out.isnan().any())
    assert same_bits(out[~x.isnan()], x[~x.isnan()]), "what is there stays bit for bit"
    assert bool((left <= x.isnan()).all())


@settings(max_examples=40)
@given(graphs(), st.integers(0, 10**6))
def test_the_numbering_of_the_nodes_does_not_matter(graph: tuple[Tensor, Tensor, Tensor | None], seed: int) -> None:
    x, edge_index, mean = graph
    order = torch.randperm(x.size(0), generator=rng(seed))
    place = order.argsort()
    other = filled(x[order], place[edge_index], mean)[0]
    torch.testing.assert_close(other, filled(x, edge_index, mean)[0][order])


@pytest.mark.parametrize("rows", [[4], [4, 9, 10, 11, 30], list(range(0, N, 2))], ids=len)
def test_rows_without_any_value_get_what_repaired_rows_get(rows: list[int]) -> None:
    data = complete(dtype=torch.float64)
    bad = torch.zeros(N, dtype=torch.bool).index_fill(0, torch.tensor(rows), True)
    x = data.x.masked_fill(bad.unsqueeze(1), NAN)
    zeros = data.x.masked_fill(bad.unsqueeze(1), 0.0)
    torch.testing.assert_close(filled(x, data.edge_index)[0], refilled(zeros, data.edge_index, bad))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_filled_values_are_as_precise_as_their_type_allows(dtype: torch.dtype) -> None:
    """Sums of many small floats would not be."""
    n = 3000
    x = (1000 + torch.rand(n, 1, generator=rng(), dtype=torch.float64)).to(dtype)
    star = torch.stack([torch.arange(1, n), torch.zeros(n - 1, dtype=torch.long)])
    expected = x[1:].double().mean().to(dtype)
    x[0] = NAN
    out = filled(x, star)[0]
    assert out.dtype == dtype
    torch.testing.assert_close(out[0, 0], expected)


def test_large_graphs_are_filled_some_edges_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    data = with_holes(complete())
    whole = filled(data.x, data.edge_index)[0]
    monkeypatch.setattr("graphmend.adapters.missing.BLOCK", 3 * IN)
    torch.testing.assert_close(filled(data.x, data.edge_index)[0], whole)


@pytest.mark.parametrize("has_card", [False, True])
@pytest.mark.parametrize(
    "limits", [Limits(), Limits(minimum=-0.1, maximum=torch.linspace(0, 1, IN))], ids=["", "range"]
)
@pytest.mark.parametrize("broken", [[], [7, 8]], ids=["", "broken"])
def test_filling_by_block_equals_filling_at_once(
    has_card: bool, limits: Limits, broken: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    data, source = with_holes(complete()), card_of() if has_card else None
    data.x[broken] *= 1e4
    data.x[:, 2] = NAN
    holes = data.x.isnan()
    means = None if source is None else source.column_mean
    apart = broken_rows(filled(data.x, data.edge_index, means)[0], source) & ~holes.all(1)
    assert bool(apart.any()) == bool(broken)
    expected, left = filled(data.x.masked_fill(apart.unsqueeze(1), NAN), data.edge_index, means)
    expected = torch.where(holes, expected if limits.minimum is None else bounded(expected, limits), data.x)
    monkeypatch.setattr("graphmend.scratch.ROWS", 4 * IN)
    found = Filling.of(data, source, limits)
    assert same_bits(found.x, expected)
    assert torch.equal(found.empty_rows, holes.all(1))
    assert (found.values, found.rows) == (int(holes.sum()), int(holes.any(1).sum()))
    assert found.from_neighbours == int((holes & ~left).sum())
    assert found.from_columns == int((left & holes)[:, torch.tensor([0, 1, 3, 4, 5])].sum()) + has_card * N


def bounded(x: Tensor, limits: Limits) -> Tensor:
    assert isinstance(limits.minimum, float) and isinstance(limits.maximum, Tensor)
    return x.clamp(min=limits.minimum).minimum(limits.maximum)


# adapters that fill

FILLING: dict[str, Adapter] = {"impute": Impute(), "gate": Gate(), "sequence": Impute() >> GTrans(steps=2)}
filling = pytest.mark.parametrize("name", FILLING)
carded = pytest.mark.parametrize("has_card", [True, False], ids=["card", "blind"])


@filling
@carded
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_missing_values_are_filled_and_come_back(name: str, has_card: bool, dtype: torch.dtype, tmp_path: Path) -> None:
    net, data = model(dtype), with_holes(complete(dtype=dtype))
    before = seen_by_a_user(net, data)
    result = FILLING[name](net, data, card=card_of(dtype) if has_card else None)
    assert_same(before, seen_by_a_user(net, data))
    assert result.reason is None and bool(result.data.x.isfinite().all())
    assert result.values_filled == result.summary()["missing_values_filled"] == int(data.x.isnan().sum())
    assert "missing values" in repr(result)
    with torch.no_grad():
        torch.testing.assert_close(result.logits, net(result.data.x, result.data.edge_index), rtol=1e-4, atol=1e-4)
    assert same_bits(result.patch.revert(result.data).x, data.x)
    result.patch.save(tmp_path / "patch.safetensors")
    again = Patch.load(tmp_path / "patch.safetensors").apply(data)
    assert same_bits(again.x, result.data.x) and same_bits(result.patch.revert(again).x, data.x)


@settings(max_examples=25)
@given(st.integers(0, 10**6), st.floats(0.01, 0.9))
def test_taking_it_back_restores_every_missing_value(seed: int, share: float) -> None:
    """Whatever bits its NaN has."""
    data = with_holes(complete(seed), share, seed + 1)
    odd = torch.tensor([0x7FC00001, 0x7F800001, -1], dtype=torch.int32).view(torch.float32)
    data.x = torch.where(data.x.isnan(), odd[torch.arange(N) % 3].unsqueeze(1), data.x)
    result = Impute()(model(), data)
    assert same_bits(result.patch.revert(result.data).x, data.x)
    stays = ~data.x.isnan()
    assert result.values_filled == int((~stays).sum())
    changed = as_bits(result.data.x) != as_bits(data.x)
    assert result.patch.num_rows == int(changed.any(1).sum()) and bool(changed[~stays].all())


def test_impute_fills_what_the_rule_says() -> None:
    data = with_holes(complete())
    for made in (card_of(), None):
        result = Impute()(model(), data, card=made)
        expected = slow_filled(data.x, data.edge_index, None if made is None else made.column_mean)
        torch.testing.assert_close(result.data.x, expected.float())


@filling
def test_the_output_before_is_that_of_the_filled_graph(name: str) -> None:
    net, data, made = model(), with_holes(complete()), card_of()
    result = FILLING[name](net, data, card=made)
    full = filled(data.x, data.edge_index, made.column_mean)[0]
    with torch.no_grad():
        expected = net(full, data.edge_index)
    torch.testing.assert_close(result.before, expected, rtol=1e-4, atol=1e-5)
    assert same_bits(result.graph_before().x, full)
    assert result.compare(data.y).nodes == N
    columns = node_columns(result)
    assert bool((columns["feature_change"] >= 0).all()), "a missing value is no distance"
    if name != "sequence":
        assert columns["feature_change"].max() == 0.0


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16], ids=str)
def test_the_result_fits_the_graph_in_its_own_type(dtype: torch.dtype) -> None:
    original = with_holes(complete(dtype=dtype))
    cast = copy.copy(original)
    cast.x = original.x.float()
    for adapter in FILLING.values():
        result = adapter(model(), cast).rebase(original)
        assert result.data.x.dtype == dtype and same_bits(result.patch.revert(result.data).x, original.x)
        assert result.values_filled == int(original.x.isnan().sum())
        assert bool(result.before.isfinite().all()) and result.compare().nodes == N
    other = copy.copy(cast)
    other.x = cast.x.nan_to_num(nan=0.0)
    with pytest.raises(GraphMendError, match="made for another graph"):
        Impute()(model(), cast).rebase(other)


def test_a_figure_of_the_result(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    Gate()(model(), with_holes(complete())).plot(tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 0


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_models_of_small_floats(dtype: torch.dtype) -> None:
    data = with_holes(complete(dtype=dtype))
    result = Impute()(model(dtype), data)
    assert result.data.x.dtype == dtype and bool(result.data.x.isfinite().all())
    assert same_bits(result.patch.revert(result.data).x, data.x)


def test_means_of_very_many_neighbours_do_not_overflow_half_precision() -> None:
    """Neither their sum nor their number can be written in half precision."""
    n = 70_000
    x = torch.ones(n + 1, 1, dtype=torch.float16)
    star = torch.stack([torch.arange(1, n + 1), torch.zeros(n, dtype=torch.long)])
    hub = torch.arange(n + 1) == 0
    nodes, means = neighbour_means(x, star, ~hub, hub)
    assert nodes.tolist() == [0] and means.dtype == torch.float16 and float(means) == 1.0
    x[0] = NAN
    assert float(filled(x, star)[0][0, 0]) == 1.0


def test_only_columns_with_gaps_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    data, widths = complete(), []
    data.x[3:9, 2] = data.x[5:7, 4] = NAN

    def noted(*given: Any) -> _Sums:
        sums = _Sums(*given)
        widths.append(sums.total.size(1))
        return sums

    monkeypatch.setattr(missing, "_Sums", noted)
    out, _ = filled(data.x, data.edge_index)
    torch.testing.assert_close(out.double(), slow_filled(data.x, data.edge_index, None))
    assert set(widths) == {2}


def test_frozen_nodes_and_columns_are_filled_and_new_values_keep_to_the_ranges() -> None:
    data = with_holes(complete())
    limits = Limits(
        frozen_nodes=torch.arange(N) < N // 2,
        frozen_columns=torch.arange(IN) == 1,
        minimum=-0.02,
        maximum=1.0,
        binary=torch.arange(IN) == 2,
        non_negative=torch.arange(IN) == 3,
    )
    result = Impute()(model(), data, limits=limits)
    new = result.data.x.masked_fill(~data.x.isnan(), 0.0)
    assert bool(result.data.x.isfinite().all()) and float(new.min()) >= -0.02 - 1e-7 and float(new.max()) <= 1
    assert set(new[:, 2].tolist()) == {0.0, 1.0} and float(new[:, 3].min()) >= 0
    assert same_bits(result.data.x[~data.x.isnan()], data.x[~data.x.isnan()])


def test_a_row_without_any_value_is_not_judged_after_it_was_filled() -> None:
    """Its neighbours are all alike, so that its mean is like them; the others are not."""
    x = torch.ones(12, 3)
    x[:3] = 1000.0
    x[3] = NAN
    ring = torch.stack([torch.arange(12), (torch.arange(12) + 1) % 12])
    edges = torch.cat([ring, torch.tensor([[3, 3], [1, 0]])], dim=1)
    net = pyg.GCN(3, 4, 2, 2)
    result = Impute()(net, Data(x=x, edge_index=edges))
    assert torch.equal(result.data.x[:4], torch.ones(4, 3))


def test_where_most_rows_look_abnormal_missing_values_are_filled_all_the_same() -> None:
    data, net = complete(), model()
    made = card(net, data, task="classes")
    x = data.x.clone()
    x[:16], x[16:40] = 1e4 * x[:16], 0.0
    x[50, 2] = NAN
    result = Impute()(net, Data(x=x, edge_index=data.edge_index), card=made)
    assert result.reason is not None and "of the rows look broken" in result.reason
    assert result.reason.endswith("; only 1 missing value in 1 row was filled from its neighbours")
    assert result.values_filled == result.patch.num_rows == 1 and bool(result.data.x.isfinite().all())


class Hopeless(Adapter):
    def propose(self, case: Case) -> Proposal:
        raise Stopped("there is no hope")


def test_a_member_of_a_sequence_that_stops_leaves_the_filled_graph() -> None:
    data = with_holes(complete())
    result = (Impute() >> Hopeless())(model(), data)
    assert result.reason is not None and result.reason.startswith("Hopeless: there is no hope; only ")
    assert bool(result.data.x.isfinite().all()) and same_bits(result.patch.revert(result.data).x, data.x)


# adapters that do not fill, and graphs that cannot be filled


@pytest.mark.parametrize("name", sorted(name for name, kind in ADAPTERS.items() if not kind.fills_missing))
def test_adapters_that_do_not_fill_name_the_remedy(name: str) -> None:
    kind, net, data = ADAPTERS[name], model(), with_holes(complete())
    before = seen_by_a_user(net, data)
    with pytest.raises(GraphMendError) as caught:
        kind()(net, data)
    first = r"x holds 48 missing values, first x[1, 2] = nan"
    remedy = "mend with Impute() first" if kind.changes_model else f"use Impute() >> {kind.__name__}()"
    assert str(caught.value).startswith(first) and remedy in str(caught.value)
    assert_same(before, seen_by_a_user(net, data))


def test_a_sequence_fills_if_its_first_member_does() -> None:
    data = with_holes(complete())
    for adapter in (Identity() >> Impute(), Identity() >> (GTrans() >> Impute())):
        assert not adapter.fills_missing
        with pytest.raises(GraphMendError, match=r"use Impute\(\) >> Identity\(\) >> "):
            adapter(model(), data)
    assert (Gate() >> GTrans()).fills_missing and (Impute() >> (Align() >> Impute())).fills_missing


def test_features_that_require_a_gradient_are_filled_and_refused_without_a_warning() -> None:
    data = with_holes(complete())
    data.x.requires_grad_()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert bool(Impute()(model(), data).data.x.isfinite().all())
        with pytest.raises(GraphMendError, match=r"first x\[1, 2\] = nan, and Identity\(\) does not fill them"):
            Identity()(model(), data)


@filling
@pytest.mark.parametrize("bad", [math.inf, -math.inf])
def test_infinities_are_refused(name: str, bad: float) -> None:
    data = with_holes(complete())
    data.x[7, 2] = bad
    with pytest.raises(GraphMendError, match=rf"x holds 1 infinite values, first x\[7, 2\] = {bad}; replace"):
        FILLING[name](model(), data)


@filling
@carded
def test_where_all_features_are_missing_nothing_can_be_done(name: str, has_card: bool) -> None:
    data = with_holes(complete(), share=2.0)
    with pytest.raises(GraphMendError, match="x holds nothing but missing values"):
        FILLING[name](model(), data, card=card_of() if has_card else None)


def test_a_single_node_needs_a_card() -> None:
    net, made = model(), card_of()
    data = Data(x=complete().x[:1].clone(), edge_index=torch.zeros(2, 1, dtype=torch.long))
    data.x[0, 2] = NAN
    with pytest.raises(GraphMendError, match="a single node, which has no neighbours to fill its missing values"):
        mend(net, data)
    result = mend(net, data, card=made)
    assert float(result.data.x[0, 2]) == pytest.approx(float(made.column_mean[2]))


def test_means_beyond_the_type_are_named() -> None:
    data = complete()
    data.x[:] = 3e38
    data.x[4, 1] = NAN
    data.edge_index = torch.tensor([[4, 4, 4, 4], [0, 1, 2, 3]])
    with pytest.raises(GraphMendError, match="the means to fill missing values"):
        Impute()(model(), data)


def test_a_training_graph_has_to_be_complete() -> None:
    with pytest.raises(GraphMendError, match=r"x holds 48 non-finite values, first x\[1, 2\] = nan"):
        card(model(), with_holes(complete()), task="classes")


class Failing(nn.Module):
    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        raise Boom


def test_nothing_is_touched_where_the_model_fails() -> None:
    net, data = Failing(), with_holes(complete())
    before = seen_by_a_user(net, data)
    with pytest.raises(GraphMendError):
        mend(net, data)
    assert_same(before, seen_by_a_user(net, data))


# the verdict


def sentence(result: Adaptation) -> str:
    assert result.verdict is not None
    return result.verdict.sentence


@carded
def test_the_verdict_says_what_was_filled(has_card: bool) -> None:
    data = with_holes(complete())
    result = Gate()(model(), data, card=card_of() if has_card else None)
    verdict = result.verdict
    assert verdict is not None and verdict.decision == "applied" and verdict.menders == ("impute",)
    assert verdict.sentence.startswith("applied: 48 missing values in 32 rows were filled")
    assert "left alone" not in verdict.sentence
    assert (verdict.evidence[0].name, verdict.evidence[0].value, verdict.flips) == ("missing values", 48.0, 0.0)
    assert "revert" in verdict.next_step and result.questions().numel() == 0


HOW: dict[str, tuple[Any, str]] = {
    "one": (lambda x: x[0, :1], "1 missing value in 1 row was filled from its neighbours"),
    "two": (lambda x: x[0, :2], "2 missing values in 1 row were filled from their neighbours"),
    "isolated": (lambda x: x[-1, :2], "2 missing values in 1 row were filled with the mean of the column"),
    "both": (
        lambda x: x[[0, N - 1], :1],
        "2 missing values in 2 rows were filled: 1 from their neighbours, 1 with the mean of the column",
    ),
    "a column": (lambda x: x[:, 2], "60 missing values in 60 rows were filled with 0, as nothing is known of the"),
    "most": (lambda x: x[:, 1:], "; as 83 % of all values were missing, trust it little"),
}


@pytest.mark.parametrize("case", HOW)
def test_the_sentence_says_from_what_values_were_filled(case: str) -> None:
    part, expected = HOW[case]
    data = complete()
    at = torch.zeros_like(data.x)
    places = torch.arange(N * IN).view(N, IN)
    at.view(-1)[part(places).reshape(-1)] = 1.0
    data.x[at.bool()] = NAN
    assert expected in sentence(Gate()(model(), data)), sentence(Gate()(model(), data))


def test_a_column_without_any_value_gets_the_mean_of_the_training_graph() -> None:
    data, made = complete(), card_of()
    data.x[:, 2] = NAN
    result = Gate()(model(), data, card=made)
    torch.testing.assert_close(result.data.x[:, 2], made.column_mean[2].expand(N))
    assert "with the mean of the column" in sentence(result)


def test_what_is_repaired_after_filling_comes_after_it_in_the_sentence() -> None:
    x = torch.ones(40, 3) + 0.01 * torch.randn(40, 3, generator=rng())
    x[:5] *= 1000.0
    x[20, 1] = NAN
    data = Data(x=x, edge_index=undirected(40, density=0.1))
    net = pyg.GCN(3, 4, 2, 2).eval()
    result = Gate()(net, data)
    verdict = result.verdict
    assert verdict is not None and verdict.menders == ("impute",) and verdict.decision == "applied"
    assert "1 missing value in 1 row was filled from its neighbours; then 5 broken feature rows" in verdict.sentence
    assert float(result.data.x.max()) < 2 and same_bits(result.patch.revert(result.data).x, x)
    full = filled(x, data.edge_index)[0]
    with torch.no_grad():
        torch.testing.assert_close(result.before, net(full, data.edge_index), rtol=1e-4, atol=1e-3)


def test_labels_settle_what_was_not_applied_and_missing_values_stay_filled() -> None:
    """A batch normalisation that remembers something else makes the blind gate propose to align."""
    torch.manual_seed(0)
    net = pyg.GCN(IN, 8, num_layers=2, out_channels=OUT, norm="BatchNorm").eval()
    net.norms[0].module.running_mean += 3.0
    data = with_holes(complete())
    result = Gate()(net, data)
    verdict, questions = result.verdict, result.questions()
    assert verdict is not None and verdict.decision == "partly applied" and questions.numel() > 4
    assert result.alternative is not None and result.alternative.menders == ("impute", "align")
    new = {int(i): int(result.alternative.logits.argmax(1)[i]) for i in questions}
    old = {int(i): int(result.logits.argmax(1)[i]) for i in questions}
    yes, no = result.decide(new), result.decide(old)
    assert yes.verdict is not None and yes.verdict.menders == ("impute", "align")
    assert no.verdict is not None and no.verdict.menders == ("impute",)
    for settled in (yes, no):
        assert bool(settled.data.x.isfinite().all()) and same_bits(settled.patch.revert(settled.data).x, data.x)
        torch.testing.assert_close(settled.before, result.logits)


@pytest.mark.parametrize("has_card", [True, False], ids=["card", "blind"])
def test_broken_rows_are_nobodys_neighbours(has_card: bool) -> None:
    """What is missing is filled as if broken rows were missing, too."""
    data = complete()
    data.x[3:9] *= 1e4
    sound = Data(x=data.x.clone(), edge_index=data.edge_index)
    data.x[20:25, 1] = NAN
    sound.x[3:9] = NAN
    sound.x[20:25, 1] = NAN
    result, expected = (Impute()(model(), graph, card=card_of() if has_card else None) for graph in (data, sound))
    torch.testing.assert_close(result.data.x[20:25, 1], expected.data.x[20:25, 1])
    assert float(result.data.x[20:25].abs().max()) < 1e3
