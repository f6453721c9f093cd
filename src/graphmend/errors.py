"""What GraphMend says when it cannot go on: one sentence with the value and the remedy."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from numbers import Integral, Real
from typing import Any, TypeVar

T = TypeVar("T")


class GraphMendError(ValueError):
    """A problem with what the caller passed in; the message names the value and the remedy."""


class UnsupportedLayerError(GraphMendError):
    """A layer of the user's model cannot take edge weights, so edges cannot be learned for it."""


def require(condition: bool, message: str) -> None:
    """Raise :class:`GraphMendError` with ``message`` unless ``condition`` holds."""
    if not condition:
        raise GraphMendError(message)


def choose(kind: str, name: str, choices: Mapping[str, T]) -> T:
    """Look ``name`` up in a literal dict of choices; the error lists them."""
    if name not in choices:
        raise GraphMendError(f"unknown {kind} {name!r}; choose one of {listed(choices)}")
    return choices[name]


def whole_number(name: str, value: Any, minimum: int = 0) -> int:
    """``value`` as an ``int`` of at least ``minimum``; NumPy's numbers are taken, truth values are not."""
    is_whole = isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= minimum
    require(is_whole, f"{name} must be a whole number >= {minimum} (got {value!r})")
    return int(value)


def positive_number(name: str, value: Any) -> float:
    """``value`` as a ``float`` that is positive and finite; NumPy's numbers are taken, truth values are not."""
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    require(
        is_number and math.isfinite(value) and float(value) > 0, f"{name} must be positive and finite (got {value!r})"
    )
    return float(value)


def seed_number(value: Any) -> int:
    """``value`` as a seed that every random generator takes."""
    is_seed = isinstance(value, Integral) and not isinstance(value, bool) and 0 <= int(value) < 2**63
    require(is_seed, f"seed must be a whole number from 0 to 2**63 - 1 (got {value!r})")
    return int(value)


def listed(names: Iterable[object]) -> str:
    """``a, b, c`` in sorted order."""
    return ", ".join(sorted(str(name) for name in names))
