"""``graphmend info``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from graphmend.cli.common import Device, JsonFlag, Quiet, Seed, reported
from graphmend.cli.console import PlainConsole, log_to_stderr
from graphmend.errors import GraphMendError, listed, require


@reported
def info(
    path: Annotated[
        Path | None, typer.Argument(help="A graph, a checkpoint, a source card or a patch.", metavar="FILE")
    ] = None,
    json_: JsonFlag = False,
    seed: Seed = 0,
    device: Device = "cpu",
    quiet: Quiet = False,
) -> None:
    """Say what a file holds, or, without one, what this installation has: versions, and all names that options take.

    Example:

        graphmend info
        graphmend info gcn.card.safetensors
    """
    log_to_stderr(quiet)
    facts = _installation(device) if path is None else _describe(path)
    if json_:
        typer.echo(json.dumps(facts))
        return
    table = Table(show_header=False)
    for key, value in facts.items():
        table.add_row(key, str(value))
    PlainConsole().print(table)


def _installation(device: str) -> dict[str, Any]:
    import torch

    from graphmend.adapters import ADAPTERS
    from graphmend.cli.device import device_of
    from graphmend.datasets.registry import DATASETS
    from graphmend.io.provenance import device_name, provenance
    from graphmend.nn import BACKBONES
    from graphmend.surrogates import SURROGATES
    from graphmend.transforms import VIEWS

    return {
        **provenance(device_of(device)),
        "cuda": device_name(torch.device("cuda")) if torch.cuda.is_available() else "not available",
        "backbones": listed(BACKBONES),
        "adapters": listed((*ADAPTERS, "gate")),
        "surrogates": listed(SURROGATES),
        "views": listed(VIEWS),
        "data sets": listed(DATASETS),
    }


def _own_file(path: Path, text: str) -> dict[str, Any]:
    """A source card or a patch."""
    from graphmend.cards import SourceCard
    from graphmend.cli.card_files import card_facts

    try:
        header: Any = json.loads(text)
    except json.JSONDecodeError as error:
        raise GraphMendError(f"the header of {path} is damaged ({error}); write the file again") from error
    require(isinstance(header, dict), f"the header of {path} is damaged; write the file again")
    if str(header.get("format")).startswith("graphmend-card"):
        return {"kind": "source card", **card_facts(SourceCard.load(path))}
    return {"kind": "patch", **header}


def _describe(path: Path) -> dict[str, Any]:
    from graphmend.io.files import read_safetensors
    from graphmend.io.graph_files import load_graph
    from graphmend.results.fingerprint import fingerprint_of

    if path.suffix == ".safetensors":
        tensors, header = read_safetensors(path)
        if "graphmend" in header:
            return _own_file(path, header["graphmend"])
        kind = "GraphMend model" if header.get("format", "").startswith("graphmend-model") else "weights"
        return {"kind": kind, **header, "parameters": sum(t.numel() for t in tensors.values())}
    data = load_graph(path)
    facts: dict[str, Any] = {
        "kind": "graph",
        "nodes": data.x.size(0),
        "features": data.x.size(1),
        "edges": data.edge_index.size(1),
        "undirected": data.is_undirected(),
        "self-loops": int((data.edge_index[0] == data.edge_index[1]).sum()),
        "isolated nodes": data.has_isolated_nodes(),
        "x": f"{data.x.dtype}, {float(data.x.min()):.4g} to {float(data.x.max()):.4g}",
        "further arrays": listed(set(data.keys()) - {"x", "edge_index"}),
        "fingerprint": fingerprint_of(data),
    }
    if data.get("y") is not None and not data.y.is_floating_point():
        facts["classes"] = int(data.y.max()) + 1
    return facts
