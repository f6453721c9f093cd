"""What the commands share: their common options, devices, logging, and how a problem is told."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, ParamSpec

import torch
import typer
from rich.console import Console
from rich.logging import RichHandler
from torch import nn
from torch_geometric.data import Data

from graphmend.errors import GraphMendError, require

JsonFlag = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")]
Seed = Annotated[int, typer.Option(help="Seed of everything random.", min=0)]
Device = Annotated[str, typer.Option(help="'cpu', 'cuda' or 'cuda:1'.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar and no messages.")]

DataDir = Annotated[
    Path | None, typer.Option(help="Directory to look in first; then GRAPHMEND_DATA and the cache.", show_default=False)
]

P = ParamSpec("P")


def reported(command: Callable[P, None]) -> Callable[P, None]:
    """Turn a problem into one sentence on standard error and exit code 2 (130 for Ctrl-C)."""

    @functools.wraps(command)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            command(*args, **kwargs)
        except GraphMendError as error:
            _fail(str(error), 2)
        except KeyboardInterrupt:
            _fail("interrupted; what was already written is whole", 130)
        except torch.OutOfMemoryError as error:
            _fail(f"out of GPU memory ({str(error).splitlines()[0]}); use a smaller graph or --device cpu", 2)
        except MemoryError:
            _fail("out of memory; use a smaller graph or a larger machine", 2)
        except OSError as error:
            _fail(f"{error.strerror or error} {error.filename or ''}; check the path and the free space", 2)

    return wrapped


def _fail(message: str, code: int) -> None:
    typer.echo(f"error: {message}", err=True)
    raise typer.Exit(code)


def log_to_stderr(quiet: bool) -> None:
    """Route the library's log to standard error."""
    level = logging.ERROR if quiet else logging.WARNING
    handler = RichHandler(level, console=Console(stderr=True), show_time=False, show_path=False)
    handler.setFormatter(logging.Formatter("%(message)s"))
    logging.getLogger("graphmend").handlers = [handler]


def device_of(name: str) -> torch.device:
    """A device that exists."""
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise GraphMendError(f"unknown device {name!r}; use 'cpu' or 'cuda'") from error
    require(device.type in ("cpu", "cuda"), f"unknown device {name!r}; use 'cpu' or 'cuda'")
    if device.type == "cuda":
        count = torch.cuda.device_count()
        require((device.index or 0) < count, f"there is no device {name!r}, only {count} GPUs; use 'cpu'")
    return device


def for_model(data: Data, net: nn.Module, device: torch.device) -> Data:
    """Features in the model's floating-point type, all on one device."""
    kinds = {p.dtype for p in net.parameters() if p.is_floating_point()}
    if len(kinds) == 1:
        data.x = data.x.to(kinds.pop())
    return data.to(device)


def parse_budget(text: str) -> float | int:
    """``0.05`` is a fraction, ``100`` a count."""
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError as error:
        raise GraphMendError(f"budget must be a fraction such as 0.05 or a count such as 100 (got {text!r})") from error
