"""Steps that are recorded once and then replayed, for GPUs that wait longer for Python than they compute.

What a recorded function does must depend on tensors only that stay where they are: it reads them anew at every replay,
draws new random numbers, and writes its results into the same places. Only this package's own models and losses are
known to behave; a user's model may look at a number on its way, which cannot be recorded.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any, TypeVar

import torch

from graphmend.memo import forgetting

__all__ = ["Recorder"]

_WARM: set[tuple[Any, ...]] = set()  # what has run before: its kernels are compiled, its libraries set up
_LASTING_POOL_IN_USE = threading.Lock()  # by a recorder: what two of them record must not share memory
T = TypeVar("T")


@functools.cache
def _side_stream(device: int) -> torch.cuda.Stream:
    """One for all recordings: libraries keep a workspace for every stream they have ever seen."""
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


_KEEPERS: list[torch.cuda.CUDAGraph] = []


@functools.cache
def _lasting_pool(device: int) -> Any:
    """Memory for small recordings, kept for the next ones by a recording that does next to nothing."""
    pool, keeper = torch.cuda.graph_pool_handle(), torch.cuda.CUDAGraph()
    with torch.cuda.stream(_side_stream(device)):
        keeper.capture_begin(pool=pool, capture_error_mode="thread_local")
        torch.zeros(1, device=device)
        keeper.capture_end()
    _KEEPERS.append(keeper)
    return pool


class Recorder:
    """Runs functions by name, from their recording where there is one (CUDA graphs).

    Args:
        generators: Where the functions draw random numbers from.
        shape: Tells apart what needs other kernels: the model, the sizes of the graph.
        enabled: Without, functions are simply called.
        small: Whether all recordings take so little memory that it may be kept for those of the next recorder.
    """

    def __init__(
        self, generators: list[torch.Generator], shape: tuple[Any, ...], enabled: bool, small: bool = False
    ) -> None:
        self.generators, self.shape, self.enabled, self.small = generators, shape, enabled, small
        self._tapes: dict[str, tuple[torch.cuda.CUDAGraph, Any]] = {}
        self._pool: Any = None
        self._is_lasting = False

    def __call__(self, name: str, function: Callable[[], T]) -> T:
        """``function()``; its result is overwritten by the next call of the same name."""
        if not self.enabled:
            return function()
        if name not in self._tapes:
            if (name, *self.shape) not in _WARM:
                _WARM.add((name, *self.shape))
                return function()
            self._tapes[name] = self._record(function)
        tape, result = self._tapes[name]
        tape.replay()
        return result  # type: ignore[no-any-return]

    def forget(self) -> None:
        """Give the memory of all recordings back."""
        self._tapes.clear()
        self._pool = None
        if self._is_lasting:
            self._is_lasting = False
            _LASTING_POOL_IN_USE.release()

    def _record(self, function: Callable[[], T]) -> tuple[torch.cuda.CUDAGraph, T]:
        tape, stream = torch.cuda.CUDAGraph(), _side_stream(torch.cuda.current_device())
        for generator in self.generators:
            tape.register_generator_state(generator)
        if self._pool is None:
            self._is_lasting = self.small and _LASTING_POOL_IN_USE.acquire(blocking=False)
            self._pool = (
                _lasting_pool(torch.cuda.current_device()) if self._is_lasting else torch.cuda.graph_pool_handle()
            )
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream), forgetting():
            tape.capture_begin(pool=self._pool, capture_error_mode="thread_local")
            try:
                result = function()
            finally:
                tape.capture_end()
        torch.cuda.current_stream().wait_stream(stream)
        return tape, result
