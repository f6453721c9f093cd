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
from pathlib import Path
from typing import Any

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


def plot(stored: dict[str, Any], path: Path) -> None:
    """Time and memory, both axes logarithmic."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    entries = [cell["entries"] for cell in stored["cells"]]
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.4))
    for part, label in (("whole", "whole adaptation"), ("feature", "feature step"), ("edge", "structure step")):
        axes[0].loglog(entries, [cell["seconds"][part] for cell in stored["cells"]], marker="o", label=label)
    axes[1].loglog(entries, [cell["memory"] / 1e9 for cell in stored["cells"]], marker="o", color="tab:grey")
    last, top = entries[-1], stored["cells"][-1]["seconds"]["whole"]
    axes[0].plot([last / 100, last], [top / 100, top], linestyle=":", color="black", label="linear")
    for axis, label in zip(axes, ("seconds", "peak memory, GB"), strict=True):
        axis.set_xlabel("stored entries")
        axis.set_ylabel(label)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].legend(frameon=False, fontsize=8)
    figure.suptitle(f"GraphMend on random graphs ({stored['about']['device']})", fontsize=10)
    figure.tight_layout()
    figure.savefig(path, dpi=150)


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("scaling.json"), help="resumed if it exists")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--entries", nargs="+", type=int, default=ENTRIES)
    parser.add_argument("--plot", type=Path, help="write a plot there")
    arguments = parser.parse_args()
    stored = run(arguments)
    print(table(stored))
    if arguments.plot:
        plot(stored, arguments.plot)


if __name__ == "__main__":
    main()
