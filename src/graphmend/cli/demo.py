"""``graphmend demo``."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from graphmend.cli.common import Device, JsonFlag, Quiet, Seed, device_of, log_to_stderr, reported
from graphmend.demo.run import Demo, run_demo
from graphmend.errors import GraphMendError
from graphmend.io.files import write_text
from graphmend.io.provenance import provenance
from graphmend.report.plots import accuracy_plot, embedding_plot


@reported
def demo(
    out: Annotated[Path, typer.Option(help="Directory for demo.json and the plots.")] = Path("demo"),
    seeds: Annotated[int, typer.Option(help="Number of seeds.", min=1)] = 5,
    json_: JsonFlag = False,
    seed: Seed = 0,
    device: Device = "cpu",
    quiet: Quiet = False,
) -> None:
    """See it work: a frozen GCN on handwritten digits, with the test graph shifted, corrupted and attacked.

    Everything ships with GraphMend; nothing is downloaded. Takes under a minute on two cores.
    """
    log_to_stderr(quiet)
    demo_result = run_demo(seeds, first_seed=seed, device=str(device_of(device)), progress=not quiet and not json_)
    result = {**demo_result.to_json(), "provenance": provenance(device, seeds=seeds, data="scikit-learn digits")}
    write_text(out / "demo.json", json.dumps(result, indent=2) + "\n")
    plots = _demo_plots(demo_result, out)
    if json_:
        typer.echo(json.dumps(result))
        return
    Console().print(_demo_table(demo_result))
    if not quiet:
        typer.echo(f"{demo_result.seconds:.0f} s. Written: {', '.join(str(p) for p in (out / 'demo.json', *plots))}")


def _demo_plots(demo_result: Demo, out: Path) -> list[Path]:
    paths = [out / "accuracy.png", out / "embedding.png"]
    try:
        accuracy_plot(demo_result, paths[0])
        embedding_plot(demo_result, paths[1])
    except GraphMendError as error:  # matplotlib is an extra
        logging.getLogger(__name__).warning("%s", error)
        return []
    return paths


def _demo_table(demo_result: Demo) -> Table:
    rows = demo_result.table()
    table = Table(title=f"Test accuracy (%) of one frozen GCN, handwritten digits, {rows[0]['seeds']} seeds")
    for column in ("scenario", "clean graph", "harmed (Identity)", "mended (GTrans)", "paired difference", "better in"):
        table.add_column(column, justify="left" if column == "scenario" else "right")
    for row in rows:
        cells = [f"{row[key]:.1f} ± {row[f'{key}_std']:.1f}" for key in ("clean", "before", "after")]
        gain = f"{row['gain']:+.1f} ± {row['gain_std']:.1f}"
        table.add_row(row["scenario"], *cells, gain, f"{row['better']} of {row['seeds']}")
    return table
