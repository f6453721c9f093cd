"""Does time grow with the graph, and no faster? GraphMend on random graphs of 1e4 to 1e8 stored entries.

    python benchmarks/scaling.py --out FILE.json [--device cuda] [--entries 10000 ... 100000000] [--plot FILE.png]

Block models with a mean degree of 25 and 100 features, a 2-layer GCN with 32 hidden units, T = 10, K = 5; each size in
a process of its own. Times are medians after one adaptation to warm up (large graphs on a CPU: those of the only one).
The largest graph wants all memory of a small machine: started like this, the program holds none itself. It also runs as
``python -m benchmarks.scaling``.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from graphmend.results import style

ENTRIES = (10_000, 100_000, 1_000_000, 10_000_000, 30_000_000, 100_000_000)


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """All sizes the file does not hold yet."""
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    stored = json.loads(arguments.out.read_text()) if arguments.out.exists() else {"cells": []}
    done = {cell["name"] for cell in stored["cells"]}
    for entries in arguments.entries:
        name = f"csbm-{entries}"
        if name in done:
            continue
        command = [sys.executable, "-m", "benchmarks.adapt", "--one", name, "GCN", "graphmend"]
        found = subprocess.run([*command, "--device", arguments.device], capture_output=True, text=True)
        if found.returncode:
            print(f"{name}: failed, {(found.stderr.strip().splitlines() or ['no message'])[-1][:200]}", flush=True)
            continue
        cell = json.loads(found.stdout.splitlines()[-1])
        stored = {"about": cell.pop("about"), "cells": [*stored["cells"], cell]}
        part = arguments.out.with_suffix(".part")
        part.write_text(json.dumps(stored, indent=1))
        part.replace(arguments.out)
        print(f"{name}: {cell['seconds']['whole']:.3f} s, {cell['memory'] / 1e9:.2f} GB", flush=True)
    return stored


def slope(cells: list[dict[str, Any]], what: str) -> float | None:
    """The exponent with which time or memory grows over the last decade."""
    large = sorted((c for c in cells if c["entries"] >= 9_000_000), key=lambda c: c["entries"])
    if len(large) < 2:
        return None
    first, last = large[0], large[-1]
    ratio = last["memory"] / first["memory"] if what == "memory" else last["seconds"][what] / first["seconds"][what]
    return math.log(ratio) / math.log(last["entries"] / first["entries"])


def table(stored: dict[str, Any]) -> str:
    """Markdown."""
    lines = ["| stored entries | nodes | feature step, s | structure step, s | whole, s | memory, GB |"]
    lines.append("|" + " --- |" * 6)
    for cell in stored["cells"]:
        s = cell["seconds"]
        parts = [f"{s[part]:.4g}" for part in ("feature", "edge", "whole")]
        lines.append(f"| {cell['entries']:,} | {cell['nodes']:,} | {' | '.join(parts)} | {cell['memory'] / 1e9:.2f} |")
    for what in ("feature", "whole", "memory"):
        found = slope(stored["cells"], what)
        if found is not None:
            lines.append(f"\nSlope of {what} over the last decade: {found:.2f}")
    return "\n".join(lines)


def plot(stored: dict[str, Any], path: Path, others: Sequence[dict[str, Any]] = ()) -> None:
    """Time and memory, both axes logarithmic."""
    both = {str(part["about"]["device"]): part for part in (stored, *others)}
    figure = style.figure(10, 4.8)
    seconds, memory = figure.subplots(1, 2)
    marks: dict[str, Any] = {}
    for k, (device, part) in enumerate(both.items()):
        entries = [cell["entries"] for cell in part["cells"]]
        for line, dash, word in (("whole", "-", "whole adaptation"), ("feature", "--", "feature step")):
            times = [cell["seconds"][line] for cell in part["cells"]]
            label = f"{device}, {word}"
            (marks[label],) = seconds.loglog(entries, times, dash, marker="o", markersize=4, color=style.COLOURS[2 * k])
        memory.loglog(entries, [c["memory"] / 1e9 for c in part["cells"]], marker="o", color=style.COLOURS[2 * k])
    for axis, label in ((seconds, "seconds"), (memory, "peak memory, GB")):
        style.title(axis, label)
        axis.set_xlabel("stored entries (edges, each direction)")
        axis.grid(linewidth=0.5, color=style.FAINT)
    style.legend(figure, seconds, marks, 4.8)
    style.heading(figure, "Time and memory on random graphs of growing size")
    style.dress(figure)
    style.save(figure, path)


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("scaling.json"), help="resumed if it exists")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--entries", nargs="+", type=int, default=ENTRIES)
    parser.add_argument("--plot", type=Path, help="write a plot there")
    parser.add_argument("--beside", type=Path, nargs="*", default=[], help="stored results of other machines, to plot")
    arguments = parser.parse_args()
    stored = run(arguments)
    print(table(stored))
    if arguments.plot:
        plot(stored, arguments.plot, [json.loads(path.read_text()) for path in arguments.beside])


if __name__ == "__main__":
    main()
