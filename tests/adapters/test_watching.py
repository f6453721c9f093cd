"""Callbacks, progress bars and time limits."""

from __future__ import annotations

import itertools
import logging
import threading

import pytest

from graphmend import GTrans
from graphmend.results.history import Step
from support.adapter_cases import assert_same_result, make_graph, make_model
from support.untouched import Boom


def test_the_callback_sees_every_step_when_it_is_done() -> None:
    seen: list[Step] = []
    result = GTrans(steps=10, budget=4)(make_model(), make_graph(), callback=seen.append)
    assert seen == result.history and [s.index for s in seen] == list(range(10))
    assert all(a.seconds <= b.seconds for a, b in itertools.pairwise(seen))
    assert result.seconds >= seen[-1].seconds
    assert result.summary()["steps"] == 10 and result.summary()["loss_last"] == seen[-1].loss


@pytest.mark.parametrize("edge_steps", [0, 1])
def test_a_time_limit_stops(edge_steps: int, caplog: pytest.LogCaptureFixture) -> None:
    model, data = make_model(), make_graph()
    GTrans(steps=5, edge_steps=edge_steps)(model, data)  # trials and first calls take their time, too
    with caplog.at_level(logging.INFO, "graphmend"):
        result = GTrans(steps=10**9, edge_steps=edge_steps, time_limit=0.5)(model, data)
    assert 0 < len(result.history) < 10**9 and result.reason is None
    assert f"stopped after {len(result.history)} of {10**9} steps" in caplog.text
    assert GTrans(steps=5, time_limit=1e-12)(make_model(), data).history == []
    assert len(GTrans(steps=5, time_limit=1e6)(make_model(), data).history) == 5


def test_progress_shows_on_standard_error_only(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # let rich believe that it writes to a terminal
    quiet = GTrans(steps=5, budget=3)(make_model(), make_graph())
    assert capfd.readouterr() == ("", "")
    shown = GTrans(steps=5, budget=3)(make_model(), make_graph(), progress=True)
    out, err = capfd.readouterr()
    assert out == "" and "mending" in err and "/5" in err
    assert_same_result(quiet, shown)


@pytest.mark.parametrize("error", [Boom, KeyboardInterrupt])
def test_the_progress_bar_goes_away_when_the_loop_is_left(
    error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two live displays cannot stand at once: rich itself says whether the first one is gone."""
    monkeypatch.setenv("FORCE_COLOR", "1")  # let rich believe that it writes to a terminal

    def stop(step: Step) -> None:
        raise error

    with pytest.raises(error) as caught:  # the traceback keeps the frames alive
        GTrans(steps=5, budget=3)(make_model(), make_graph(), progress=True, callback=stop)
    GTrans(steps=5, budget=3)(make_model(), make_graph(), progress=True)
    refreshing = [thread for thread in threading.enumerate() if "RefreshThread" in type(thread).__name__]
    for thread in refreshing:
        thread.join(timeout=10)  # it was told to end, and ends when its turn comes
    assert not [thread for thread in refreshing if thread.is_alive()]
    assert caught.traceback
