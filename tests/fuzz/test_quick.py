"""A few hundred random inputs in every run of the tests, and whether the fuzzer itself sees what it should see.

``make fuzz`` runs many more. ``PYTHONPATH=tests python -m fuzz.run --only FAMILY:SEED`` runs one of them again.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch_geometric.data import Data

from fuzz.cases import REFUSAL, RESULT, VIOLATION, Case, Violation, attempt
from fuzz.families import FAMILIES, inputs
from fuzz.graph_defects import sound_graph
from fuzz.own_files import parts_of, sealed, specimens
from fuzz.watching import left_alone
from fuzz.workers import Limits, run_inputs
from graphmend import GraphMendError, Patch, SourceCard
from graphmend.lab.backbones import load_model

GIGABYTE = 1 << 30


def test_every_input_ends_in_a_result_or_a_refusal() -> None:
    outcomes = list(run_inputs(inputs(250), FAMILIES))
    bad = [f"{o.family}:{o.seed} {o.problem!r} ({o.name!r})" for o in outcomes if o.kind == VIOLATION]
    assert not bad, "\n".join([f"{len(bad)} of {len(outcomes)} inputs:", *bad])
    kinds = {family: {o.kind for o in outcomes if o.family == family} for family in FAMILIES}
    assert all(found == {RESULT, REFUSAL} for found in kinds.values()), "the inputs of a family are not all alike"


@pytest.mark.parametrize("family", FAMILIES)
def test_a_seed_stands_for_an_input(family: str, tmp_path: Path) -> None:
    def name(seed: int, attempt: int) -> str:
        folder = tmp_path / f"{seed} {attempt}"
        folder.mkdir()
        return FAMILIES[family](random.Random(f"{family} {seed}"), folder).name

    assert [name(seed, 0) for seed in range(5)] == [name(seed, 1) for seed in range(5)]


LOADS: dict[str, Callable[[Path], object]] = {"model": load_model, "card": SourceCard.load, "patch": Patch.load}


@pytest.mark.parametrize("kind", LOADS)
def test_a_forged_file_gets_past_the_checksum(kind: str, tmp_path: Path) -> None:
    """Otherwise the forgeries would be refused for the checksum alone and try nothing."""
    path = tmp_path / "forged.safetensors"
    path.write_bytes(sealed(kind, parts_of(kind, specimens().files[kind])))
    LOADS[kind](path)


def _raises(error: Exception) -> Callable[[], object]:
    def run() -> object:
        raise error

    return run


class _Lines(GraphMendError):
    """What the class above keeps a message from being."""

    def __str__(self) -> str:
        return "one\ntwo"


def _never_ends() -> object:
    while True:
        time.sleep(0.01)


def _writes(data: Data) -> None:
    data.x.add_(1.0)


def _changes_a_graph() -> object:
    data = sound_graph(random.Random(0))
    return left_alone(lambda: _writes(data), data)


CASES: dict[str, tuple[Callable[[], object], str]] = {
    "a result": (lambda: 3, RESULT),
    "a refusal": (_raises(GraphMendError("give another value")), REFUSAL),
    "an error": (_raises(KeyError("x")), "KeyError"),
    "a refusal of several lines": (_raises(_Lines()), "control characters"),
    "a refusal without a word": (_raises(GraphMendError("")), "without a message"),
    "a promise not kept": (_raises(Violation("it was changed")), "it was changed"),
    "random numbers": (lambda: torch.rand(1), "generators were changed"),
    "no end": (_never_ends, "longer than 0.2 s"),
    "a changed graph": (_changes_a_graph, "changed the Data: x"),
}


@pytest.mark.parametrize("case", CASES)
def test_the_judge_sees(case: str) -> None:
    run, expected = CASES[case]
    outcome = attempt("given", lambda rng, folder: Case("given", run), 0, 0.2, 64 * GIGABYTE)
    assert expected in (outcome.kind, outcome.problem) or expected in outcome.problem
    assert (outcome.kind == VIOLATION) == (expected not in (RESULT, REFUSAL))


def lost(rng: random.Random, folder: Path) -> Case:
    """A family whose input 0 ends the process; all others need too much memory."""
    is_first = rng.getstate() == random.Random("lost 0").getstate()
    return Case("given", lambda: os._exit(3) if is_first else [torch.ones(GIGABYTE // 4) for _ in range(2)])


def test_a_lost_process_is_one_violation_and_the_next_input_runs_in_another() -> None:
    outcomes = list(run_inputs([("lost", 0), ("lost", 1)], {"lost": lost}, 1, Limits(20.0, GIGABYTE)))
    assert [(o.seed, o.kind) for o in outcomes] == [(0, VIOLATION), (1, VIOLATION)]
    assert "ended with code 3" in outcomes[0].problem
    assert "memory" in outcomes[1].problem
