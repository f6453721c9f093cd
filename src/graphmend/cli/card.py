"""``graphmend card``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from torch_geometric.data import Data

from graphmend.cards import card as make_card
from graphmend.cli.card_files import card_beside, card_facts
from graphmend.cli.common import DataDir, Device, JsonFlag, Quiet, Seed, device_of, for_model, log_to_stderr, reported
from graphmend.cli.mend_options import Factory, Model, Weights
from graphmend.datasets.registry import load
from graphmend.errors import require
from graphmend.io.graph_files import load_graph
from graphmend.io.provenance import provenance
from graphmend.nn.checkpoint import load_any_model


@reported
def card(
    model: Model = None,
    factory: Factory = None,
    weights: Weights = None,
    graph: Annotated[
        list[Path] | None,
        typer.Option(help="Graph the model was trained on, .npz or a saved PyG Data; may be repeated."),
    ] = None,
    dataset: Annotated[str | None, typer.Option(help="Data set it was trained on, see 'graphmend data list'.")] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Card to write; NAME.card.safetensors beside the model's NAME.safetensors if not given."),
    ] = None,
    embedding: Annotated[str | None, typer.Option(help="Module whose output is the embedding.")] = None,
    data_dir: DataDir = None,
    json_: JsonFlag = False,
    seed: Seed = 0,
    device: Device = "cpu",
    quiet: Quiet = False,
) -> None:
    """Make a source card: what the training graph looks like to a model, in a few kilobytes.

    With the card, 'graphmend mend' can tell a graph that has shifted, or was tampered with, from one that is as it
    should be. It holds means, ranges and quantiles, no row of the training graph, so it can be kept and passed on with
    the model. 'graphmend train' makes one on its own; 'graphmend mend' finds it beside the model.
    """
    log_to_stderr(quiet)
    where = device_of(device)
    require(bool(graph) != (dataset is not None), "give either --graph, as often as there are graphs, or --dataset")
    net = load_any_model(model, factory=factory, weights=weights).to(where)
    checkpoint = weights if model is None else model
    assert checkpoint is not None
    target = card_beside(checkpoint) if out is None else out
    clash = [path for path in (*(graph or []), checkpoint) if path.resolve() == target.resolve()]
    require(not clash, f"the card would overwrite {target}; choose another --out")
    graphs: list[Data] = (
        load(dataset, seed=seed, data_dir=data_dir).train if dataset is not None else list(map(load_graph, graph or []))
    )
    made = make_card(net, [for_model(data, net, where) for data in graphs], embedding=embedding, seed=seed)
    made.save(target)
    if json_:
        facts = {"card": str(target), **card_facts(made), "provenance": provenance(where, seed=seed)}
        typer.echo(json.dumps(facts))
    elif not quiet:
        typer.echo(f"{made.summary()}\nwritten to {target}")
