"""The tables of the gate's rules ask about signs that exist, and say something that can be read."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest

from graphmend.adapters import Gate
from graphmend.adapters.broken_rows import outlying_rows
from graphmend.adapters.case import Needs, prepare
from graphmend.adapters.gate.blind_rule import OUTLYING
from graphmend.adapters.gate.card_rule import COLUMNS, EDGES, FEATURES, ROWS
from graphmend.adapters.gate.checks import Check, Log, at_least, at_most, first_doubt
from graphmend.adapters.gate.examination import Examination
from graphmend.adapters.gate.signs import AddedEdges, BrokenRows, Repair, ShiftedFeatures
from support.gate_cases import card_of, moved, planted, trained, with_bad_rows

TABLES: dict[type, tuple[Check, ...]] = {
    Examination: COLUMNS,
    BrokenRows: ROWS[0] + ROWS[1],
    AddedEdges: EDGES[0] + EDGES[1],
    ShiftedFeatures: FEATURES[0] + FEATURES[1],
    Repair: OUTLYING,
}
CHECKS = [pytest.param(kind, check, id=f"{kind.__name__}.{check.sign}") for kind in TABLES for check in TABLES[kind]]


@pytest.fixture(scope="module")
def signs() -> Iterator[dict[type, object]]:
    """What the tables are asked of, for a graph with broken rows whose features have moved."""
    model, data = trained("gcn"), with_bad_rows(moved(planted(1)))
    made = card_of("gcn")
    with prepare(model, data, Needs.of(Gate()), card=made) as case:
        exam = Examination(case, made)
        before = exam.read(exam.features())
        found = (BrokenRows(exam, before), AddedEdges(exam, before, None), ShiftedFeatures(exam, before))
        yield {type(thing): thing for thing in (exam, *found, Repair(case, outlying_rows(data.x)))}


@pytest.mark.parametrize(("kind", "check"), CHECKS)
def test_every_sign_is_an_attribute_that_holds_a_number(kind: type, check: Check, signs: dict[type, object]) -> None:
    assert hasattr(kind, check.sign)
    value = getattr(signs[kind], check.sign)
    assert isinstance(value, (int, float)) and math.isfinite(value)


@pytest.mark.parametrize(("kind", "check"), CHECKS)
def test_what_follows_can_be_said_of_any_value(kind: type, check: Check) -> None:
    assert check.words and not check.words.endswith(".")
    for value in (0.0, 1 / 3, 1e6):
        said = check.otherwise.format(value=value, limit=check.limit)
        assert "{" not in said and not said.endswith(".")


@pytest.mark.parametrize("kind", TABLES)
def test_no_table_asks_about_a_sign_twice(kind: type) -> None:
    """Limits are named by table and sign where rules are judged."""
    names = [check.sign for check in TABLES[kind]]
    assert len(names) == len(set(names))


class Asked:
    """Signs that note which of them are measured."""

    def __init__(self, **values: float) -> None:
        self.values, self.measured = values, list[str]()

    def __getattr__(self, name: str) -> float:
        self.measured.append(name)
        return self.values[name]


def test_the_first_check_that_does_not_hold_ends_the_questions() -> None:
    checks = (
        at_least("size", 2, "size", "too small: {value:.0f}"),
        at_most("age", 5, "age", "too old"),
        at_least("last", 0, "last"),
    )
    for values, doubt, measured in (
        ({"size": 2.0, "age": 5.0, "last": 0.0}, None, ["size", "age", "last"]),
        ({"size": 1.0, "age": 9.0, "last": 0.0}, "too small: 1", ["size"]),
        ({"size": 3.0, "age": 9.0, "last": 0.0}, "too old", ["size", "age"]),
        ({"size": math.nan, "age": 5.0, "last": 0.0}, "too small: nan", ["size"]),
        ({"size": 3.0, "age": 5.0, "last": -1.0}, "", ["size", "age", "last"]),
    ):
        log = Log()
        asked = Asked(**values)
        assert first_doubt(checks, asked, log) == doubt
        assert asked.measured == [evidence.name for evidence in log.evidence] == measured
        assert [evidence.holds for evidence in log.evidence] == [True] * (len(measured) - 1) + [doubt is None]
