"""The work of 'graphmend train': check, train, save, score."""

from __future__ import annotations

import json
import logging
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import torch
import typer
from torch import nn
from torch_geometric.data import Data

from graphmend.cards import card
from graphmend.cli.card_files import card_beside
from graphmend.cli.common import check_no_clash
from graphmend.cli.console import PlainConsole, plain_table
from graphmend.cli.mend_inputs import labelled_nodes
from graphmend.cli.models import device_of
from graphmend.errors import GraphMendError, require
from graphmend.files.files import check_target
from graphmend.files.graph_files import load_graph
from graphmend.files.provenance import provenance
from graphmend.lab.backbones import build, save_model
from graphmend.lab.cli.settings import own_settings
from graphmend.lab.data.registry import load
from graphmend.lab.data.splits import MASKS, Splits, node_mask
from graphmend.lab.training import trainer_of
from graphmend.outputs import count_classes
from graphmend.results.scores import scores


class Request(NamedTuple):
    """What was asked for: see the options of the command."""

    out: Path
    dataset: str | None
    graph: Path | None
    backbone: str
    shape: dict[str, Any]
    trainer: str
    training: dict[str, Any]
    own: list[str]
    data_dir: Path | None
    json: bool
    seed: int
    device: str
    quiet: bool


def run_train(request: Request) -> None:
    """Train a model, save it with its source card, and print its scores."""
    where = device_of(request.device)
    of_trainer, of_backbone = own_settings(request.own, request.trainer, request.backbone)
    trainer = trainer_of(request.trainer, **request.training, **of_trainer)
    card_file = card_beside(request.out)
    check_no_clash([request.out, card_file], [] if request.graph is None else [request.graph])
    for target in (request.out, card_file):
        check_target(target)
    splits = _splits(request).to(where)
    first = splits.train[0]
    torch.manual_seed(request.seed)
    shape = {**request.shape, **of_backbone}
    net = build(request.backbone, first.x.size(1), out_channels=int(splits.meta["classes"]), **shape)
    net = net.to(where, first.x.dtype)
    trainer(net, splits, progress=not request.quiet and not request.json)
    settings = {"name": request.trainer, **asdict(trainer)}
    save_model(net, request.out, trainer=settings)
    report: dict[str, Any] = {
        "model": str(request.out),
        "card": _write_card(net, splits.train, card_file, request.seed),
        "backbone": request.backbone,
        "trainer": settings,
    }
    for name, part in (("train", splits.train), ("validation", splits.val), ("test", splits.test)):
        report[name] = _scores(net, part)
    report["provenance"] = provenance(where, seed=request.seed)
    if request.json:
        typer.echo(json.dumps(report))
    elif not request.quiet:
        _print(report)


def _splits(request: Request) -> Splits:
    """The data set that was asked for, or the graph with its masks."""
    require((request.dataset is None) != (request.graph is None), "give either --dataset or --graph")
    if request.dataset is not None:
        return load(request.dataset, seed=request.seed, data_dir=request.data_dir)
    assert request.graph is not None
    path, data = request.graph, load_graph(request.graph, missing_allowed=False)
    missing = [name for name in ("y", *MASKS) if data.get(name) is None]
    require(not missing, f"{path} has no {', '.join(missing)}; training needs labels and all three masks")
    for name in MASKS:
        data[name] = labelled_nodes(data, name, path)
    data.y = data.y.view(-1).long()
    known = data.train_mask | data.val_mask
    classes, tested = count_classes(data.y[known], data.num_nodes), int(data.y[data.test_mask].max())
    require(
        tested < classes,
        f"{path}: test_mask has the label {tested}, but training and validation know the classes 0 to {classes - 1}; "
        "take such nodes out of test_mask, or train on some of them",
    )
    return Splits.transductive(data, meta={"name": path.name, "classes": classes})


def _write_card(net: nn.Module, graphs: list[Data], path: Path, seed: int) -> str | None:
    """Where the source card was written; a model for which none can be made is still a trained model."""
    try:
        card(net, graphs, seed=seed, task="classes").save(path)
    except GraphMendError as error:
        logging.getLogger(__name__).warning("the model was saved, but there is no source card: %s", error)
        return None
    return str(path)


@torch.no_grad()
def _scores(net: nn.Module, part: list[Data]) -> dict[str, float]:
    """The scores over all nodes of several graphs that count; none if they cannot be computed."""
    try:
        logits = [net(data.x, data.edge_index, data.get("edge_weight"))[node_mask(data)] for data in part]
        return scores(torch.cat(logits), torch.cat([data.y.view(-1)[node_mask(data)] for data in part]))
    except (GraphMendError, RuntimeError) as error:
        logging.getLogger(__name__).warning("the model was saved, but cannot be scored: %s", error)
        return {}


def _print(report: dict[str, Any]) -> None:
    console, table = PlainConsole(), plain_table(f"{report['backbone']} trained by {report['trainer']['name']}")
    for column in ("nodes", "accuracy", "macro-F1"):
        table.add_column(column)
    for name in ("train", "validation", "test"):
        values = [report[name].get(metric) for metric in ("accuracy", "macro_f1")]
        table.add_row(name, *("none" if value is None else f"{value:.3f}" for value in values))
    console.print(table)
    console.print(f"model: {report['model']}\nsource card: {report['card'] or 'none'}", soft_wrap=True)
