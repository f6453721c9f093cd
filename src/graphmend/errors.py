"""What GraphMend says when it cannot go on: one sentence with the value and the remedy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

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


def listed(names: Iterable[object]) -> str:
    """``a, b, c`` in sorted order."""
    return ", ".join(sorted(str(name) for name in names))
