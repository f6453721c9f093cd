"""Numbers that are read later are the same."""

from __future__ import annotations

import math

import pytest
import torch

from graphmend.results.adaptation import Step
from graphmend.results.history import AHEAD, Candidates, Steps, Stopped


def take(steps: Steps, number: int, ahead: bool) -> None:
    """Feature steps and, every third time, an edge step, all found in the same place of memory."""
    places = {"feature": torch.empty(3), "edge": torch.empty(4)}
    for k in range(number):
        kind = "edge" if k % 3 == 2 else "feature"
        found = places[kind].copy_(torch.arange(4.0)[: len(places[kind])] + k)
        steps.note(k, kind, ["pull", "push"], found, 0.5 * k, ahead=ahead)


@pytest.mark.parametrize("number", [0, 1, 7, AHEAD, 2 * AHEAD + 5])
@pytest.mark.parametrize("ahead", [False, True])
def test_history(number: int, ahead: bool) -> None:
    seen: list[Step] = []
    steps = Steps(seen.append)
    take(steps, number, ahead)
    assert len(steps.read_so_far) == (number - number % AHEAD if ahead else number)
    flipped = 0.0
    for k, step in enumerate(steps.read()):
        flipped = k + 3.0 if k % 3 == 2 else flipped
        kind = "edge" if k % 3 == 2 else "feature"
        assert step == Step(k, kind, 2.0 * k + 1, {"pull": k, "push": k + 1.0}, k + 2.0, flipped, 0.5 * k)
    assert steps.read() == seen and len(seen) == number


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize(("numbers", "reason"), [((1.0, math.nan), "loss"), ((1.0, 1.0, math.inf), "gradient")])
def test_what_is_not_finite_ends_it_at_that_step(numbers: tuple[float, ...], reason: str, ahead: bool) -> None:
    steps, bad = Steps(), torch.tensor([*numbers, 0.0, 0.0][:3])
    take(steps, 2, ahead)
    with pytest.raises(Stopped, match=f"{reason}.*step 2"):
        steps.note(2, "feature", ["pull", "push"], bad, 0.0, ahead=ahead)
        steps.note(3, "feature", ["pull", "push"], bad, 0.0, ahead=ahead)
        steps.read()
    assert [step.index for step in steps.read_so_far] == [0, 1]


@pytest.mark.parametrize("ahead", [False, True])
def test_the_first_of_the_best_candidates(ahead: bool) -> None:
    candidates = Candidates()
    assert candidates.read() == [] and candidates.best is None
    losses = [math.nan, 0.5, -0.25, -math.inf, -0.25, math.inf]
    flips = [torch.arange(9) < k for k in range(len(losses))]
    for k, loss in enumerate(losses):
        candidates.note(str(k), flips[k], torch.tensor([loss, k], dtype=torch.float64), ahead=ahead)
    assert (candidates.best is None) == ahead
    assert [(c.name, c.flips) for c in candidates.read()] == [(str(k), k) for k in range(len(losses))]
    assert candidates.best is not None and candidates.best[0] == -0.25 and candidates.best[1] is flips[2]
