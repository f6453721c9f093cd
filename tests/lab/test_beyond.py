"""The harness by which menders are judged: it resumes, it hides labels, and it counts what it says it counts."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch_geometric.data import Data

from graphmend import Gate, SourceCard
from graphmend.errors import GraphMendError
from graphmend.lab.beyond import archive, asking, rules, sources
from graphmend.lab.beyond.baselines import hidden
from graphmend.lab.beyond.cells import ORACLE, cells_of, summary, with_oracle
from graphmend.lab.beyond.evidence import RULES, evidence, numbers_of
from graphmend.lab.beyond.measure import measure_source
from graphmend.lab.beyond.methods import METHODS, VERSIONS
from graphmend.lab.beyond.rows import Row, append, lines_of, read_rows, row_path
from graphmend.lab.beyond.rules import CANDIDATES, Table
from graphmend.lab.beyond.sources import Source, model_of, model_path, rounded, splits_of
from graphmend.lab.beyond.tables import report
from graphmend.lab.beyond.targets import half, permuted, shuffled_edges, targets_of, training_graphs
from graphmend.outputs import predictions
from graphmend.results.scores import score
from support.gate_cases import (
    attacked,
    card_of,
    moved,
    planted,
    reading_circles,
    trained,
    with_bad_rows,
    with_other_classes,
    with_unseen_columns,
)
from support.graphs import rng

pytestmark = pytest.mark.usefixtures("one_thread")
WINE = Source("wine", "gcn")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with one model, hardly trained."""
    folder = tmp_path_factory.mktemp("store")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sources.SETS, "wine", replace(sources.SETS["wine"], epochs=3))
        model_of(WINE, folder)
    return folder


def test_measuring_goes_on_where_it_stopped(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert measure_source(WINE, store, tmp_path, methods=["identity"]) == 3
    path = row_path(WINE, tmp_path)
    whole = path.read_text()
    assert whole.count("about") == 1
    assert measure_source(WINE, store, tmp_path, methods=["identity"]) == 0
    assert path.read_text() == whole
    path.write_text(whole[:-20])  # as if the process had been killed while it wrote its last line
    assert len(read_rows(tmp_path)) == 2
    assert measure_source(WINE, store, tmp_path, methods=["identity"]) == 1
    assert len(read_rows(tmp_path)) == 3
    monkeypatch.setitem(VERSIONS, "identity", "2")
    assert measure_source(WINE, store, tmp_path, methods=["identity"]) == 3
    assert {row["version"] for row in read_rows(tmp_path)} == {"2"}
    assert all(row["after"] == row["before"] and row["flips"] == 0 for row in read_rows(tmp_path))
    assert "| identity | 3 | +0.00 |" in report(tmp_path, ["identity"])


def test_an_error_is_noted_and_tried_again(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*arguments: object) -> None:
        raise GraphMendError("no such luck")

    identity = METHODS["identity"]
    monkeypatch.setitem(METHODS, "identity", fails)
    measure_source(WINE, store, tmp_path, methods=["identity"])
    assert "no such luck" in row_path(WINE, tmp_path).read_text() and not read_rows(tmp_path)
    monkeypatch.setitem(METHODS, "identity", identity)
    assert measure_source(WINE, store, tmp_path, methods=["identity"]) == 3


def test_methods_see_no_label_that_is_scored(store: Path) -> None:
    for target in targets_of(WINE, model_of(WINE, store), store):
        seen = hidden(target.data)
        assert "mask" not in seen
        assert bool((seen.y[target.data.mask] == -1).all()) and bool((seen.y[seen.train_mask] >= 0).all())
    for graph in training_graphs(WINE):
        assert torch.equal(graph.y >= 0, graph.train_mask | graph.val_mask)


def test_unshifted_graphs_are_the_same_graph(store: Path) -> None:
    model, data = model_of(WINE, store), splits_of(WINE).test[0]
    value = score("accuracy", model(data.x, data.edge_index), data.y, data.mask)
    for change in (permuted, shuffled_edges):
        other = change(data, 1)
        assert not torch.equal(other.edge_index, data.edge_index)
        assert score("accuracy", model(other.x, other.edge_index), other.y, other.mask) == value
    assert half(data, 1).num_nodes < data.num_nodes


def test_archives_bring_the_store_back(store: Path, tmp_path: Path) -> None:
    written = archive.pack(store, tmp_path / "packed", jobs=1)
    assert archive.unpack(written, tmp_path / "store") == 1
    assert model_path(WINE, tmp_path / "store").read_bytes() == model_path(WINE, store).read_bytes()


def test_a_model_that_was_damaged_is_trained_again(tmp_path: Path) -> None:
    path = model_path(WINE, tmp_path)
    model_of(WINE, tmp_path)
    whole = path.read_bytes()
    for content in (b"", whole[: len(whole) // 2]):
        path.write_bytes(content)
        model_of(WINE, tmp_path)
        assert path.read_bytes() == whole


def test_rows_that_are_torn_are_left_out_and_continued_on_a_line_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "rows.jsonl"
    append(path, {"a": 1}, {"a": 2})
    path.write_bytes(path.read_bytes() + b'{"a": 3, "b": "\xff' + b"[" * 100_000)
    append(path, {"a": 4})
    assert list(lines_of(path)) == [{"a": 1}, {"a": 2}, {"a": 4}]


def test_weights_are_rounded_to_the_nearest() -> None:
    weight = torch.randn(1000)
    near = rounded(weight, bits=8)
    assert float(((near - weight) / weight).abs().max()) <= 2**-9
    assert torch.equal(rounded(near, bits=8), near)


def test_cells_average_seeds_and_the_oracle_takes_the_best() -> None:
    def row(method: str, seed: int, after: float) -> Row:
        common = {"name": "wine", "backbone": "gcn", "target": "clean", "kind": "unshifted", "seconds": 1.0}
        return {**common, "seed": seed, "method": method, "before": 50.0, "after": after, "flips_all": 0.1}

    cells = cells_of([row("a", 0, 49.0), row("a", 1, 50.0), row("b", 0, 51.0), row("b", 1, 54.0)])
    assert [(cell.method, cell.change, cell.seeds) for cell in cells] == [("a", -0.5, 2), ("b", 2.5, 2)]
    assert summary(cells[:1]).harmed == 1.0 and summary(cells[1:]).harmed == 0.0
    assert [cell.change for cell in with_oracle(cells) if cell.method == ORACLE] == [2.5]
    assert [cell.change for cell in with_oracle(cells[:1]) if cell.method == ORACLE] == [0.0]


GRAPHS: dict[str, Callable[[], Data]] = {
    "the training graph": planted,
    "a fresh draw": lambda: planted(1),
    "moved": lambda: moved(planted(1)),
    "broken rows": lambda: with_bad_rows(planted(1)),
    "broken rows and moved": lambda: with_bad_rows(moved(planted(1))),
    "other classes": with_other_classes,
    "unseen columns": lambda: with_unseen_columns(moved(planted(1))),
    "broken rows and unseen columns": lambda: with_unseen_columns(with_bad_rows(planted(1))),
}
CASES = [(name, graph) for name in ("gcn", "stock GIN") for graph in GRAPHS]
DONE = {
    (): "leave",
    ("impute",): "rows",
    ("purify",): "purify",
    ("align",): "align",
    ("impute", "purify"): "repaired purify",
    ("impute", "align"): "repaired align",
}


@functools.cache
def before_the_gate(name: str, graph: str) -> tuple[nn.Module, SourceCard, Data]:
    return trained(name), card_of(name), GRAPHS[graph]()


def row_of(model: nn.Module, card: SourceCard, data: Data) -> Row:
    """The evidence of a graph as it is stored."""
    numbers, outputs = evidence(model, data, card)
    scores = {name: 100 * score("accuracy", logits, data.y) for name, logits in outputs.items()}
    return {"source": "wine-gcn-0", "numbers": numbers_of(numbers), "scores": scores}


def assert_the_table_decides_like_the_gate(cases: Sequence[tuple[nn.Module, SourceCard, Data]]) -> set[str]:
    table = Table([row_of(*case) for case in cases])
    results = [Gate()(model, data, card=card) for model, card, data in cases]
    done = [DONE[result.verdict.menders] for result in results if result.verdict is not None]
    assert [CANDIDATES[position] for position in table.decisions({})] == done
    for result, change, row, (_, _, data) in zip(results, table.changes({}), table.rows, cases, strict=True):
        assert change == pytest.approx(100 * score("accuracy", result.logits, data.y) - row["scores"]["leave"])
    return set(done)


def test_a_table_of_evidence_decides_like_the_gate() -> None:
    done = assert_the_table_decides_like_the_gate([before_the_gate(*case) for case in CASES])
    assert done >= {"leave", "rows", "align"}


def test_a_table_of_evidence_cuts_edges_where_the_gate_does() -> None:
    model, card, data = attacked()
    broken = data.clone()
    broken.x[::40] = 3.0 * torch.rand(broken.x[::40].shape, generator=rng(0))
    cases = [(model, card, graph) for graph in (reading_circles(), data, broken)]
    assert assert_the_table_decides_like_the_gate(cases) == {"leave", "purify", "repaired purify"}


def test_a_table_of_evidence_asks_about_what_the_gate_proposes() -> None:
    for case in CASES:
        model, card, data = before_the_gate(*case)
        _, outputs = evidence(model, data, card)
        table, result = Table([row_of(model, card, data)]), Gate()(model, data, card=card)
        proposed = result.logits
        if result.patch.is_empty and result.alternative is not None:
            proposed = result.alternative.logits
        name = CANDIDATES[table.proposals()[0]]
        assert torch.equal(predictions(outputs[name]), predictions(proposed)), (case, name)


FAMILIES = ("wine", "breast-cancer", "csbm")


def made_up(name: str, seed: int, signs: Mapping[tuple[str, str], float] | None = None, **scores: float) -> Row:
    """Evidence of a graph without broken rows: signs as given, all others just on the side that speaks for acting.

    Where none is given, all of them speak for it more or less clearly, and some against it.
    """
    random, numbers = np.random.default_rng(seed), {"rows: number": 0.0, "rows: share": 0.0}
    for rule in ("columns", "edges", "features"):
        for check in (check for part in RULES[rule] for check in part):
            by = random.normal(0.7, 0.6) * abs(check.limit) if signs is None else 0.0
            value = check.limit + (by if check.above else -by)
            numbers[f"{rule}: {check.sign}"] = (signs or {}).get((rule, check.sign), value)
    own = {candidate: 50 + random.normal() for candidate in ("purify", "align")} | scores
    return {"source": f"{name}-gcn-0", "numbers": numbers, "scores": {**own, "leave": 50.0}}


def repaired(row: Row, **scores: float) -> Row:
    """The same graph with broken rows, whose repair is right and leaves nothing else to do."""
    signs = {"number": 5.0, "share": 0.1, "changed": 5.0, "rise_of_the_shift": 0.5}
    numbers = {f"rows: {sign}": value for sign, value in signs.items()}
    numbers |= {f"repaired {name}": value for name, value in row["numbers"].items() if "rows: " not in name}
    numbers |= {"repaired edges: excess": 0.0, "repaired features: shift": 0.0}
    return {**row, "numbers": {**row["numbers"], **numbers}, "scores": {**row["scores"], **scores}}


def made_up_rows(each: int) -> list[Row]:
    return [made_up(name, 1000 * number + i) for number, name in enumerate(FAMILIES) for i in range(each)]


@pytest.mark.parametrize("best", [1, 7])
def test_limits_are_chosen_without_the_family_they_are_judged_on(best: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "TRIED", 60)
    monkeypatch.setattr(rules, "BEST", best)
    rows, random = made_up_rows(40), np.random.default_rng(0)
    before = {judged.family: judged for judged in rules.left_out(Table(rows))}
    assert set(before) == set(FAMILIES)
    for family in FAMILIES:
        own = [i for i, row in enumerate(rows) if row["source"].startswith(family)]
        others = list(rows)
        for i, other in zip(own, random.permutation(own), strict=True):
            others[i] = {**rows[i], "scores": {**rows[other]["scores"], "align": 40.0, "purify": 60.0}}
        after = {judged.family: judged for judged in rules.left_out(Table(others))}
        assert after[family].limits == before[family].limits, "its own scores do not count"
        assert after[family].elsewhere == before[family].elsewhere
        assert after[family].here != before[family].here and after[family].shipped != before[family].shipped
        assert any(after[name].limits != before[name].limits for name in FAMILIES), "those of others do"


def test_the_limits_that_are_chosen_are_the_best_of_all_on_the_other_families(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "TRIED", 60)
    monkeypatch.setattr(rules, "BEST", 1)
    table = Table(made_up_rows(12))

    def worth(limits: rules.Limits, without: str) -> float:
        """The mean over families of the mean gain, less what harm costs."""
        found = []
        for family in FAMILIES:
            changes = table.changes(limits)[table.family == family]
            found.append(changes.mean() - rules.PRICE * (changes < -0.3).mean())
        return float(np.mean([value for family, value in zip(FAMILIES, found, strict=True) if family != without]))

    for judged in rules.left_out(table):
        assert worth(judged.limits, judged.family) == pytest.approx(
            max(worth(limits, judged.family) for limits in rules.settings())
        )
        here = table.family == judged.family
        assert judged.here == rules.judged(judged.changes, table.decisions(judged.limits)[here])
        assert judged.here.graphs == 12 and judged.elsewhere.graphs == 24


def test_the_ablation_names_the_check_that_prevents_harm() -> None:
    """Everything speaks for aligning, which would harm, but for one check."""
    edges = {("edges", "excess"): 0.0}
    rows = [
        made_up("wine", 0, {**edges, ("features", "backing"): -1.0}, align=40.0),
        made_up("wine", 1, edges, align=55.0),
        repaired(made_up("wine", 2, edges), rows=51.0),
    ]
    found = rules.ablation(Table(rows))
    shipped = found["", ""]
    assert shipped == rules.Outcome(graphs=3, gain=2.0, harmed=0.0, worst=0.0, acted=pytest.approx(2 / 3))
    assert found["features", "backing"].worst == -10.0 and found["features", "backing"].gain == pytest.approx(-4 / 3)
    assert found["edges", "excess"].gain != shipped.gain, "nothing else speaks against cutting edges"
    assert found["rows", "number"].graphs == 1, "of the other two it is not known what a repair would do"
    decisive = {("features", "backing"), ("edges", "excess"), ("rows", "number"), ("features", "shift")}
    every = {(rule, check.sign) for rule, parts in RULES.items() for part in parts for check in part}
    assert set(found) == {("", ""), *every}
    assert all(found[name] == shipped for name in every - decisive)


NODES, FLIPPED = 400, 40


def natural(own: str, right: str | None, wrong: str | None) -> Row:
    """A graph on which one candidate is right at 40 nodes where the model is not, and another one is wrong there."""
    backing = {("features", "backing"): 1.0 if own == "align" else -1.0, ("edges", "excess"): 0.0}
    y, leave = np.zeros(NODES, dtype=int), np.zeros(NODES, dtype=int)
    nodes = np.arange(FLIPPED)
    leave[nodes] = 1
    flips: dict[str, Any] = {name: [[], []] for name in ("leave", "align", "half align", "purify")}
    if right is not None:
        flips[right] = [nodes.tolist(), [0] * FLIPPED]
    if wrong is not None:
        flips[wrong] = [(nodes + 100).tolist(), [2] * FLIPPED]
    return {**made_up("wine", 0, backing), "y": y.tolist(), "leave": leave.tolist(), "flips": flips}


GATE, ANYWHERE, SEVERAL = (
    "the gate's proposal, at nodes that it flips",
    "the gate's proposal, at random nodes",
    "several candidates, where they differ",
)


def gains(found: dict[tuple[str, int], rules.Outcome], way: str) -> list[float]:
    """What a way of asking gains, with more and more labels."""
    return [found[way, number].gain for number in asking.LABELS if (way, number) in found]


def test_labels_settle_whether_a_proposal_helps() -> None:
    """Of 400 nodes 40 flip, which are 10 points; five labels at such nodes are enough."""
    helps = asking.asked(Table([natural("leave", right="align", wrong=None)]))
    assert gains(helps, GATE) == pytest.approx([0.0, 10.0, 10.0, 10.0])
    assert gains(helps, asking.ORACLE) == pytest.approx([10.0]) and helps[GATE, 0].graphs == asking.DRAWS
    assert helps[ANYWHERE, 10].gain < 5.0, "of ten random nodes one flips"
    harms = asking.asked(Table([natural("leave", right=None, wrong="align")]))
    assert {gain for way in (GATE, ANYWHERE, SEVERAL) for gain in gains(harms, way)} == {0.0}
    done = asking.asked(Table([natural("align", right=None, wrong="align")]))
    assert gains(done, GATE) == pytest.approx([-10.0, 0.0, 0.0, 0.0])
    assert [done[GATE, number].harmed for number in asking.LABELS] == [1.0, 0.0, 0.0, 0.0]
    assert gains(done, asking.ORACLE) == [0.0]


def test_of_several_candidates_labels_choose_the_one_that_leads() -> None:
    found = asking.asked(Table([natural("leave", right="purify", wrong="align")]))
    assert gains(found, asking.ORACLE) == pytest.approx([10.0])
    assert gains(found, SEVERAL)[0] == gains(found, GATE)[-1] == 0.0
    assert gains(found, SEVERAL)[-1] == pytest.approx(10.0)


def test_graphs_without_predictions_are_not_asked_about() -> None:
    assert asking.asked(Table([made_up("wine", 0)])) == {}
