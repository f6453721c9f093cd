"""``graphmend info``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from graphmend.cli.common import Device, JsonFlag, Quiet, Seed, reported
from graphmend.cli.console import PlainConsole, log_to_stderr


@reported
def info(
    path: Annotated[
        Path | None,
        typer.Argument(help="A graph, a checkpoint, a source card or a patch; a file or a folder.", metavar="FILE"),
    ] = None,
    json_: JsonFlag = False,
    seed: Seed = 0,
    device: Device = "cpu",
    quiet: Quiet = False,
) -> None:
    """Say what a file or a folder holds, or, without one, the versions and the device of this installation.

    Example:

    ```
    graphmend info
    graphmend info gcn.card.safetensors
    ```
    """
    log_to_stderr(quiet)
    from graphmend.cli.info_run import describe, installation

    facts = installation(device) if path is None else describe(path)
    if json_:
        typer.echo(json.dumps(facts))
        return
    table = Table(show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for key, value in facts.items():
        table.add_row(key, str(value))
    PlainConsole().print(table)
