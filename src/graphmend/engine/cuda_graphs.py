"""Steps that are recorded once and then replayed, for GPUs that would spend more time waiting for Python.

A recorded function reads the same tensors anew at every replay, draws new random numbers and writes its results into
the same places. Whether a function can be recorded depends on what the user's model and loss do inside: one that reads
a number from the device cannot be recorded. So it is tried; if recording fails, the function is simply called.
"""

from __future__ import annotations

import functools
import gc
import logging
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from graphmend.engine.cache import without_cache

__all__ = ["Recorder"]

_LOG = logging.getLogger(__name__)
T = TypeVar("T")


@functools.cache
def _side_stream(device: int) -> torch.cuda.Stream:
    """One stream for all recordings: libraries keep a workspace for every stream they have ever seen."""
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Freeing an old recording while another one is being made would end both."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _capture(tape: torch.cuda.CUDAGraph, pool: Any, function: Callable[[], T]) -> T:
    """Record a function; whatever happens in it, nothing is recorded afterwards and the current stream is as before."""
    stream = _side_stream(torch.cuda.current_device())
    with torch.cuda.stream(stream), _without_garbage_collection():
        try:
            tape.capture_begin(pool=pool, capture_error_mode="thread_local")
            result = function()
            tape.capture_end()
        except BaseException:
            _abandon(tape, pool, stream)
            raise
    return result


def _abandon(tape: torch.cuda.CUDAGraph, pool: Any, stream: torch.cuda.Stream) -> None:
    """End a recording that failed and release its memory. Errors on the way matter less than the one that led here."""
    with torch.cuda.stream(stream):  # the function may have left another one
        with suppress(RuntimeError), warnings.catch_warnings(action="ignore"):  # if it is empty
            if torch.cuda.is_current_stream_capturing():
                tape.capture_end()  # raises if the recording is invalid, but ends it in any case
        with suppress(RuntimeError):
            tape.reset()
    # Until torch 2.11, an error of capture_end comes before the allocator is told of the end; it would then refuse to
    # free cached memory ever after. Where the allocator knows, the first of these calls raises.
    is_new = hasattr(torch._C, "_cuda_endAllocateToPool")
    end = "_cuda_endAllocateToPool" if is_new else "_cuda_endAllocateCurrentStreamToPool"  # until torch 2.7
    with suppress(RuntimeError):
        getattr(torch._C, end)(stream.device_index, pool)
        torch._C._cuda_releasePool(stream.device_index, pool)


class _Pool:
    """Memory for recordings; it is kept for the next ones while this object lives."""

    def __init__(self, scratch: Tensor) -> None:
        self.handle = torch.cuda.graph_pool_handle()
        self._keeper = torch.cuda.CUDAGraph()  # a recording that does next to nothing
        _capture(self._keeper, self.handle, scratch.zero_)


_POOLS: weakref.WeakKeyDictionary[nn.Module, dict[int, _Pool]] = weakref.WeakKeyDictionary()
_WARM: weakref.WeakKeyDictionary[nn.Module, set[tuple[Any, ...]]] = weakref.WeakKeyDictionary()
"""The things that have run before, whose kernels are compiled and libraries set up."""
_RECORDING = threading.Lock()  # held by one recorder at a time: they share a stream and memory


class Recorder:
    """Runs functions by name, from their recording where there is one (CUDA graphs).

    Args:
        model: Memory of its recordings is kept as long as it lives, for its next graph.
        generators: Where the functions draw random numbers from, besides the default generator.
        kernels: A key that differs if other kernels are needed: the model, the sizes of the graph.
    """

    def __init__(self, model: nn.Module, generators: list[torch.Generator], kernels: tuple[Any, ...]) -> None:
        self.model, self.generators, self.kernels = model, generators, kernels
        self.failure: str | None = None  #: why nothing is recorded any more
        self.is_failure_lasting = True  #: whether the model is the reason, and not the moment
        self._tapes: dict[str, tuple[torch.cuda.CUDAGraph, Any]] = {}
        self._has_lock = False

    def __call__(self, name: str, function: Callable[[], T]) -> T:
        """``function()``; its result is overwritten by the next call of the same name."""
        if self.failure is not None:
            return function()
        if name not in self._tapes:
            key, warm = (name, torch.is_grad_enabled(), *self.kernels), _WARM.setdefault(self.model, set())
            if key not in warm:
                warm.add(key)
                return function()
            self._has_lock = self._has_lock or _RECORDING.acquire(blocking=False)
            if not self._has_lock:
                self.failure, self.is_failure_lasting = "another thread is recording", False
                return function()
            try:
                self._tapes[name] = self._record(function)
            except Exception as error:
                self.is_failure_lasting = not isinstance(error, torch.OutOfMemoryError)
                self.give_up(f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}")
            if self.failure is not None:  # not earlier: an error that is handled holds what the recording allocated
                return function()
        tape, result = self._tapes[name]
        tape.replay()
        return result  # type: ignore[no-any-return]

    @property
    def has_recordings(self) -> bool:
        """Whether anything is replayed."""
        return bool(self._tapes)

    def give_up(self, reason: str) -> None:
        """From now on call functions instead of recording them, and log why."""
        _LOG.debug("steps are not recorded: %s", reason)
        self.failure = reason
        self.forget()

    def forget(self) -> None:
        """Forget all recordings; their memory stays with the model."""
        self._tapes.clear()
        if self._has_lock:
            self._has_lock = False
            _RECORDING.release()

    def _record(self, function: Callable[[], T]) -> tuple[torch.cuda.CUDAGraph, T]:
        tape, device = torch.cuda.CUDAGraph(), torch.cuda.current_device()
        stream, pools = _side_stream(device), _POOLS.setdefault(self.model, {})
        scratch = torch.zeros(1, device=device)  # made now, since there may be no memory left after a failure
        for generator in self.generators:
            tape.register_generator_state(generator)
        stream.wait_stream(torch.cuda.current_stream())
        try:
            if device not in pools:
                pools[device] = _Pool(scratch)
            with without_cache():
                result = _capture(tape, pools[device].handle, function)
        except BaseException:
            pools.pop(device, None)  # its state is unknown
            with suppress(RuntimeError):  # the first error says more
                self._reset_generators(scratch)
            raise
        torch.cuda.current_stream().wait_stream(stream)
        return tape, result

    def _reset_generators(self, scratch: Tensor) -> None:
        """After a failure, generators believe that they are still being recorded; another recording ends that."""
        tape = torch.cuda.CUDAGraph()
        for generator in self.generators:
            tape.register_generator_state(generator)
        _capture(tape, torch.cuda.graph_pool_handle(), scratch.zero_)
