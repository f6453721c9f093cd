"""Write the tables of the study of the monitor into its page.

python -m graphmend.lab.studies.monitoring_page --runs docs/results/monitor_cpu.json --page docs/monitor.md
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from graphmend.files.files import read_json
from graphmend.lab.studies.pages import put_table

Row = dict[str, Any]
PROGRAM = "graphmend.lab.studies.monitoring_page"
DETECTORS = ("monitor", "threshold per graph", "ADWIN", "Page-Hinkley")


def false_alarms(rows: Iterable[Row]) -> list[list[str]]:
    """Streams with an alarm, of how many, a line for each kind of stream."""
    table: dict[str, list[str]] = {}
    for row in rows:
        if row["study"] == "false alarms":
            table.setdefault(row["stream"], [f"{row['streams']:,} x {row['graphs']:,}"]).append(
                f"{100 * row['alarms'] / row['streams']:.1f} %"
            )
    return [[stream, *cells] for stream, cells in table.items()]


def delays(rows: Iterable[Row]) -> list[list[str]]:
    """How long each detector takes, a line for each fault and strength."""
    table: dict[tuple[str, str, str], list[str]] = {}
    for row in rows:
        if row["study"] != "delay":
            continue
        cells = table.setdefault((row["data"], row["fault"], row["strength"]), [])
        found = "" if row["found"] == row["streams"] else f" ({row['found']} of {row['streams']})"
        cells.append("-" if row["median"] is None else f"{row['median']:.0f}{found}")
        if row["detector"] == "monitor":
            share = 100 * row["kind right"] / row["found"] if row["found"] else None
            cells.append("-" if share is None else f"{share:.0f} %")
    return [[data, fault, strength, *cells] for (data, fault, strength), cells in table.items()]


def real(rows: Iterable[Row]) -> list[list[str]]:
    """The alarms of the real streams, a line each."""
    out = []
    for row in rows:
        if row["study"] != "real":
            continue
        graphs = sum(row["graphs"].values())
        for alarm in row["alarms"] or [None]:
            told = ["none", "", ""] if alarm is None else [alarm["in"], alarm["since in"], f"`{alarm['kind']}`"]
            out.append([row["stream"], str(graphs), *told])
    return out


def main() -> None:
    """Write all three tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--runs", type=Path, required=True)
    parser.add_argument("--page", type=Path, required=True)
    args = parser.parse_args()
    rows = [row for rows in read_json(args.runs)["rows"].values() for row in rows]
    put_table(args.page, f"{PROGRAM}: false alarms", ["stream", "streams x graphs", *DETECTORS], false_alarms(rows))
    head = ["data", "fault", "strength", "monitor", "kind right", *DETECTORS[1:]]
    put_table(args.page, f"{PROGRAM}: delays", head, delays(rows))
    put_table(args.page, f"{PROGRAM}: real", ["stream", "graphs", "alarm in", "since", "kind"], real(rows))


if __name__ == "__main__":
    main()
