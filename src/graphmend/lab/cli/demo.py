"""``graphmend demo``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from graphmend.cli.common import Device, JsonFlag, Quiet, Seed, number, reported
from graphmend.cli.console import log_to_stderr


@reported
def demo(
    out: Annotated[Path, typer.Option(help="Folder for demo.json and the plots.", metavar="FOLDER")] = Path("demo"),
    seeds: Annotated[int, typer.Option(help="Number of seeds.", callback=number(1), metavar="NUMBER")] = 5,
    json_: JsonFlag = False,
    seed: Seed = 0,
    device: Device = "cpu",
    quiet: Quiet = False,
) -> None:
    """See it work: a frozen GCN on handwritten digits, with the test graph shifted, corrupted and attacked.

    Each harmed graph is mended by GTrans, with settings chosen on a validation graph, and put before the gate, which
    has a source card, no settings and no labels; in one column it may ask for a few. Clean graphs it leaves alone.
    Everything ships with GraphMend; nothing is downloaded. It takes about a minute on two cores.

    Example:

    ```
    graphmend demo
    graphmend demo --seeds 1 --out demo/
    ```
    """
    log_to_stderr(quiet)
    from graphmend.lab.cli.demo_run import run

    run(out, seeds, json_, seed, device, quiet)
