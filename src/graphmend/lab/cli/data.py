"""``graphmend data``: list the data sets, check them against the published statistics, fetch them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from graphmend.cli.common import DataDir, Device, JsonFlag, Quiet, Seed, reported
from graphmend.cli.console import log_to_stderr

data_app = typer.Typer(
    help="Data sets: list them, check them against the published statistics, fetch them.", no_args_is_help=True
)


@data_app.command("list")
@reported
def list_(
    data_dir: DataDir = None,
    json_: JsonFlag = False,
    seed: Seed = 0,
    device: Device = "cpu",
    quiet: Quiet = False,
) -> None:
    """List every data set: its kind of shift, its published size, and whether it is here or which files are missing.

    Example:

    ```
    graphmend data list
    ```
    """
    log_to_stderr(quiet)
    from graphmend.lab.cli.data_run import run_list

    run_list(data_dir, json_, device)


@data_app.command()
@reported
def check(
    names: Annotated[
        list[str] | None,
        typer.Argument(help="Data sets; without any, all real ones whose files are here.", metavar="NAME"),
    ] = None,
    markdown: Annotated[
        Path | None,
        typer.Option(help="Write the table into this page, between its two markers if it has them.", metavar="FILE"),
    ] = None,
    data_dir: DataDir = None,
    json_: JsonFlag = False,
    seed: Seed = 0,
    device: Device = "cpu",
    quiet: Quiet = False,
) -> None:
    """Load data sets and compare their statistics with the published ones; the exit code is 1 if any differs.

    Example:

    ```
    graphmend data check cora twitch-e
    ```
    """
    log_to_stderr(quiet)
    from graphmend.lab.cli.data_run import run_check

    if not run_check(names or [], markdown, data_dir, json_, seed, device, quiet):
        raise typer.Exit(1)


@data_app.command()
@reported
def fetch(
    name: Annotated[str, typer.Argument(help="A data set, see 'graphmend data list'.", metavar="NAME")],
    data_dir: DataDir = None,
    json_: JsonFlag = False,
    seed: Seed = 0,
    device: Device = "cpu",
    quiet: Quiet = False,
) -> None:
    """Download the missing files of a data set and check that it can be read; generate a generated set.

    Example:

    ```
    graphmend data fetch cora
    ```
    """
    log_to_stderr(quiet)
    from graphmend.lab.cli.data_run import run_fetch

    run_fetch(name, data_dir, json_, seed, device, quiet)
