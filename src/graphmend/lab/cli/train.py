"""``graphmend train``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from graphmend.cli.common import DataDir, Device, JsonFlag, Quiet, Seed, number, reported
from graphmend.cli.console import log_to_stderr


@reported
def train(
    out: Annotated[Path, typer.Option(help="Checkpoint to write, .safetensors.", metavar="FILE")],
    dataset: Annotated[str | None, typer.Option(help="A data set, see 'graphmend data list'.", metavar="NAME")] = None,
    graph: Annotated[
        Path | None, typer.Option(help="Your graph with y, train_mask, val_mask and test_mask.", metavar="FILE")
    ] = None,
    backbone: Annotated[
        str,
        typer.Option(
            help="Kind of model, such as gcn, sage or gat; 'graphmend list backbones' explains all.", metavar="NAME"
        ),
    ] = "gcn",
    hidden_channels: Annotated[
        int, typer.Option(help="Width of the hidden layers.", callback=number(1), metavar="NUMBER")
    ] = 64,
    num_layers: Annotated[int, typer.Option(help="Number of layers.", callback=number(1), metavar="NUMBER")] = 2,
    dropout: Annotated[
        float, typer.Option(help="Probability of dropout.", callback=number(0, 1), metavar="NUMBER")
    ] = 0.5,
    batch_norm: Annotated[bool, typer.Option("--batch-norm", help="Normalise the hidden layers by batch.")] = False,
    trainer: Annotated[
        str, typer.Option(help="How to train; 'graphmend list trainers' explains all.", metavar="NAME")
    ] = "erm",
    lr: Annotated[float, typer.Option(help="Learning rate.", callback=number(), metavar="NUMBER")] = 0.01,
    weight_decay: Annotated[float, typer.Option(help="Weight decay.", callback=number(0), metavar="NUMBER")] = 5e-4,
    epochs: Annotated[int, typer.Option(help="Number of epochs.", callback=number(1), metavar="NUMBER")] = 200,
    optimizer: Annotated[str, typer.Option(help="adam or adamw.", metavar="NAME")] = "adam",
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="An option that only this trainer or this backbone has, such as weight=0.5; may be repeated.",
            metavar="NAME=VALUE",
        ),
    ] = None,
    data_dir: DataDir = None,
    json_: JsonFlag = False,
    seed: Seed = 0,
    device: Device = "cpu",
    quiet: Quiet = False,
) -> None:
    """Train a model and save its best validation epoch.

    Without --trainer, the mean loss of the training nodes is minimised. The trainers dann, sr_gnn and uda_gcn also see
    the test graphs, without their labels.

    Beside the checkpoint NAME.safetensors, NAME.card.safetensors is written: the source card, by which 'graphmend mend'
    tells whether a new graph is like those the model was trained on. See 'graphmend card --help'.

    Example:

    ```
    graphmend train --dataset digits --out gcn.safetensors
    graphmend train --graph mine.npz --backbone sage --out sage.safetensors
    graphmend train --dataset wine --trainer sr_gnn --set kmm=true --out sr.safetensors
    ```
    """
    log_to_stderr(quiet)
    from graphmend.lab.cli.train_run import Request, run_train

    shape = {
        "hidden_channels": hidden_channels,
        "num_layers": num_layers,
        "dropout": dropout,
        "batch_norm": batch_norm,
    }
    training = {"lr": lr, "weight_decay": weight_decay, "epochs": epochs, "optimizer": optimizer, "seed": seed}
    own, common = set_ or [], (json_, seed, device, quiet)
    run_train(Request(out, dataset, graph, backbone, shape, trainer, training, own, data_dir, *common))
