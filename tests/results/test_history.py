"""Steps and discrete graphs as they are noted: in order, complete up to a failure, the best one kept."""

from __future__ import annotations

import logging
import math

import pytest
import torch

from graphmend.engine.engine import Measured, Stopped
from graphmend.results.history import Candidate, History, Step

CPU = torch.device("cpu")


def measured(pull: float, push: float = 0.0, norm: float = 1.0, flipped: float = 0.0) -> Measured:
    return Measured(("pull", "push"), torch.tensor([pull, push, norm, flipped], dtype=torch.float64))


@pytest.mark.parametrize("number", [0, 1, 7])
def test_steps_are_noted_and_told_in_order(number: int) -> None:
    seen: list[Step] = []
    history = History(CPU, seen.append)
    for index in history.steps(number):
        kind = "edge" if index % 3 == 2 else "feature"
        history.add(index, kind, measured(float(index), 0.5, 2.0, 3.0))
        assert len(seen) == index + 1, "a callback hears of a step when it is done"
    assert history.read() == seen == history.finished_steps
    for index, step in enumerate(seen):
        assert (step.index, step.kind) == (index, "edge" if index % 3 == 2 else "feature")
        assert step.loss == index + 0.5 and step.terms == {"pull": index, "push": 0.5}
        assert (step.gradient_norm, step.flipped) == (2.0, 3.0)
    seconds = [step.seconds for step in seen]
    assert seconds == sorted(seconds) and all(0 <= value <= history.seconds for value in seconds)


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (measured(math.nan), "the surrogate loss is not finite .*'pull': nan.* at step 2"),
        (measured(1.0, -math.inf), "the surrogate loss is not finite .* at step 2"),
        (measured(1.0, norm=math.inf), "the gradient is not finite at step 2"),
    ],
)
def test_what_is_not_finite_ends_it_at_that_step(bad: Measured, reason: str) -> None:
    history = History(CPU)
    history.add(0, "feature", measured(1.0))
    history.add(1, "feature", measured(0.5))
    with pytest.raises(Stopped, match=reason):
        history.add(2, "feature", bad)
    assert [step.index for step in history.finished_steps] == [0, 1]


def test_the_first_of_the_best_candidates_wins() -> None:
    history = History(CPU)
    assert history.candidates() == [] and history.best() is None
    losses = [math.nan, 0.5, -0.25, -math.inf, -0.25, math.inf]
    flips = [torch.arange(9) < k for k in range(len(losses))]
    for k, loss in enumerate(losses):
        history.add_candidate(f"number {k}", flips[k], torch.tensor(loss))
    assert [(c.name, c.flips) for c in history.candidates()] == [(f"number {k}", k) for k in range(len(losses))]
    assert history.candidates()[2] == Candidate("number 2", -0.25, 2)
    best = history.best()
    assert best is not None and torch.equal(best, flips[2])


def test_candidates_without_a_finite_loss_end_it() -> None:
    history = History(CPU)
    for loss in (math.nan, math.inf):
        history.add_candidate("bad", torch.ones(3, dtype=torch.bool), torch.tensor(loss))
    with pytest.raises(Stopped, match="every discrete graph is not finite"):
        history.best()
    assert len(history.candidates()) == 2


def test_no_step_is_begun_when_the_time_is_up(caplog: pytest.LogCaptureFixture) -> None:
    history = History(CPU)
    with caplog.at_level(logging.INFO, "graphmend"):
        assert list(history.steps(5, time_limit=1e-9)) == []
    assert "stopped after 0 of 5 steps" in caplog.text
    assert list(history.steps(5, time_limit=1e6)) == list(range(5)) == list(history.steps(5))
