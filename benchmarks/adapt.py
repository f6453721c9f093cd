"""How fast is GraphMend? The same adaptation, step by step, by a plain PyG reference and by GraphMend, in one run.

    python -m benchmarks.adapt --out FILE.json [--data DIR] [--device cuda] [--quick] [--plot FILE.png]

T = 10 (8 feature, 2 structure steps), K = 5, hidden 32, on undirected graphs; GCN has 5 layers with batch normalisation
at arxiv size and 2 elsewhere, GAT 4 heads; "PyG GCN" and so on are stock models of the same size, whose reference is
the same stock model in plain PyG. Every measurement has a process of its own (on a GPU and with --quick all
share one). The time is the median of 15 adaptations after one to warm up (on a CPU of 7; larger graphs: of 5, on a CPU
of 3, large ones of one; with --quick of 3 and of one), the memory the peak above what the process held before (CPU:
resident, GPU: all that is allocated, the graph included). Small graphs on a CPU take three turns, GraphMend and the
reference one after the other, of which the median times count (memory and losses are the first turn's): a fraction of a
second says little on a machine that others use, too.
Both get the same random views; the largest difference of their losses is recorded.
Graphs whose data is not there are replaced by random ones of the same size and marked as such.
"""

from __future__ import annotations

import argparse
import copy
import ctypes
import gc
import itertools
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks import graphs
from benchmarks.reference import Reference
from graphmend import GTrans
from graphmend.files.files import write_text
from graphmend.files.provenance import provenance
from graphmend.results import style

NAMES, KINDS = ("cora", "photo", "twitch", "fb100", "arxiv-size"), tuple(graphs.MODELS)
QUICK = {"names": ("cora", "photo"), "kinds": ("GCN", "GPR")}
PARTS = ("feature", "edge", "sampling", "whole")
SMALL = 50_000  # entries


def one(name: str, kind: str, who: str, device: str, data_dir: Path | None, quick: bool = False) -> dict[str, Any]:
    """One measurement, in this process."""
    data, is_real = graphs.graph(name, data_dir)
    model = graphs.model(kind, data, name).to(device)
    data = copy.copy(data).to(device)
    many, few = (7, 3) if device == "cpu" else (15, 5)
    repeats = 1 if data.num_edges > 500_000 and device == "cpu" else few if data.num_edges > SMALL else many
    if quick:
        repeats = 3 if data.num_edges < SMALL else 1
    before = reset_memory(device)
    times: list[dict[str, float]] = []
    for _ in range(1 if repeats == 1 else repeats + 1):
        if repeats > 1:
            data = data.clone()  # fresh tensors, so that nothing is known about the graph
        seconds, losses = _adapt(who, model, data, device)
        times.append(seconds)
    best = {part: statistics.median(t[part] for t in times[-repeats:]) for part in PARTS}
    return {
        "name": name,
        "kind": kind,
        "who": who,
        "real": is_real,
        "nodes": data.num_nodes,
        "entries": data.num_edges,
        "features": data.num_features,
        "seconds": best,
        "memory": peak_memory(device) - before,
        "losses": losses,
    }


def _adapt(who: str, model: torch.nn.Module, data: Any, device: str) -> tuple[dict[str, float], list[float]]:
    wait(device)
    start = time.perf_counter()
    if who == "reference":
        trace = Reference(model, data.x, data.edge_index)()
        losses, kinds, marks, seconds = trace.losses, trace.kinds, trace.seconds, trace.total
        scores = trace.scores
    else:
        found = GTrans(edge_update="sign", feature_scale="absolute")(model, data)
        if found.reason is not None:
            raise RuntimeError(found.reason)
        losses, kinds = [step.loss for step in found.history], [step.kind for step in found.history]
        marks, seconds = [step.seconds for step in found.history], found.seconds
        scores = [candidate.loss for candidate in found.candidates]
    wait(device)
    whole = time.perf_counter() - start
    steps = {kind: [b - a for a, b, k in zip([0.0, *marks], marks, kinds, strict=False) if k == kind] for kind in PARTS}
    parts = {kind: statistics.median(steps[kind]) for kind in ("feature", "edge")}
    return {**parts, "sampling": seconds - marks[-1], "whole": whole}, [*losses, *scores[:2]]


def wait(device: str) -> None:
    """Wait until a GPU has done what it was asked to do."""
    if device == "cuda":
        torch.cuda.synchronize()


def reset_memory(device: str) -> int:
    """Count the peak from here; what the process holds now."""
    gc.collect()
    if device == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        return 0
    ctypes.CDLL(None).malloc_trim(0)  # what an earlier measurement has left
    Path("/proc/self/clear_refs").write_text("5")  # the peak is counted from here (Linux)
    return _resident("VmRSS")


def peak_memory(device: str) -> int:
    """The most that the process has held since :func:`reset_memory`."""
    return torch.cuda.max_memory_allocated() if device == "cuda" else _resident("VmHWM")


def _resident(what: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(what))


def bandwidth(device: str) -> float:
    """GB/s of a copy in memory, read and written."""
    size = 1 << (30 if device == "cuda" else 27)
    source = torch.ones(size // 4, device=device)
    target, times = torch.empty_like(source), []
    for _ in range(6):
        wait(device)
        start = time.perf_counter()
        target.copy_(source)
        wait(device)
        times.append(time.perf_counter() - start)
    return 2 * size / min(times) / 1e9


def gathered(cell: dict[str, Any]) -> float:
    """Bytes that a feature step of a GCN, SAGE or GPR cannot but move: neighbours, indices and values of every hop."""
    hops = 10 if cell["kind"] == "GPR" else 4 if cell["kind"].endswith("GCN") and cell["name"] == "arxiv-size" else 1
    hop = cell["entries"] * (32 * 4 + 4 + 4) + cell["nodes"] * 32 * 4
    features = cell["nodes"] * cell["features"] * 4
    return float(6 * hops * hop + 9 * features)


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """All measurements that the file does not hold yet, each in a process of its own."""
    stored = json.loads(arguments.out.read_text()) if arguments.out.exists() else {"cells": []}
    cells: list[dict[str, Any]] = stored["cells"]
    done = {(c["name"], c["kind"], c["who"]) for c in cells}
    names, kinds = (QUICK["names"], QUICK["kinds"]) if arguments.quick else (arguments.names, arguments.kinds)
    for name, kind in itertools.product(names, kinds):
        missing = [who for who in ("graphmend", "reference") if (name, kind, who) not in done]
        if not missing:
            continue
        turns = [{who: _measured(name, kind, who, arguments) for who in missing}]
        small = all(cell is not None and cell["entries"] < SMALL for cell in turns[0].values())
        if small and arguments.device == "cpu" and not arguments.quick:
            turns += [{who: _measured(name, kind, who, arguments) for who in missing} for _ in range(2)]
        for who in missing:
            found = [cell for turn in turns if (cell := turn[who]) is not None]
            if found:
                medians = {part: statistics.median(cell["seconds"][part] for cell in found) for part in PARTS}
                cells.append({**found[0], "seconds": medians})
        about = provenance(arguments.device, copy_gb_per_s=round(bandwidth(arguments.device), 1))
        stored = {"about": about, "cells": cells}
        write_text(arguments.out, json.dumps(stored, indent=1))
    return stored


def _measured(name: str, kind: str, who: str, arguments: argparse.Namespace) -> dict[str, Any] | None:
    """One measurement, in a process of its own; ``None`` if it failed."""
    print(f"{name} {kind} {who}: ", end="", flush=True)
    if arguments.device == "cuda" or arguments.quick:  # starting takes long
        try:
            cell = one(name, kind, who, arguments.device, arguments.data, arguments.quick)
        except torch.OutOfMemoryError as error:
            print(f"failed, {str(error).splitlines()[0][:200]}", flush=True)
            return None
    else:
        command = [sys.executable, "-m", "benchmarks.adapt", "--one", name, kind, who, "--device", arguments.device]
        command += ["--data", str(arguments.data)] if arguments.data else []
        found = subprocess.run(command, capture_output=True, text=True)
        if found.returncode:
            print(f"failed, {(found.stderr.strip().splitlines() or ['no message'])[-1][:200]}", flush=True)
            return None
        cell = json.loads(found.stdout.splitlines()[-1])
        del cell["about"]
    print(f"{cell['seconds']['whole']:.3f} s, {cell['memory'] / 1e9:.2f} GB", flush=True)
    return cell


def pairs(cells: list[dict[str, Any]]) -> list[tuple[dict[str, Any], dict[str, Any] | None]]:
    """GraphMend's cells, each with the reference's where it has one."""
    theirs = {(c["name"], c["kind"]): c for c in cells if c["who"] == "reference"}
    return [(c, theirs.get((c["name"], c["kind"]))) for c in cells if c["who"] == "graphmend"]


def table(stored: dict[str, Any]) -> str:
    """Times and ratios as Markdown."""
    heads = ["graph", "model", "feature step", "structure step", "sampling", "whole"]
    heads += ["seconds, ours / PyG's", "memory in GB, ours / PyG's", "loss differs by"]
    lines = [f"| {' | '.join(heads)} |", "|" + " --- |" * len(heads)]
    for mine, other in pairs(stored["cells"]):
        name = mine["name"] + ("" if mine["real"] or mine["name"] == "arxiv-size" else " (random graph)")
        ours = mine["seconds"]
        if other is None:
            alone = f"{ours['whole']:.3f} / - | {mine['memory'] / 1e9:.2f} / - |"
            lines.append(f"| {name} | {mine['kind']} | | | | | {alone} |")
            continue
        ratios = [f"{other['seconds'][part] / ours[part]:.1f}x" for part in PARTS]
        differs = max(abs(a - b) for a, b in zip(mine["losses"][:10], other["losses"][:10], strict=True))
        memory = f"{mine['memory'] / 1e9:.2f} / {other['memory'] / 1e9:.2f}"
        seconds = f"{ours['whole']:.3f} / {other['seconds']['whole']:.3f}"
        lines.append(f"| {name} | {mine['kind']} | {' | '.join(ratios)} | {seconds} | {memory} | {differs:.0e} |")
    copy_speed = stored["about"]["copy_gb_per_s"]
    lines.append(f"\nCopy: {copy_speed} GB/s. Bytes a feature step has to move per second of ours, as a share of that:")
    for mine, _ in pairs(stored["cells"]):
        if "GAT" in mine["kind"]:
            continue
        rate = gathered(mine) / mine["seconds"]["feature"] / 1e9
        lines.append(f"- {mine['name']} {mine['kind']}: {rate:.0f} GB/s, {rate / copy_speed:.0%}")
    return "\n".join(lines)


def plot(stored: dict[str, Any], path: Path) -> None:
    """Bars of the ratios of whole adaptations."""
    found = [(a, b) for a, b in pairs(stored["cells"]) if b is not None]
    names = list(dict.fromkeys(a["name"] for a, _ in found))
    kinds = list(dict.fromkeys(a["kind"] for a, _ in found))
    figure = style.figure(11, 7)
    marks = {kind: {"color": style.class_colour(k)} for k, kind in enumerate(kinds)}
    for axis, what in zip(figure.subplots(2, 1), ("time", "memory"), strict=True):
        for k, kind in enumerate(kinds):
            here = [(names.index(a["name"]), _ratio(a, b, what)) for a, b in found if a["kind"] == kind]
            places = [place + (k - (len(kinds) - 1) / 2) * 0.8 / len(kinds) for place, _ in here]
            bars = axis.bar(places, [ratio for _, ratio in here], width=0.8 / len(kinds), color=style.class_colour(k))
            axis.bar_label(bars, fmt="%.1f", fontsize=7, color=style.INK, padding=2)
        axis.set_xticks(range(len(names)), names)
        axis.axhline(1, color=style.MUTED, linewidth=0.8)
        axis.set_yscale("log")
        axis.margins(y=0.12)
        axis.yaxis.set_major_formatter("{x:g}")
        style.title(axis, "times faster" if what == "time" else "times less memory at the peak")
    style.legend(figure, axis, marks, 1.2)
    note = f"Whole adaptations of the same work; {stored['about']['device']}."
    style.heading(figure, "GraphMend against plain PyG", note)
    style.dress(figure)
    style.save(figure, path)


def _ratio(mine: dict[str, Any], other: dict[str, Any], what: str) -> float:
    if what == "time":
        return float(other["seconds"]["whole"] / mine["seconds"]["whole"])
    return float(other["memory"] / max(mine["memory"], 1))


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("adapt.json"), help="resumed if it exists")
    parser.add_argument("--data", type=Path, help="folder with the real data")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--names", nargs="+", default=NAMES)
    parser.add_argument("--kinds", nargs="+", default=KINDS)
    parser.add_argument("--quick", action="store_true", help="two small graphs, two models: under a minute")
    parser.add_argument("--plot", type=Path, help="write a plot there")
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        name, kind, who = arguments.one
        found = one(name, kind, who, arguments.device, arguments.data)
        print(json.dumps({**found, "about": provenance(arguments.device)}))
        return
    stored = run(arguments)
    print(table(stored))
    if arguments.plot:
        plot(stored, arguments.plot)


if __name__ == "__main__":
    main()
