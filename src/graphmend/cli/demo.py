"""``graphmend demo``."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from graphmend.cli.common import Device, JsonFlag, Quiet, Seed, device_of, log_to_stderr, reported
from graphmend.demo.run import Demo, run_demo
from graphmend.errors import GraphMendError
from graphmend.io.files import write_text
from graphmend.io.provenance import provenance
from graphmend.report.plots import accuracy_plot, embedding_plot
from graphmend.results.verdict import LEFT_ALONE


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

    Each harmed graph is mended by GTrans, with settings chosen on a validation graph, and put before the gate, which
    has a source card, no settings and no labels; in one column it may ask for a few. Clean graphs it leaves alone.
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
        _print_verdicts(Console(), demo_result)
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


COLUMNS = {
    "clean": "clean graph",
    "before": "harmed graph",
    "after": "GTrans, tuned",
    "gate": "gate",
    "asked": "gate, asking",
}


def _demo_table(demo_result: Demo) -> Table:
    rows = demo_result.table()
    title = f"Test accuracy (%) of one frozen GCN, handwritten digits, {rows[0]['seeds']} seeds"
    caption = "GTrans: settings chosen on a validation graph. Gate: a source card, no settings, no labels."
    table = Table(title=title, caption=caption)
    for column in ("scenario", *COLUMNS.values(), "labels asked"):
        table.add_column(column, justify="left" if column == "scenario" else "right")
    for row in rows:
        cells = [f"{row[key]:.1f} ± {row[f'{key}_std']:.1f}" for key in COLUMNS]
        table.add_row(row["scenario"], *cells, f"{row['labels']:.0f} a graph")
    return table


def _print_verdicts(console: Console, demo_result: Demo) -> None:
    """What the gate says: one harmed graph of each scenario, one clean graph, and how many clean ones it left alone."""
    clean = demo_result.clean_verdicts
    alone = sum(verdict.startswith(LEFT_ALONE) for verdict in clean)
    seed = demo_result.outcomes[0].seed
    harmed = [(outcome.scenario, outcome.verdicts[-1]) for outcome in demo_result.outcomes if outcome.seed == seed]
    console.print(f"What the gate says of the graphs with seed {seed}:", highlight=False)
    for name, verdict in (*harmed, ("clean graph", clean[0])):
        console.print(f"  [bold]{name}[/bold]: {escape(verdict)}", soft_wrap=True, highlight=False)
    console.print(f"Of {len(clean)} clean graphs it left {alone} alone.", highlight=False)
