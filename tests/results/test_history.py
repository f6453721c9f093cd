"""Steps and discrete graphs are noted as they were, whether their numbers are read at once or all together."""

from __future__ import annotations

import math
import time

import pytest
import torch

from graphmend.engine.report import Measured, Stopped
from graphmend.results.history import History, Step
from support.graphs import DEVICES

devices = pytest.mark.parametrize("device", DEVICES)
TERMS = ("pull", "push")


def measured(*numbers: float, device: str = "cpu") -> Measured:
    return Measured(TERMS, torch.tensor(numbers, device=device))


def history(device: str = "cpu", **options: object) -> History:
    return History(torch.device(device), **options)


@devices
@pytest.mark.parametrize("is_watched", [False, True])
@pytest.mark.parametrize("number", [0, 1, 7])
def test_steps_are_what_was_measured(number: int, is_watched: bool, device: str) -> None:
    seen: list[Step] = []
    log = history(device, callback=seen.append if is_watched else None)
    for k in log.steps(number):
        log.add(k, "edge" if k % 3 == 2 else "feature", measured(k, k + 1, k + 2, k + 3, device=device))
        assert len(log.finished_steps) == (k + 1 if is_watched or device == "cpu" else 0)  # a GPU works ahead
    assert len(log.read()) == number
    for k, step in enumerate(log.read()):
        assert (step.index, step.kind) == (k, "edge" if k % 3 == 2 else "feature")
        assert step.loss == 2 * k + 1 and step.terms == {"pull": k, "push": k + 1}
        assert step.gradient_norm == k + 2 and step.flipped == k + 3
    seconds = [step.seconds for step in log.read()]
    assert seconds == sorted(seconds) and all(0 <= s <= log.seconds for s in seconds)
    assert log.finished_steps == log.read() and (seen == log.read() or not is_watched)


@devices
@pytest.mark.parametrize("is_watched", [False, True])
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("place, reason", [(1, "surrogate loss is not finite .*'push'"), (2, "gradient is not finite")])
def test_what_is_not_finite_stops_it_at_that_step(
    place: int, reason: str, bad: float, is_watched: bool, device: str
) -> None:
    seen: list[Step] = []
    log = history(device, callback=seen.append if is_watched else None)
    numbers = [1.0, 1.0, 1.0, 0.0]
    for k in range(2):
        log.add(k, "feature", measured(*numbers, device=device))
    numbers[place] = bad
    with pytest.raises(Stopped, match=f"{reason}.* at step 2"):
        log.add(2, "feature", measured(*numbers, device=device))
        log.add(3, "feature", measured(1.0, 1.0, 1.0, 0.0, device=device))
        log.read()
    assert [step.index for step in log.finished_steps] == [0, 1] and (len(seen) == 2 or not is_watched)


def test_a_limit_of_time() -> None:
    log = history()
    taken = []
    for k in log.steps(1000, time_limit=0.05):
        taken.append(k)
        time.sleep(0.02)
    assert taken == list(range(len(taken))) and 1 <= len(taken) <= 4
    assert list(history().steps(3, time_limit=100.0)) == [0, 1, 2]


@devices
def test_a_limit_of_time_waits_for_every_step(device: str) -> None:
    log = history(device)
    for k in log.steps(2, time_limit=100.0):
        log.add(k, "feature", measured(1, 1, 1, 0, device=device))
        assert len(log.finished_steps) == k + 1


def test_a_progress_bar(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert list(history(progress=True).steps(3, label="counting")) == [0, 1, 2]
    assert capsys.readouterr() == ("", "")  # a log file is no place for a bar
    monkeypatch.setenv("FORCE_COLOR", "1")  # by which rich takes any stream for a terminal
    assert list(history(progress=True).steps(3, label="counting")) == [0, 1, 2]
    out, err = capsys.readouterr()
    assert out == "" and err != ""
    assert list(history().steps(3)) == [0, 1, 2]
    assert capsys.readouterr() == ("", "")


# ---------------------------------------------------------------- discrete graphs


@devices
@pytest.mark.parametrize("is_watched", [False, True])
def test_the_first_of_the_best_is_taken(is_watched: bool, device: str) -> None:
    log = history(device, callback=(lambda step: None) if is_watched else None)
    assert log.candidates() == [] and log.best() is None
    losses = [math.nan, 0.5, -0.25, -math.inf, -0.25, math.inf]
    flips = [torch.arange(9, device=device) < k for k in range(len(losses))]
    for k, loss in enumerate(losses):
        log.add_candidate(str(k), flips[k], torch.tensor(loss, device=device))
    assert [(c.name, c.flips) for c in log.candidates()] == [(str(k), k) for k in range(len(losses))]
    assert [c.loss for c in log.candidates()][1:] == losses[1:] and math.isnan(log.candidates()[0].loss)
    assert log.best() is flips[2]


def test_none_that_is_finite() -> None:
    log = history()
    log.add_candidate("identity", torch.zeros(3, dtype=torch.bool), torch.tensor(math.nan))
    with pytest.raises(Stopped, match="every discrete graph is not finite"):
        log.best()
