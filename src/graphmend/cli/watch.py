"""``graphmend watch``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from graphmend.cli.common import (
    Device,
    Factory,
    JsonFlag,
    Model,
    Output,
    Quiet,
    Seed,
    Verbose,
    Weights,
    number,
    part_of_output,
    reported,
)
from graphmend.cli.console import log_to_stderr


@reported
def watch(
    folder: Annotated[Path, typer.Argument(help="Folder in which graphs arrive.", metavar="FOLDER")],
    out: Annotated[
        Path,
        typer.Option(
            help="Folder for everything that is written: state.json, log.jsonl, page.html, and mended graphs.",
            metavar="FOLDER",
        ),
    ],
    model: Model = None,
    factory: Factory = None,
    weights: Weights = None,
    card: Annotated[
        Path | None,
        typer.Option(
            help="Source card; NAME.card.safetensors beside the model's NAME.safetensors is found without it.",
            metavar="FILE",
        ),
    ] = None,
    reference: Annotated[
        list[Path] | None,
        typer.Option(help="Graph that is known to be fine, to compare others with; may be repeated.", metavar="FILE"),
    ] = None,
    rate: Annotated[
        float,
        typer.Option(
            help="False-alarm rate: the largest probability that a stream which never changes ever raises an alarm.",
            callback=number(1e-9, 0.5),
            metavar="NUMBER",
        ),
    ] = 0.01,
    once: Annotated[bool, typer.Option("--once", help="Take the graphs that are there, then exit.")] = False,
    every: Annotated[
        float, typer.Option(help="Seconds between two checks of the folder.", callback=number(0.1), metavar="NUMBER")
    ] = 10.0,
    mend: Annotated[
        bool, typer.Option("--mend", help="Mend each graph and write it into --out; by default it is only examined.")
    ] = False,
    metrics: Annotated[
        bool, typer.Option("--metrics", help="Write metrics.prom for Prometheus, too; needs graphmend[monitor].")
    ] = False,
    restart: Annotated[
        bool, typer.Option("--restart", help="Withdraw the alarm, and compare with the first graphs again.")
    ] = False,
    forget: Annotated[
        bool, typer.Option("--forget", help="Withdraw the alarm, and forget the first graphs as well.")
    ] = False,
    output: Output = None,
    json_: JsonFlag = False,
    seed: Seed = 0,
    device: Device = "cpu",
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Watch a folder: examine every new graph, and raise an alarm when the stream is no longer what it was.

    Each new .npz or .pt is taken once, in order of name. The first 30 graphs, or those given by --reference, define
    what is usual. The alarm says since when and of what kind. An interrupted watch continues where it was; a damaged
    file only leads to an entry in the log.

    Example:

    ```
    graphmend watch incoming/ --model gcn.safetensors --out watched/
    graphmend watch incoming/ --model gcn.safetensors --out watched/ --once || echo "look at watched/page.html"
    ```

    The exit code of --once is 3 while an alarm stands, until --restart or --forget.
    """
    log_to_stderr(quiet, verbose)
    from graphmend.cli.watch_run import Watching, run_watch

    run_watch(
        Watching(
            folder=folder,
            out=out,
            model=model,
            factory=factory,
            weights=weights,
            card=card,
            references=reference or [],
            rate=rate,
            once=once,
            every=every,
            mend=mend,
            metrics=metrics,
            restart=restart,
            forget=forget,
            output=part_of_output(output),
            json=json_,
            seed=seed,
            device=device,
            quiet=quiet,
        )
    )
