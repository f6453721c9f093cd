"""The one door from the command line to the lab, which nothing else in the product imports."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def lab(module: str) -> Any:
    """A module of the lab, imported when a command needs it."""
    return import_module(f"graphmend.lab.{module}")
