"""The work of 'graphmend demo': run it, write it, show it."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import typer
from rich.table import Table

from graphmend.cli.console import PlainConsole, plain_table
from graphmend.cli.models import device_of
from graphmend.errors import GraphMendError, require
from graphmend.files.files import check_folder, write_text
from graphmend.files.provenance import provenance
from graphmend.lab.demo.plots import accuracy_plot, embedding_plot
from graphmend.lab.demo.run import Demo, run_demo
from graphmend.results.verdict import LEFT_ALONE

COLUMNS = {
    "clean": "clean",
    "before": "harmed",
    "after": "GTrans",
    "gate": "gate",
    "asked": "gate, asking",
}


def run(out: Path, seeds: int, as_json: bool, seed: int, device: str, quiet: bool) -> None:
    """Run the demo; arguments as in the command."""
    where = device_of(device)
    require(seed + seeds <= 2**63, f"--seed {seed} leaves no room for {seeds} seeds; take a smaller one")
    check_folder(out)
    demo_result = run_demo(seeds, first_seed=seed, device=str(where), progress=not quiet and not as_json)
    result = {**demo_result.to_json(), "provenance": provenance(where, seeds=seeds, data="scikit-learn digits")}
    write_text(out / "demo.json", json.dumps(result, indent=2) + "\n")
    plots = _plots(demo_result, out)
    if as_json:
        typer.echo(json.dumps(result))
        return
    console = PlainConsole()
    console.print(_table(demo_result))
    if not quiet:
        _print_verdicts(console, demo_result)
        written = ", ".join(str(path) for path in (out / "demo.json", *plots))
        console.print(f"{demo_result.seconds:.0f} s. Written: {written}", soft_wrap=True)


def _plots(demo_result: Demo, out: Path) -> list[Path]:
    paths = [out / "accuracy.png", out / "embedding.png"]
    try:
        accuracy_plot(demo_result, paths[0])
        embedding_plot(demo_result, paths[1])
    except GraphMendError as error:  # matplotlib is an extra
        logging.getLogger(__name__).warning("%s", error)
        return []
    return paths


def _table(demo_result: Demo) -> Table:
    rows = demo_result.table()
    table = plain_table(
        f"Test accuracy (%) of one frozen GCN, handwritten digits, {rows[0]['seeds']} seeds",
        "clean, harmed: the graph before and after the harm. GTrans: settings chosen on a validation graph. "
        "Gate: a source card, no settings, no labels; asking, it may ask for the labels counted in the last column.",
    )
    for column in ("scenario", *COLUMNS.values(), "labels"):
        table.add_column(column, justify="left" if column == "scenario" else "right", min_width=min(len(column), 8))
    for row in rows:
        cells = [f"{row[key]:.1f}±{row[f'{key}_std']:.1f}" for key in COLUMNS]
        table.add_row(row["scenario"], *cells, f"{row['labels']:.0f}")
    return table


def _print_verdicts(console: PlainConsole, demo_result: Demo) -> None:
    """What the gate says: one harmed graph of each scenario, one clean graph, and how many clean ones it left alone."""
    clean = demo_result.clean_verdicts
    alone = sum(verdict.startswith(LEFT_ALONE) for verdict in clean)
    seed = demo_result.outcomes[0].seed
    harmed = [(outcome.scenario, outcome.verdicts[-1]) for outcome in demo_result.outcomes if outcome.seed == seed]
    console.print(f"What the gate says of the graphs with seed {seed}:")
    for name, verdict in (*harmed, ("clean graph", clean[0])):
        console.say(f"  {name}", verdict)
    console.print(f"Of {len(clean)} clean graphs it left {alone} alone.")
