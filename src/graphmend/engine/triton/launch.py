"""What launching any of the kernels takes."""

# mypy: disable-error-code="no-untyped-def,untyped-decorator,no-untyped-call"
from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import torch
import triton
import triton.language as tl
from torch import Tensor

__all__ = ["ceil_div", "leaky_relu", "neighbours_of", "on_its_device", "power_of_2", "rows_of_program"]

T = TypeVar("T")
P = ParamSpec("P")


def on_its_device(launch: Callable[P, T]) -> Callable[P, T]:
    """Launch on the device of the first tensor among the arguments; Triton would take the current device."""

    @functools.wraps(launch)
    def launched(*args: P.args, **kwargs: P.kwargs) -> T:
        device = _first_tensor(args).device
        if device.type != "cuda" or device.index == torch.cuda.current_device():  # no CUDA: Triton's interpreter
            return launch(*args, **kwargs)
        with torch.cuda.device(device):
            return launch(*args, **kwargs)

    return launched


def _first_tensor(args: tuple[Any, ...]) -> Tensor:
    return next(arg for arg in args if isinstance(arg, Tensor))


def ceil_div(total: int, size: int) -> int:
    """Division, rounded up; Triton's own function takes longer than a kernel."""
    return -(-total // size)


def power_of_2(number: int) -> int:
    """The next power of two."""
    return 1 << (number - 1).bit_length()


@triton.jit
def rows_of_program(crow, rows, number, listed: tl.constexpr, heavy: tl.constexpr, many: tl.constexpr):
    """The rows a program takes, either those listed or all but the hubs, and where their entries start and stop."""
    row = tl.program_id(0) * many + tl.arange(0, many)
    there = row < number
    if listed:
        row = tl.load(rows + row, mask=there, other=0)
    start, stop = tl.load(crow + row, mask=there, other=0), tl.load(crow + row + 1, mask=there, other=0)
    if not listed:
        there = there & (stop - start <= heavy)
        stop = tl.where(there, stop, start)
    return row, there, start, stop


@triton.jit
def leaky_relu(s, slope):
    """LeakyReLU."""
    return tl.where(s > 0, s, s * slope)


@triton.jit
def neighbours_of(x, node, present, column, width):
    """The rows of neighbours, 0 where there are none."""
    there = present[:, :, None] & (column < width)[None, None, :]
    return tl.load(x + node[:, :, None] * width + column[None, None, :], mask=there, other=0.0)
