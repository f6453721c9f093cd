"""``graphmend card``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from graphmend.cli.common import (
    DataDir,
    Device,
    Factory,
    JsonFlag,
    Model,
    Output,
    Quiet,
    RayAddress,
    Seed,
    Task,
    Verbose,
    Weights,
    check_no_clash,
    part_of_output,
    reported,
    workers_of,
)
from graphmend.cli.console import PlainConsole, log_to_stderr
from graphmend.cli.lab import lab
from graphmend.errors import require


@reported
def card(
    model: Model = None,
    factory: Factory = None,
    weights: Weights = None,
    graph: Annotated[
        list[Path] | None,
        typer.Option(help="Graph the model was trained on, .npz or a saved PyG Data; may be repeated.", metavar="FILE"),
    ] = None,
    dataset: Annotated[
        str | None, typer.Option(help="Data set it was trained on, see 'graphmend data list'.", metavar="NAME")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Card to write; without it NAME.card.safetensors beside the model's NAME.safetensors.", metavar="FILE"
        ),
    ] = None,
    embedding: Annotated[str | None, typer.Option(help="Module whose output is the embedding.", metavar="NAME")] = None,
    output: Output = None,
    task: Task = None,
    data_dir: DataDir = None,
    json_: JsonFlag = False,
    seed: Seed = 0,
    device: Device = "cpu",
    quiet: Quiet = False,
    verbose: Verbose = 0,
    ray: RayAddress = None,
) -> None:
    """Make a source card: what the training graph looks like to a model, in a few kilobytes.

    With the card, 'graphmend mend' can distinguish a graph that has shifted or was tampered with from one that is fine.
    The card holds means, ranges and quantiles but no row of the training graph, so it can be kept and passed on with
    the model. 'graphmend train' makes one by itself, and 'graphmend mend' finds it beside the model.

    Example:

    ```
    graphmend card --model gcn.safetensors --graph train.npz
    graphmend card --factory my.models:build --weights w.safetensors --graph train.npz
    ```
    """
    from graphmend import card as make_card
    from graphmend.cards import SourceCard
    from graphmend.cli.card_files import card_beside, card_facts
    from graphmend.cli.models import device_of, for_model, load_any_model
    from graphmend.files.files import check_target
    from graphmend.files.provenance import provenance
    from graphmend.shards.folder import read_graph
    from graphmend.workers.ray_cluster import Ray
    from graphmend.workers.shard_tasks import on_cluster

    log_to_stderr(quiet, verbose)
    where = device_of(device)
    require(bool(graph) != (dataset is not None), "give either --graph, as often as there are graphs, or --dataset")
    checkpoint = weights if model is None else model
    target = out if out is not None else None if checkpoint is None else card_beside(checkpoint)
    if target is not None:
        check_no_clash([target], [*(graph or []), *filter(None, (model, weights))])
        check_target(target)
    net = load_any_model(model, factory=factory, weights=weights).to(where)
    assert target is not None, "a model comes from a checkpoint or from weights"
    if dataset is not None:
        graphs = lab("data").load(dataset, seed=seed, data_dir=data_dir).train
    else:
        graphs = [read_graph(path, missing_allowed=False) for path in graph or []]
    complete = [for_model(data, net, where) for data in graphs]
    workers = workers_of(None, ray, device)
    options: Any = {"embedding": embedding, "seed": seed, "output": part_of_output(output), "task": task}
    if isinstance(workers, Ray):
        require(len(complete) == 1, f"--ray works on one graph folder (got {len(complete)} graphs); leave it out")
        with on_cluster(complete[0], workers, not quiet and not json_) as shared:
            made: Any = make_card(net, shared, **options)
    else:
        made = make_card(net, complete, **options)
    made.save(target)
    if json_:
        of_card = card_facts(made) if isinstance(made, SourceCard) else made.facts()
        facts = {"card": str(target), **of_card, "provenance": provenance(where, seed=seed)}
        typer.echo(json.dumps(facts))
    elif not quiet:
        PlainConsole().print(f"{made.summary()}\nwritten to {target}", soft_wrap=True)
