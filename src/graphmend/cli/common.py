"""What the commands share: their common options, numbers, and how a problem is told."""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, ParamSpec

import typer

from graphmend.cli.console import printable
from graphmend.errors import GraphMendError


def number(low: float = -math.inf, high: float = math.inf) -> Callable[[float | None], float | None]:
    """A check of the value of an option: a finite number from ``low`` to ``high``; the message names the value."""

    def checked(value: float | None) -> float | None:
        if value is None or (math.isfinite(value) and low <= value <= high):
            return value
        least = "" if low == -math.inf else f" of at least {low}"
        most = "" if high == math.inf else f"{' and' if least else ' of'} at most {high}"
        raise typer.BadParameter(f"{value} is not a finite number{least}{most}.")

    return checked


JsonFlag = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Seed = Annotated[int, typer.Option(help="Seed of everything random.", callback=number(0, 2**63 - 1), metavar="NUMBER")]
Device = Annotated[str, typer.Option(help="'cpu', 'cuda' or 'cuda:1'.", metavar="NAME")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar and no messages.")]

DataDir = Annotated[
    Path | None,
    typer.Option(
        help="Folder to look in first; then the folder that GRAPHMEND_DATA names, and the cache.",
        show_default=False,
        metavar="FOLDER",
    ),
]

P = ParamSpec("P")


def reported(command: Callable[P, None]) -> Callable[P, None]:
    """Turn a problem into one sentence on standard error.

    The exit code is 2 for a problem that the user can remedy, 1 for one that nobody expected, and 130 for Ctrl-C.
    """

    @functools.wraps(command)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            command(*args, **kwargs)
        except (typer.Exit, BrokenPipeError):  # whoever reads the output has seen enough: no problem of the command
            raise
        except GraphMendError as error:
            _fail(str(error), 2)
        except KeyboardInterrupt:
            _fail("interrupted; what was already written is whole", 130)
        except MemoryError:
            _fail("out of memory; use a smaller graph or a larger machine", 2)
        except OSError as error:
            file = f"{error.filename}: " if error.filename else ""
            _fail(f"{file}{error.strerror or error}; check the path and the free space", 2)
        except Exception as error:
            if os.environ.get("GRAPHMEND_DEBUG"):
                raise
            _fail(*_unexpected(error))

    return wrapped


def _unexpected(error: Exception) -> tuple[str, int]:
    """What is said about an error of torch or of the user's own model, and the exit code."""
    kind, text = type(error).__name__, " ".join(str(error).split())[:300]
    if kind == "OutOfMemoryError":  # torch's, by name because torch may never have been imported
        return f"out of GPU memory ({text}); use a smaller graph or --device cpu", 2
    if "can't allocate memory" in text:
        return f"out of memory ({text}); use a smaller graph or a larger machine", 2
    return f"{kind}: {text or 'no message'}; set GRAPHMEND_DEBUG=1 to see where it comes from", 1


def _fail(message: str, code: int) -> None:
    typer.echo(f"error: {printable(message)}", err=True)
    raise typer.Exit(code)
