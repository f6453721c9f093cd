"""Numbers among the arguments of transforms: checked when one is made, long before it is applied.

NumPy's numbers are taken, too, and kept as Python's, so that a transform looks and hashes the same either way.
"""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any

import numpy as np

from graphmend.errors import require

__all__ = ["check_real", "check_seed", "check_whole"]


def check_real(
    owner: object,
    name: str,
    low: float = -math.inf,
    high: float = math.inf,
    *,
    above: bool = False,
    optional: bool = False,
    hint: str = "",
) -> None:
    """Raise unless an attribute is a finite number in ``[low, high]``; text, truth values and NaN are none.

    Args:
        owner: The transform.
        name: The attribute.
        low: The lowest value.
        high: The highest value.
        above: Whether ``low`` itself is too low.
        optional: Whether it may be ``None``.
        hint: What to know about it, for the message.
    """
    if high < math.inf:
        wanted = f"a number in [{low:g}, {high:g}]"
    elif low > -math.inf:
        wanted = f"a finite number {'above' if above else 'of at least'} {low:g}"
    else:
        wanted = "a finite number"
    value = _number(owner, name, Real, optional, wanted, hint)
    good = value is None or (math.isfinite(value) and low <= value <= high and not (above and value == low))
    require(good, _message(owner, name, wanted, hint))


def check_whole(owner: object, name: str, low: int = 0, *, optional: bool = False, hint: str = "") -> None:
    """Raise unless an attribute is a whole number of at least ``low``; arguments as in :func:`check_real`."""
    wanted = f"a whole number of at least {low}"
    value = _number(owner, name, Integral, optional, wanted, hint)
    require(value is None or value >= low, _message(owner, name, wanted, hint))


def check_seed(owner: object, bits: int = 63) -> None:
    """Raise unless ``seed`` is a whole number that generators of so many bits take."""
    wanted = f"a whole number from 0 to 2**{bits} - 1"
    value = _number(owner, "seed", Integral, False, wanted, "")
    require(0 <= value < 2**bits, _message(owner, "seed", wanted, ""))


def _number(owner: object, name: str, kind: type, optional: bool, wanted: str, hint: str) -> Any:
    value = getattr(owner, name)
    if value is None and optional:
        return None
    require(isinstance(value, kind) and not isinstance(value, bool), _message(owner, name, wanted, hint))
    if isinstance(value, np.generic):
        value = value.item()
        object.__setattr__(owner, name, value)  # dataclasses of transforms are frozen
    return value


def _message(owner: object, name: str, wanted: str, hint: str) -> str:
    end = f"; {hint}" if hint else ""
    return f"{type(owner).__name__}'s {name} must be {wanted} (got {getattr(owner, name)!r}){end}"
