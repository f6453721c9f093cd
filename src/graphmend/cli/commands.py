"""All commands in one application."""

from __future__ import annotations

from typing import Annotated

import typer

from graphmend.cli.card import card
from graphmend.cli.common import TakesRay
from graphmend.cli.explain import explain
from graphmend.cli.info import info
from graphmend.cli.lab import lab
from graphmend.cli.list import list_
from graphmend.cli.mend import mend
from graphmend.cli.pack import pack
from graphmend.cli.patching import apply, revert
from graphmend.cli.settings import WithSettings
from graphmend.cli.watch import watch
from graphmend.version import __version__

app = typer.Typer(
    epilog="Start with 'graphmend demo'. 'graphmend COMMAND --help' explains a command and gives an example.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)
app.command()(lab("cli.demo").demo)
app.command(cls=TakesRay)(WithSettings(mend))
app.command(cls=TakesRay)(card)
for command in (apply, revert, explain, watch, lab("cli.train").train, info, pack):
    app.command()(command)
app.command("list")(list_)
app.add_typer(lab("cli.data").data_app, name="data")
app.add_typer(lab("cli.bench").bench_app, name="bench")


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"graphmend {__version__}")
        raise typer.Exit


@app.callback()
def graphmend(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Mend the graph, keep the model: repair a test graph so that a frozen GNN predicts better on it."""
