"""``graphmend mend``."""

from __future__ import annotations

import json
import logging
from dataclasses import asdict, fields, is_dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.console import Console
from rich.table import Table
from torch import nn
from torch_geometric.data import Data

import graphmend
from graphmend.adapters import ADAPTERS, Adapter, GTrans, Identity
from graphmend.cli.common import Device, JsonFlag, Quiet, Seed, device_of, log_to_stderr, parse_budget, reported
from graphmend.errors import UnsupportedLayerError, choose, listed, require
from graphmend.graph.limits import Limits
from graphmend.io.files import check_folder, digest, write_arrays, write_text
from graphmend.io.graph_files import load_graph, save_graph
from graphmend.io.provenance import provenance
from graphmend.metrics import predictions, scores
from graphmend.nn.checkpoint import load_any_model
from graphmend.results.adaptation import Adaptation
from graphmend.results.fingerprint import fingerprint, fingerprint_of
from graphmend.surrogates import SURROGATES, Supervised, Surrogate
from graphmend.transforms import VIEWS, view_of


@reported
def mend(
    graph: Annotated[
        list[Path], typer.Option(help="Graph to mend, .npz (x, edge_index, ...) or a saved PyG Data; may be repeated.")
    ],
    out: Annotated[Path, typer.Option(help="Directory for the results.")],
    model: Annotated[Path | None, typer.Option(help="Checkpoint written by 'graphmend train'.")] = None,
    factory: Annotated[
        str | None, typer.Option(help="package.module:function that builds your own model; needs --weights.")
    ] = None,
    weights: Annotated[Path | None, typer.Option(help="Your model's state_dict as safetensors.")] = None,
    adapter: Annotated[str, typer.Option(help=f"Method: {listed(ADAPTERS)}.")] = "gtrans",
    surrogate: Annotated[str, typer.Option(help=f"Surrogate loss: {listed(SURROGATES)}.")] = "contrastive",
    view: Annotated[str, typer.Option(help=f"Augmentation of the contrastive loss: {listed(VIEWS)}.")] = "drop_edge",
    label_mask: Annotated[
        str | None, typer.Option(help="Mask in the graph file whose labels may be used, such as train_mask.")
    ] = None,
    surrogate_weight: Annotated[float, typer.Option(help="Weight of the surrogate beside known labels.")] = 0.01,
    steps: Annotated[int, typer.Option(help="Steps in all.")] = 10,
    feature_steps: Annotated[int, typer.Option(help="Feature steps per cycle; 0 keeps the features.")] = 4,
    edge_steps: Annotated[int, typer.Option(help="Edge steps per cycle; 0 keeps the edges.")] = 1,
    lr_feature: Annotated[
        float,
        typer.Option(help="How far a feature step goes, in standard deviations of each column; see --feature-scale."),
    ] = 1e-3,
    feature_scale: Annotated[
        str,
        typer.Option(
            help="relative: --lr-feature counts standard deviations of each column in the graph, so units do not"
            " matter. absolute: it is in the features' own units, as in the paper."
        ),
    ] = "relative",
    lr_edge: Annotated[float, typer.Option(help="Learning rate of the edge flips.")] = 0.1,
    budget: Annotated[str, typer.Option(help="Edges that may flip: a fraction (0.05) or a count (100).")] = "0.05",
    num_samples: Annotated[int, typer.Option(help="Discrete graphs to draw.")] = 5,
    edge_update: Annotated[str, typer.Option(help="adam, sign or gradient.")] = "adam",
    space: Annotated[str, typer.Option(help="existing edges, or random_block to add edges too.")] = "existing",
    directed: Annotated[str, typer.Option(help="Directed edges: delete, or reverse as the released code.")] = "delete",
    embedding: Annotated[str | None, typer.Option(help="Module whose output is the embedding.")] = None,
    time_limit: Annotated[float | None, typer.Option(help="Seconds per graph after which no step is begun.")] = None,
    minimum: Annotated[float | None, typer.Option(help="Lowest feature value.")] = None,
    maximum: Annotated[float | None, typer.Option(help="Highest feature value.")] = None,
    binary: Annotated[bool, typer.Option("--binary", help="All features stay 0 or 1.")] = False,
    mode: Annotated[str, typer.Option(help="auto, or eager to compute the plain, slower way.")] = "auto",
    json_: JsonFlag = False,
    seed: Seed = 0,
    device: Device = "cpu",
    quiet: Quiet = False,
) -> None:
    """Mend graphs for a trained model; labels are not needed.

    For each graph NAME these files are written: NAME.npz (the mended graph), NAME.predictions.npz,
    NAME.patch.safetensors (the change; graphmend.Patch.load(...).revert takes it back) and NAME.json. Graphs that were
    already mended with the same settings are skipped. Arrays frozen_nodes, frozen_columns and frozen_edges in a graph
    mark what must not change.
    """
    log_to_stderr(quiet)
    where = device_of(device)
    names = [path.stem for path in graph]
    require(len(set(names)) == len(names), f"two graphs have the same file name ({', '.join(names)}); rename one")
    clash = [path for path in graph if (out / f"{path.stem}.npz").resolve() == path.resolve()]
    require(not clash, f"the result would overwrite the graph {clash[0] if clash else ''}; choose another --out")
    check_folder(out)
    net = load_any_model(model, factory=factory, weights=weights).to(where)
    settings: dict[str, Any] = {
        "steps": steps,
        "feature_steps": feature_steps,
        "edge_steps": edge_steps,
        "lr_feature": lr_feature,
        "feature_scale": feature_scale,
        "lr_edge": lr_edge,
        "budget": parse_budget(budget),
        "num_samples": num_samples,
        "edge_update": edge_update,
        "space": space,
        "directed": directed,
        "embedding": embedding,
        "time_limit": time_limit,
    }
    spec = {"surrogate": surrogate, "view": view, "label_mask": label_mask, "surrogate_weight": surrogate_weight}
    _adapter(adapter, _surrogate(spec, None), settings)  # complain before any graph is read
    graphs = [_for_model(load_graph(path), net, where) for path in graph]
    reports = []
    for path, data in zip(graph, graphs, strict=True):
        bounds: dict[str, Any] = {"minimum": minimum, "maximum": maximum, "binary": binary}
        record = {
            "graph": path.name,
            "fingerprint": fingerprint_of(data),
            "arrays": fingerprint({name: value for name, value in data.to_dict().items() if torch.is_tensor(value)}),
            "model": digest(net.state_dict(), f"{net} {getattr(net, 'config', factory)}"),
            "graphmend": graphmend.__version__,
            "settings": {"adapter": adapter, **settings, **spec, **bounds, "seed": seed, "mode": mode},
        }
        target = out / f"{path.stem}.json"
        report = _done(target, record)
        if report is None:
            method = _adapter(adapter, _surrogate(spec, data), settings)
            call = {"limits": _limits(data, **bounds), "seed": seed, "mode": mode, "progress": not quiet and not json_}
            result = _adapt(method, net, data, **call)
            report = {**record, **_report(result, net, data), "provenance": provenance(where)}
            _write(result, out, path.stem)
            write_text(target, json.dumps(report, indent=2) + "\n")
        reports.append(report)
    if json_:
        typer.echo(json.dumps(reports))
    elif not quiet:
        Console().print(_mend_table(reports, out))


def _adapter(name: str, surrogate: Surrogate, settings: dict[str, Any]) -> Adapter:
    """The method with those of the settings that it has."""
    kind = choose("adapter", name, ADAPTERS)
    known: list[str] = [field.name for field in fields(kind)] if is_dataclass(kind) else []
    return kind(**{key: value for key, value in {"surrogate": surrogate, **settings}.items() if key in known})


def _adapt(adapter: Adapter, net: nn.Module, data: Data, **call: Any) -> Adaptation:
    """Mend; where a layer cannot take edge weights, the features alone."""
    try:
        return adapter(net, data, **call)
    except UnsupportedLayerError as error:
        has_both = isinstance(adapter, GTrans) and adapter.feature_steps > 0
        require(has_both, str(error).replace("edge_steps=0", "--edge-steps 0 with --feature-steps"))
        assert isinstance(adapter, GTrans)
        logging.getLogger(__name__).warning("mending features only: %s", error)
        return replace(adapter, edge_steps=0)(net, data, **call)


def _for_model(data: Data, net: nn.Module, device: torch.device) -> Data:
    """Features in the model's floating-point type, all on one device."""
    kinds = {p.dtype for p in net.parameters() if p.is_floating_point()}
    if len(kinds) == 1:
        data.x = data.x.to(kinds.pop())
    return data.to(device)


def _surrogate(spec: dict[str, Any], data: Data | None) -> Surrogate:
    kind: Any = choose("surrogate", spec["surrogate"], SURROGATES)
    takes_view = is_dataclass(kind) and any(field.name == "view" for field in fields(kind))
    loss: Surrogate = kind(view_of(spec["view"])) if takes_view else kind()
    name = spec["label_mask"]
    if name is None or data is None:
        return loss
    mask = data.get(name)
    require(mask is not None, f"the graph has no mask {name!r}; it has {listed(data.keys())}")
    require(data.get("y") is not None, f"--label-mask {name} needs labels, but the graph has no y")
    return Supervised(mask) + float(spec["surrogate_weight"]) * loss


def _limits(data: Data, *, minimum: float | None, maximum: float | None, binary: bool) -> Limits:
    return Limits(
        frozen_nodes=data.get("frozen_nodes"),
        frozen_columns=data.get("frozen_columns"),
        frozen_edges=data.get("frozen_edges"),
        minimum=minimum,
        maximum=maximum,
        binary=torch.ones(data.x.size(1), dtype=torch.bool) if binary else None,
    )


def _report(result: Adaptation, net: nn.Module, data: Data) -> dict[str, Any]:
    report = {
        **result.summary(),
        "history": [asdict(step) for step in result.history],
        "candidates": [asdict(candidate) for candidate in result.candidates],
    }
    if data.get("y") is not None and data.get("test_mask") is not None:
        before = Identity()(net, data).logits
        report["test"] = {
            "before": scores(before, data.y, data.test_mask),
            "after": scores(result.logits, data.y, data.test_mask),
        }
    return report


def _write(result: Adaptation, out: Path, name: str) -> None:
    save_graph(out / f"{name}.npz", result.data)
    arrays = {"logits": result.logits.cpu().numpy(), "prediction": predictions(result.logits).cpu().numpy()}
    write_arrays(out / f"{name}.predictions.npz", arrays)
    result.patch.save(out / f"{name}.patch.safetensors")


def _done(path: Path, record: dict[str, Any]) -> dict[str, Any] | None:
    """The stored report of the very same work, if all of it is there."""
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    same = isinstance(stored, dict) and all(stored.get(key) == json.loads(json.dumps(record[key])) for key in record)
    parts = (".npz", ".predictions.npz", ".patch.safetensors")
    return stored if same and all(path.with_name(path.stem + part).exists() for part in parts) else None


def _mend_table(reports: list[dict[str, Any]], out: Path) -> Table:
    table = Table(title=f"Mended graphs in {out}")
    for column in ("graph", "loss", "rows changed", "edge entries removed", "added", "test accuracy", "seconds"):
        table.add_column(column, justify="left" if column == "graph" else "right")
    for report in reports:
        first, last = report["loss_first"], report["loss_last"]
        loss = "-" if first is None else f"{first:.4f} → {last:.4f}"
        test = report.get("test")
        accuracy = f"{test['before']['accuracy']:.3f} → {test['after']['accuracy']:.3f}" if test else "no test_mask"
        cells = [report[key] for key in ("feature_rows_changed", "edge_entries_removed", "edge_entries_added")]
        table.add_row(report["graph"], loss, *map(str, cells), accuracy, f"{report['seconds']:.2f}")
        if report["reason"]:
            table.add_row("", f"left as it was: {report['reason']}", *[""] * 5)
    return table
