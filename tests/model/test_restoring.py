"""Ctrl-C at every single step of entering and leaving a frozen model: everything is put back all the same."""

from __future__ import annotations

import dis
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
import torch
from torch import nn

from graphmend import FrozenGNN
from graphmend.model.restore import frozen_model, untouched_rng
from support.sample_models import HID, IN, OUT, make_graph, seeded
from support.untouched import assert_same, generator_states, snapshot

Open = Callable[[nn.Module], Any]
PLACES = ("/graphmend/model/restor", "/graphmend/model/frozen.py", "contextlib.py")


def small() -> nn.Module:
    model = nn.Sequential(nn.BatchNorm1d(IN), nn.Linear(IN, HID), nn.Linear(HID, OUT)).train()
    model[1].weight.requires_grad_(False)
    return seeded(lambda: model)


class OnRows(nn.Module):
    """A model of a graph that does not look at the edges, so that a trial takes few steps."""

    def __init__(self) -> None:
        super().__init__()
        self.body = small()

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        return self.body(x)


class Presses:
    """Presses Ctrl-C at the ``at``-th moment at which Python would notice, in the code that puts things back.

    Python looks for signals where a function begins, where a loop begins anew, and after a call of something that is
    not written in Python.
    """

    def __init__(self, at: int) -> None:
        self.left, self.pressed = at, False
        self.may_notice: dict[FrameType, bool] = {}  #: whether the last instruction was such a call

    def __call__(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "call" and frame.f_back is not None:
            self.may_notice[frame.f_back] = False
        if not any(place in frame.f_code.co_filename for place in PLACES):
            return None
        frame.f_trace_opcodes = True
        if event == "call":
            self._notice()
        elif event == "opcode":
            name = dis.opname[frame.f_code.co_code[frame.f_lasti]]
            if self.may_notice.get(frame, False) or name == "JUMP_BACKWARD":
                self._notice()
            self.may_notice[frame] = name.startswith("CALL")
        return self

    def _notice(self) -> None:
        self.left -= 1
        if self.left < 0 and not self.pressed:
            self.pressed = True
            signal.raise_signal(signal.SIGINT)


OPEN: dict[str, tuple[int, Open]] = {
    "generators": (1, lambda model: untouched_rng(5)),
    "a model": (5, frozen_model),
    "a frozen GNN": (17, lambda model: FrozenGNN(model, make_graph())),
}
"""What is opened, and every how many of its moments is tried."""


@pytest.mark.parametrize("name", OPEN)
def test_ctrl_c_at_every_step(name: str) -> None:
    model, handler = OnRows(), signal.getsignal(signal.SIGINT)
    before, state = snapshot(model), generator_states()
    stride, begin = OPEN[name]
    tried, pressed, raised = 0, True, 0
    while pressed:
        tracer = Presses(tried * stride)
        try:
            sys.settrace(tracer)
            try:
                with begin(model):
                    pass
            finally:
                sys.settrace(None)
        except KeyboardInterrupt:
            raised += 1
        assert signal.getsignal(signal.SIGINT) is handler, tried * stride
        assert_same(before, snapshot(model))
        assert_same(state, generator_states())
        pressed, tried = tracer.pressed, tried + 1
    assert tried > 20 and raised == tried - 1, "Ctrl-C may wait, but it is never lost"


def test_another_handler_stays_in_charge() -> None:
    """And a program that ignores Ctrl-C goes on ignoring it."""
    heard: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: heard.append(number))
    try:
        with untouched_rng(0):
            signal.raise_signal(signal.SIGINT)
            assert heard == [signal.SIGINT]
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        with untouched_rng(0):
            signal.raise_signal(signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_between_the_steps_it_is_raised_at_once() -> None:
    reached = []
    with pytest.raises(KeyboardInterrupt), untouched_rng(0), frozen_model(OnRows()):
        signal.raise_signal(signal.SIGINT)
        reached.append("the next line")
    assert not reached
