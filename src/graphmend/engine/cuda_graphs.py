"""Steps that are recorded once and then replayed, for GPUs that wait longer for Python than they compute.

What a recorded function does must depend on tensors only that stay where they are: it reads them anew at every replay,
draws new random numbers, and writes its results into the same places. Only this package's own models and losses are
known to behave; a user's model may look at a number on its way, which cannot be recorded.
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

import torch
from torch import nn

from graphmend.engine.cache import forgetting

__all__ = ["Recorder"]

_WARM: set[tuple[Any, ...]] = set()  # what has run before: its kernels are compiled, its libraries set up
T = TypeVar("T")


@functools.cache
def _side_stream(device: int) -> torch.cuda.Stream:
    """One for all recordings: libraries keep a workspace for every stream they have ever seen."""
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


class _Pool:
    """Memory for recordings; it is kept for the next ones while this object lives."""

    def __init__(self, device: int) -> None:
        self.handle = torch.cuda.graph_pool_handle()
        self._keeper = torch.cuda.CUDAGraph()  # a recording that does next to nothing
        with torch.cuda.stream(_side_stream(device)):
            self._keeper.capture_begin(pool=self.handle, capture_error_mode="thread_local")
            torch.zeros(1, device=device)
            self._keeper.capture_end()


_POOLS: weakref.WeakKeyDictionary[nn.Module, dict[int, _Pool]] = weakref.WeakKeyDictionary()
_RECORDING = threading.Lock()  # held by one recorder at a time: they share a stream, and memory


class Recorder:
    """Runs functions by name, from their recording where there is one (CUDA graphs).

    Args:
        model: Memory of its recordings is kept as long as it lives, for its next graph.
        generators: Where the functions draw random numbers from.
        shape: Tells apart what needs other kernels: the model, the sizes of the graph.
        enabled: Without, functions are simply called, as they are while another recorder is at work.
    """

    def __init__(
        self, model: nn.Module, generators: list[torch.Generator], shape: tuple[Any, ...], enabled: bool
    ) -> None:
        self.model, self.generators, self.shape, self.enabled = model, generators, shape, enabled
        self._tapes: dict[str, tuple[torch.cuda.CUDAGraph, Any]] = {}
        self._is_at_work = False

    def __call__(self, name: str, function: Callable[[], T]) -> T:
        """``function()``; its result is overwritten by the next call of the same name."""
        if not self.enabled:
            return function()
        if name not in self._tapes:
            how = (name, torch.is_grad_enabled(), *self.shape)
            if how not in _WARM:
                _WARM.add(how)
                return function()
            self._is_at_work = self._is_at_work or _RECORDING.acquire(blocking=False)
            if not self._is_at_work:
                self.enabled = False
                return function()
            self._tapes[name] = self._record(function)
        tape, result = self._tapes[name]
        tape.replay()
        return result  # type: ignore[no-any-return]

    def forget(self) -> None:
        """Forget all recordings; their memory stays with the model."""
        self._tapes.clear()
        if self._is_at_work:
            self._is_at_work = False
            _RECORDING.release()

    def _record(self, function: Callable[[], T]) -> tuple[torch.cuda.CUDAGraph, T]:
        tape, device = torch.cuda.CUDAGraph(), torch.cuda.current_device()
        stream, pools = _side_stream(device), _POOLS.setdefault(self.model, {})
        for generator in self.generators:
            tape.register_generator_state(generator)
        if device not in pools:
            pools[device] = _Pool(device)
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream), forgetting():
            tape.capture_begin(pool=pools[device].handle, capture_error_mode="thread_local")
            try:
                result = function()
            except BaseException:
                del pools[device]  # who knows in which state
                self.enabled = False
                with suppress(RuntimeError):  # what has gone wrong before says more
                    tape.capture_end()
                raise
            tape.capture_end()
        torch.cuda.current_stream().wait_stream(stream)
        return tape, result
