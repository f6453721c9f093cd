"""'graphmend mend' for heterogeneous graphs, one after the other in this process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import typer
from torch import nn
from torch_geometric.data import HeteroData

from graphmend.adapters import ADAPTERS, Adapter
from graphmend.cli.card_files import card_beside
from graphmend.cli.common import GATE
from graphmend.cli.console import PlainConsole
from graphmend.cli.mend_pages import write_index_of
from graphmend.cli.mend_tables import print_reports, print_verdicts
from graphmend.cli.models import for_model
from graphmend.errors import GraphMendError, listed, require
from graphmend.files.files import write_arrays, write_text
from graphmend.files.graph_files import load_graph, save_graph
from graphmend.files.hetero_graphs import is_hetero_file
from graphmend.files.provenance import provenance
from graphmend.graph.limits import Limits
from graphmend.graph.stores import feature_types
from graphmend.hetero import HeteroCard, hetero_card, mend_hetero

if TYPE_CHECKING:
    from graphmend.cli.mend_run import Request

ENDS = (".npz", ".predictions.npz", ".patch.safetensors", ".json")


def mend_hetero_files(request: Request, net: nn.Module, adapter: Adapter, device: torch.device) -> None:
    """Mend the graphs, or say what would be done, and print it."""
    plain = [path for path in request.graphs if not is_hetero_file(path)]
    require(
        not plain, f"{listed(plain)} and the heterogeneous graphs need models of their own; mend them by themselves"
    )
    _check_options(request)
    card, origin = _card(request, net, device)
    reports = [_mended(path, request, net, adapter, card, origin, device) for path in request.graphs]
    if request.report and request.out is not None:
        write_index_of(request.out, list(zip(request.graphs, reports, strict=True)))
    if request.json:
        typer.echo(json.dumps(reports))
    elif request.verdict_only:
        print_verdicts(PlainConsole(), reports, origin, request.quiet)
    elif not request.quiet:
        print_reports(PlainConsole(), reports, origin, str(request.out), has_verdicts=request.adapter == GATE)


def _check_options(request: Request) -> None:
    """Raise if something was asked for that does not work with heterogeneous graphs."""
    of_types = ("frozen_nodes", "frozen_columns", "frozen_edges", "binary", "non_negative")
    used = [f"--{name.replace('_', '-')}" for name in of_types if request.limits[name]]
    used += ["--labels"] * (request.labels is not None) + ["--questions"] * bool(request.questions)
    require(not used, f"{listed(used)} does not serve a heterogeneous graph; leave it out, or use it in Python by type")


def _card(request: Request, net: nn.Module, device: torch.device) -> tuple[HeteroCard | None, str]:
    if not ADAPTERS[request.adapter].uses_card or request.no_card:
        return None, "no source card"
    if request.sources:
        graphs = [for_model(load_graph(path, missing_allowed=False), net, device) for path in request.sources]
        made = hetero_card(
            net, graphs, embedding=request.given.get("embedding"), output=request.output, task=request.task
        )
        return made, f"source card made from {', '.join(map(str, request.sources))}"
    beside = None if request.checkpoint is None else card_beside(request.checkpoint)
    if request.card is not None:
        return HeteroCard.load(request.card), f"source card {request.card}"
    if beside is not None and beside.is_file():
        return HeteroCard.load(beside), f"source card {beside}, found beside the model"
    return None, "no source card; with one far more can be told: make it with 'graphmend card'"


def _mended(
    path: Path,
    request: Request,
    net: nn.Module,
    adapter: Adapter,
    card: HeteroCard | None,
    origin: str,
    device: torch.device,
) -> dict[str, Any]:
    """The report of a graph; graph, predictions and patch are written before it, if anything is."""
    original: Any = load_graph(path)
    data: HeteroData = for_model(original, net, device)
    others = [kind for kind in feature_types(data) if original[kind].x.dtype != data[kind].x.dtype]
    if others:
        raise GraphMendError(f"{path}: the features of {listed(others)} have another type than the model; convert them")
    limits = Limits(minimum=request.limits["minimum"], maximum=request.limits["maximum"])
    try:
        options: dict[str, Any] = {
            "card": card,
            "limits": limits,
            "seed": request.seed,
            "mode": request.mode,
            "output": request.output,
            "task": request.task,
        }
        result = mend_hetero(net, data, adapter, **options)
    except GraphMendError as error:
        raise GraphMendError(f"{path}: {error}") from error
    report = {
        "graph": path.name,
        "fingerprint": result.patch.before,
        **result.summary(),
        "questions": None,
        "card": {"origin": origin},
        "provenance": provenance(device, seed=request.seed),
    }
    if request.out is not None:
        graph, predicted, patch, report_file = (request.out / f"{path.stem}{end}" for end in ENDS)
        save_graph(graph, result.data)
        arrays = {"logits": result.logits.cpu().numpy()}
        if result.task.predicts:
            arrays["prediction"] = result.predictions.cpu().numpy()
        write_arrays(predicted, arrays)
        result.patch.save(patch)
        if request.report:
            result.report(request.out / f"{path.stem}.html", title=path.name)
        write_text(report_file, json.dumps(report, indent=2) + "\n")
    return report
