"""The simulated cluster: closed forms where there are some, and the times that were measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.cluster_model import SHARDS, SUMS, TOLERANCE, Cluster, Step, compared, simulate

TIMES = st.lists(st.floats(0.1, 10), min_size=1, max_size=40)


@pytest.mark.parametrize(
    ("machines", "cores", "tasks", "rounds"), [(1, 1, 5, 5), (2, 1, 5, 3), (2, 4, 9, 2), (3, 2, 6, 1)]
)
def test_equal_tasks_take_as_many_rounds_as_there_are(machines: int, cores: int, tasks: int, rounds: int) -> None:
    step = Step([2.0] * tasks, alone=1.0, sent=10, back=30)
    found = simulate([step, step], Cluster(machines, cores, network=10, copy=5))
    sending = 10 / 5 + (2 * 10 / 10 if machines > 1 else 0) + 30 / 5
    assert found.seconds == pytest.approx(2 * (1 + sending + 2 * rounds))
    assert (found.alone, found.again) == (2, 0) and found.sending == pytest.approx(2 * sending)


@given(times=TIMES, machines=st.integers(1, 8))
def test_no_cluster_is_faster_than_its_cores_or_slower_than_one(times: list[float], machines: int) -> None:
    found = simulate([Step(times)], Cluster(machines)).seconds
    least = max(sum(times) / machines, max(times))
    assert least - 1e-9 <= found <= min(sum(times), least * 2) + 1e-9  # Graham's bound for handing out in any order


def test_who_hands_out_is_a_bound_of_its_own() -> None:
    assert simulate([Step([0.01] * 100)], Cluster(50, dispatch=0.5)).seconds == pytest.approx(100 * 0.5 + 0.01)


@given(times=TIMES, seed=st.integers(0, 99))
def test_machines_that_die_cost_time_and_the_tasks_are_done_again(times: list[float], seed: int) -> None:
    calm, doomed = Cluster(3, cores=2), Cluster(3, cores=2, lifetime=40, notice=1)
    lost = simulate([Step(times)], doomed, seed)
    assert lost.seconds >= simulate([Step(times)], calm).seconds - max(times) or lost.again == 0
    if lost.again == 0:
        assert lost.seconds == pytest.approx(simulate([Step(times)], calm).seconds)


@pytest.mark.parametrize("step", ["card", "mend"])
@pytest.mark.parametrize("file", [SHARDS, SUMS], ids=["shards", "sums"])
def test_the_measured_times_come_out(file: Path, step: str) -> None:
    stored: dict[str, Any] = json.loads(file.read_text())
    rows = compared(stored, step)
    assert {1, 2} <= {row["workers"] for row in rows}
    for row in rows:
        if row["workers"] <= stored["cores"]:
            assert row["simulated"] == pytest.approx(row["measured"], rel=TOLERANCE), row
