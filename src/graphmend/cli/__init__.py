"""The command line: parse, call, print."""

from __future__ import annotations

import typer

from graphmend.cli.card import card
from graphmend.cli.data import data_app
from graphmend.cli.demo import demo
from graphmend.cli.info import info
from graphmend.cli.mend import mend
from graphmend.cli.train import train

app = typer.Typer(
    help="Mend the graph, keep the model: repair a test graph so that a frozen GNN predicts better on it.",
    epilog="Start with:  graphmend demo",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    add_completion=False,
    pretty_exceptions_enable=False,
)
for command in (demo, mend, card, train, info):
    app.command()(command)
app.add_typer(data_app, name="data")


def main() -> None:
    """The ``graphmend`` command."""
    app()
