"""Verdicts: what holds, what a person reads, and what goes into a file."""

from __future__ import annotations

import dataclasses
import json

import pytest

from graphmend.results.verdict import APPLIED, LEFT_ALONE, PARTLY, Evidence, Verdict


@pytest.mark.parametrize(
    ("value", "above", "holds"),
    [(2.0, True, True), (1.0, True, True), (0.5, True, False), (2.0, False, False), (1.0, False, True)],
)
def test_evidence_holds_on_the_right_side_of_its_threshold(value: float, above: bool, holds: bool) -> None:
    assert Evidence("shift", value, 1.0, above).holds is holds


@pytest.mark.parametrize("above", [True, False])
def test_what_is_not_a_number_speaks_for_nothing(above: bool) -> None:
    assert not Evidence("shift", float("nan"), 1.0, above).holds


def test_evidence_reads_as_a_sentence() -> None:
    assert str(Evidence("shift", 2.34567, 1.0, True)) == "shift: 2.35 (found: at least 1)"
    assert str(Evidence("shift", 0.5, 1.0, True)) == "shift: 0.5 (not found: at least 1)"
    assert str(Evidence("flips", 0.25, 0.1, False)) == "flips: 0.25 (above the limit: at most 0.1)"
    assert str(Evidence("flips", 0.05, 0.1, False)) == "flips: 0.05 (within the limit: at most 0.1)"


def verdict() -> Verdict:
    evidence = (Evidence("shift", 2.5, 1.0, True), Evidence("flips", 0.25, 0.1, False))
    return Verdict(PARTLY, ("Impute", "Align"), "card", "The features have shifted.", evidence, 0.25, "Look at it.")


def test_a_verdict_reads_as_its_reason() -> None:
    assert str(verdict()) == "The features have shifted."
    assert len({APPLIED, PARTLY, LEFT_ALONE}) == 3


def test_a_summary_survives_json() -> None:
    summary = verdict().summary()
    assert json.loads(json.dumps(summary, allow_nan=False)) == {
        "decision": "partly applied",
        "menders": ["Impute", "Align"],
        "regime": "card",
        "sentence": "The features have shifted.",
        "evidence": [
            {"name": "shift", "value": 2.5, "threshold": 1.0, "above": True, "holds": True},
            {"name": "flips", "value": 0.25, "threshold": 0.1, "above": False, "holds": False},
        ],
        "flips": 0.25,
        "next_step": "Look at it.",
        "task": "unknown",
    }


def test_nothing_was_done() -> None:
    left = Verdict(LEFT_ALONE, (), "blind", "Nothing has shifted.")
    assert (left.evidence, left.flips, left.next_step) == ((), 0.0, "")
    assert json.loads(json.dumps(left.summary()))["menders"] == []
    with pytest.raises(dataclasses.FrozenInstanceError):
        left.flips = 1.0  # type: ignore[misc]
