"""The facts of 'graphmend info': about a file, or about this installation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import HeteroData
from torch_geometric.utils import contains_isolated_nodes, is_undirected

from graphmend.cards import SourceCard
from graphmend.cli.card_files import card_facts
from graphmend.cli.lab import lab
from graphmend.cli.models import device_of
from graphmend.errors import listed
from graphmend.files.files import escaped, read_safetensors
from graphmend.files.provenance import device_name, provenance
from graphmend.graph.checks import is_finite
from graphmend.graph.mapped import MappedGraph
from graphmend.graph.stores import edge_name, node_count
from graphmend.hetero import HeteroCard, read_any_patch
from graphmend.results.fingerprint import fingerprint_of
from graphmend.results.patch import Patch
from graphmend.results.patch_file import NOTE as PATCH_NOTE
from graphmend.shards.folder import read_graph

ENTRIES = 50  # of a header that are shown


def installation(device: str) -> dict[str, Any]:
    """Versions and the device."""
    return {
        **provenance(device_of(device)),
        "cuda": device_name(torch.device("cuda")) if torch.cuda.is_available() else "not available",
        "names": "'graphmend list' has every name that an option takes",
    }


def describe(path: Path) -> dict[str, Any]:
    """What a file or a folder holds, checked as if it were to be used; texts from it are safe to print."""
    if path.is_dir():
        facts = _patch(path) if (path / PATCH_NOTE).is_file() else _graph(path)
    else:
        facts = _tensor_file(path) if path.suffix.lower() == ".safetensors" else _graph(path)
    return {name: _safe(value) for name, value in facts.items()}


def _safe(value: Any) -> Any:
    if isinstance(value, dict):
        return {escaped(str(key), 40): _safe(item) for key, item in list(value.items())[:ENTRIES]}
    return escaped(value) if isinstance(value, str) else value


def _tensor_file(path: Path) -> dict[str, Any]:
    """A source card, a patch, a checkpoint or other weights."""
    tensors, header = read_safetensors(path)
    count = sum(tensor.numel() for tensor in tensors.values())
    if header.get("format", "").startswith("graphmend-model"):
        model = lab("backbones").load_model(path)
        facts = {"kind": "GraphMend model", **header, "config": model.config, "parameters": count}
        return {**facts, "trainer": _object(header["trainer"])} if "trainer" in header else facts
    if "graphmend" not in header:
        return {"kind": "weights", "parameters": count, "tensors": len(tensors), "header": header}
    form = str(_object(header["graphmend"]).get("format"))
    if form.startswith("graphmend-card"):
        return {"kind": "source card", **card_facts(SourceCard.load(path))}
    if form.startswith("graphmend-hetero-card"):
        return {"kind": "heterogeneous source card", **HeteroCard.load(path).facts()}
    return _patch(path)


def _patch(path: Path) -> dict[str, Any]:
    patch = read_any_patch(path)
    kind = "patch" if isinstance(patch, Patch) else "heterogeneous patch"
    return {"kind": kind, "before": patch.before, "summary": patch.summary()}


def _object(text: str) -> dict[str, Any]:
    """The texts and numbers of a JSON object; empty if the text is not one."""
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    plain = parsed.items() if isinstance(parsed, dict) else ()
    return {key: value for key, value in plain if value is None or isinstance(value, str | int | float)}


def _graph(path: Path) -> dict[str, Any]:
    data: Any = read_graph(path)
    if isinstance(data, HeteroData):
        return _heterogeneous(data)
    nodes, y = data.x.size(0), data.get("y")
    facts: dict[str, Any] = {
        "kind": "graph",
        "nodes": nodes,
        "features": data.x.size(1),
        "edges": data.edge_index.size(1),
        "undirected": _is_undirected(data),
        "self-loops": int((data.edge_index[0] == data.edge_index[1]).sum()),
        "isolated nodes": contains_isolated_nodes(data.edge_index, num_nodes=nodes),
        "x": f"{data.x.dtype}, {_range(data.x)}",
        "further arrays": listed(set(data.keys()) - {"x", "edge_index"}),
        "fingerprint": fingerprint_of(data),
    }
    missing = data.x.isnan()
    if bool(missing.any()):
        share = 100 * float(missing.double().mean())
        facts["missing values"] = f"{int(missing.sum())} in {int(missing.any(1).sum())} rows, {share:.2g} % of all"
    if y is not None and y.numel() > 0 and not y.is_floating_point() and not y.is_complex():
        facts["classes"] = int(y.max()) + 1
    return facts


def _heterogeneous(data: HeteroData) -> dict[str, Any]:
    facts: dict[str, Any] = {"kind": "heterogeneous graph"}
    for kind in data.node_types:
        x, further = data[kind].get("x"), listed(set(data[kind].keys()) - {"x"})
        shape = (
            "no features" if x is None else f"{x.size(1)} features, {x.dtype}, {int(x.isnan().sum())} missing values"
        )
        facts[kind] = f"{node_count(data, kind)} nodes, {shape}" + (f"; {further}" if further else "")
    for edge_type in data.edge_types:
        facts[edge_name(edge_type)] = f"{data[edge_type].edge_index.size(1)} edges"
    return facts


def _is_undirected(data: Any) -> bool:
    known = isinstance(data, MappedGraph)
    return bool(data.is_symmetric if known else is_undirected(data.edge_index, num_nodes=data.x.size(0)))


def _range(x: Tensor) -> str:
    """The smallest and the largest value, of those that are not missing."""
    values = x if is_finite(x) else x[~x.isnan()]
    return f"{float(values.min()):.4g} to {float(values.max()):.4g}"
