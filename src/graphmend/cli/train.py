"""``graphmend train``."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.console import Console
from rich.table import Table
from torch import nn
from torch_geometric.data import Data

from graphmend.cards import card
from graphmend.cli.card_files import card_beside
from graphmend.cli.common import DataDir, Device, JsonFlag, Quiet, Seed, device_of, log_to_stderr, reported
from graphmend.datasets.registry import load
from graphmend.datasets.splits import Splits, node_labels, node_mask
from graphmend.errors import GraphMendError, listed, require
from graphmend.graph.labels import count_classes
from graphmend.io.graph_files import load_graph
from graphmend.io.provenance import provenance
from graphmend.metrics import scores
from graphmend.nn import BACKBONES, build, save_model
from graphmend.training import ERM


@reported
def train(
    out: Annotated[Path, typer.Option(help="Checkpoint to write, .safetensors.")],
    dataset: Annotated[str | None, typer.Option(help="A data set, see 'graphmend data list'.")] = None,
    graph: Annotated[Path | None, typer.Option(help="Your graph with y, train_mask, val_mask and test_mask.")] = None,
    backbone: Annotated[str, typer.Option(help=f"One of {listed(BACKBONES)}.")] = "gcn",
    hidden_channels: Annotated[int, typer.Option(help="Width of the hidden layers.")] = 64,
    num_layers: Annotated[int, typer.Option(help="Number of layers.")] = 2,
    dropout: Annotated[float, typer.Option(help="Dropout.")] = 0.5,
    batch_norm: Annotated[bool, typer.Option("--batch-norm", help="Batch normalisation.")] = False,
    lr: Annotated[float, typer.Option(help="Learning rate.")] = 0.01,
    weight_decay: Annotated[float, typer.Option(help="Weight decay.")] = 5e-4,
    epochs: Annotated[int, typer.Option(help="Epochs.")] = 200,
    data_dir: DataDir = None,
    json_: JsonFlag = False,
    seed: Seed = 0,
    device: Device = "cpu",
    quiet: Quiet = False,
) -> None:
    """Train a backbone by plain empirical risk minimisation and save the best validation epoch.

    Beside the checkpoint NAME.safetensors, NAME.card.safetensors is written: the source card, by which 'graphmend mend'
    tells whether a new graph is like those the model was trained on. See 'graphmend card --help'.
    """
    log_to_stderr(quiet)
    where = device_of(device)
    splits = _splits(dataset, graph, seed, data_dir).to(where)
    first = splits.train[0]
    torch.manual_seed(seed)
    net = build(
        backbone,
        first.x.size(1),
        hidden_channels,
        int(splits.meta["classes"]),
        num_layers=num_layers,
        dropout=dropout,
        batch_norm=batch_norm,
    ).to(where, first.x.dtype)
    trainer = ERM(lr=lr, weight_decay=weight_decay, epochs=epochs, optimizer="adam", seed=seed)
    trainer(net, splits, progress=not quiet and not json_)
    save_model(net, out)
    card_file = _write_card(net, splits.train, card_beside(out), seed)
    report: dict[str, Any] = {"model": str(out), "card": card_file, "backbone": backbone}
    for name, part in (("train", splits.train), ("validation", splits.val), ("test", splits.test)):
        report[name] = _scores(net, part)
    report["provenance"] = provenance(where, seed=seed)
    if json_:
        typer.echo(json.dumps(report))
    elif not quiet:
        table = Table(title=f"{backbone} trained")
        for column in ("nodes", "accuracy", "macro-F1"):
            table.add_column(column)
        for name in ("train", "validation", "test"):
            table.add_row(name, f"{report[name]['accuracy']:.3f}", f"{report[name]['macro_f1']:.3f}")
        Console().print(table)
        typer.echo(f"model: {out}\nsource card: {card_file or 'none'}")


def _write_card(net: nn.Module, graphs: list[Data], path: Path, seed: int) -> str | None:
    """Where the source card was written; a model for which none can be made is still a trained model."""
    try:
        card(net, graphs, seed=seed).save(path)
    except GraphMendError as error:
        logging.getLogger(__name__).warning("the model was saved, but there is no source card: %s", error)
        return None
    return str(path)


@torch.no_grad()
def _scores(net: nn.Module, part: list[Data]) -> dict[str, float]:
    """The scores over all nodes of several graphs that count."""
    logits = [net(data.x, data.edge_index, data.get("edge_weight"))[node_mask(data)] for data in part]
    return scores(torch.cat(logits), torch.cat([node_labels(data) for data in part]))


def _splits(dataset: str | None, graph: Path | None, seed: int, data_dir: Path | None) -> Splits:
    require((dataset is None) != (graph is None), "give either --dataset or --graph")
    if dataset is not None:
        return load(dataset, seed=seed, data_dir=data_dir)
    assert graph is not None
    data = load_graph(graph)
    missing = [name for name in ("y", "train_mask", "val_mask", "test_mask") if data.get(name) is None]
    require(not missing, f"{graph} has no {', '.join(missing)}; training needs labels and all three masks")
    splits = Splits.transductive(data, meta={"name": graph.name})
    known = torch.cat([node_labels(splits.train[0]), node_labels(splits.val[0])])
    splits.meta["classes"] = count_classes(known, data.num_nodes)
    return splits
