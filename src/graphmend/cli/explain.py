"""``graphmend explain``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from graphmend.cli.common import (
    Device,
    Factory,
    JsonFlag,
    Model,
    Output,
    Task,
    Weights,
    number,
    part_of_output,
    reported,
)
from graphmend.cli.console import PlainConsole


@reported
def explain(
    node: Annotated[int, typer.Argument(help="Number of the node, from 0.", callback=number(0), metavar="NODE")],
    graph: Annotated[Path, typer.Option(help="The graph as it was before mending.", metavar="FILE")],
    patch: Annotated[Path, typer.Option(help="The patch, written by 'graphmend mend'.", metavar="FILE")],
    model: Model = None,
    factory: Factory = None,
    weights: Weights = None,
    output: Output = None,
    task: Task = None,
    plot: Annotated[
        Path | None, typer.Option(help="Draw the effects into this file, .png, .svg or .pdf.", metavar="FILE")
    ] = None,
    json_: JsonFlag = False,
    device: Device = "cpu",
) -> None:
    """Say why the prediction of a node changed: each part of the change is taken back by itself, and the model runs
    again.

    Example:

    ```
    graphmend mend --model gcn.safetensors --graph today.npz --out mended/
    graphmend explain 17 --model gcn.safetensors --graph today.npz --patch mended/today.patch.safetensors
    ```
    """
    from graphmend.cli.explain_run import explanation

    found = explanation(node, graph, patch, model, factory, weights, part_of_output(output), task, device)
    if plot is not None:
        found.plot(plot)
    if json_:
        typer.echo(json.dumps(found.summary()))
    else:
        PlainConsole().print(repr(found), soft_wrap=True)
