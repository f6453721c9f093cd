"""The one door from the command line to the lab, which nothing else in the product imports."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from graphmend.errors import GraphMendError

EXTRA = ("matplotlib",)
"""What the extra ``graphmend[lab]`` brings."""


def lab(module: str) -> Any:
    """A module of the lab, imported when a command needs it."""
    return import_module(f"graphmend.lab.{module}")


def require_extra(command: str) -> None:
    """Raise, before any work is done, unless the extra is installed."""
    missing = [name for name in EXTRA if find_spec(name) is None]
    if missing:
        raise GraphMendError(
            f"'graphmend {command}' belongs to the lab and needs {', '.join(missing)}; run pip install 'graphmend[lab]'"
        )
