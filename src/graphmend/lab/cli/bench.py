"""``graphmend bench``: the tables and figures of the paper."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from graphmend.cli.common import (
    DataDir,
    Device,
    Jobs,
    JsonFlag,
    Quiet,
    RayAddress,
    TakesRay,
    number,
    reported,
)
from graphmend.cli.console import log_to_stderr


class RunsByDefault(TyperGroup):
    """``graphmend bench NAME`` is ``graphmend bench run NAME``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Insert ``run`` where no command is given."""
        if args and args[0] not in self.commands and args[0] != "--help":
            args = ["run", *args]
        return super().parse_args(ctx, args)


bench_app = typer.Typer(
    cls=RunsByDefault,
    help="Repeat the experiments of the paper: 'graphmend bench NAME' is 'graphmend bench run NAME'.",
    no_args_is_help=True,
)

Name = Annotated[str, typer.Argument(help="An experiment, see 'graphmend bench list'.", metavar="NAME")]
Store = Annotated[
    Path,
    typer.Option(help="Folder in which results are kept.", envvar="GRAPHMEND_BENCH", metavar="FOLDER"),
]
Smoke = Annotated[
    bool,
    typer.Option("--smoke", help="On small embedded data for a few epochs, to see that everything works."),
]
Seeds = Annotated[
    int | None,
    typer.Option(help="How many seeds; by default those of the experiment.", callback=number(1), metavar="NUMBER"),
]


Datasets = Annotated[
    list[str] | None,
    typer.Option("--dataset", help="Only this data set; may be repeated.", show_default=False, metavar="NAME"),
]
Backbones = Annotated[
    list[str] | None,
    typer.Option("--backbone", help="Only this backbone; may be repeated.", show_default=False, metavar="NAME"),
]
Methods = Annotated[
    list[str] | None,
    typer.Option("--method", help="Only this row of the table; may be repeated.", show_default=False, metavar="NAME"),
]
HERE = Path("bench")


@bench_app.command("list")
@reported
def list_(json_: JsonFlag = False) -> None:
    """List every experiment and what it is in the paper.

    Example:

    ```
    graphmend bench list
    ```
    """
    from graphmend.lab.cli.bench_run import run_list

    run_list(json_)


@bench_app.command(cls=TakesRay)
@reported
def run(
    name: Name,
    dataset: Datasets = None,
    backbone: Backbones = None,
    method: Methods = None,
    seeds: Seeds = None,
    jobs: Jobs = None,
    ray: RayAddress = None,
    device: Device = "cpu",
    smoke: Smoke = False,
    retry: Annotated[bool, typer.Option("--retry", help="Try again what failed before.")] = False,
    store: Store = HERE,
    data_dir: DataDir = None,
    quiet: Quiet = False,
) -> None:
    """Carry out the runs of an experiment that have no result yet, and print its table beside the paper's numbers.

    Every run is kept as soon as it is finished. If the command is interrupted or killed, call it again: it goes on
    where it was. A run that fails is noted in the table and does not end the others.

    Example:

    ```
    graphmend bench ood-accuracy --smoke
    graphmend bench ood-accuracy --dataset cora-ood --backbone gcn --jobs 4
    ```
    """
    log_to_stderr(quiet)
    from graphmend.cli.common import workers_of
    from graphmend.lab.cli.bench_run import Part, run_experiment

    part = Part(name, dataset, backbone, method, seeds, smoke)
    run_experiment(part, store, workers_of(jobs, ray, device), device, data_dir, retry, quiet)


@bench_app.command()
@reported
def status(
    name: Annotated[
        str | None, typer.Argument(help="An experiment; without it, all.", metavar="NAME", show_default=False)
    ] = None,
    store: Store = HERE,
    json_: JsonFlag = False,
) -> None:
    """Say how many runs of each experiment are done and failed, and how long the others will take one after another.

    The time is estimated from finished runs of the same kind. Runs that several experiments need are counted in each.

    Example:

    ```
    graphmend bench status
    ```
    """
    from graphmend.lab.cli.bench_run import run_status

    run_status(name, store, json_)


@bench_app.command()
@reported
def render(
    name: Name,
    out: Annotated[Path, typer.Option(help="Folder for the files.", metavar="FOLDER")],
    dataset: Datasets = None,
    backbone: Backbones = None,
    method: Methods = None,
    seeds: Seeds = None,
    smoke: Smoke = False,
    store: Store = HERE,
    quiet: Quiet = False,
) -> None:
    """Write a table as Markdown, CSV and LaTeX, and figures as PNG and SVG, from the results that there are.

    Example:

    ```
    graphmend bench render ood-accuracy --out tables/
    ```
    """
    from graphmend.lab.cli.bench_run import Part, run_render

    run_render(Part(name, dataset, backbone, method, seeds, smoke), store, out, quiet)


Archive = Annotated[Path, typer.Argument(help="A file ending in .tar.xz.", metavar="ARCHIVE")]


@bench_app.command()
@reported
def pack(
    archive: Archive,
    experiment: Annotated[
        list[str] | None,
        typer.Option(help="Only the results of this experiment; may be repeated.", metavar="NAME"),
    ] = None,
    store: Store = HERE,
    quiet: Quiet = False,
) -> None:
    """Write all results into one compressed file; trained models stay behind.

    Example:

    ```
    graphmend bench pack results.tar.xz
    graphmend bench pack attack.tar.xz --experiment attack
    ```
    """
    from graphmend.lab.cli.bench_run import run_pack

    run_pack(archive, store, experiment or [], quiet)


@bench_app.command()
@reported
def unpack(archive: Archive, store: Store = HERE, quiet: Quiet = False) -> None:
    """Add the results of a packed file to those that are here; those that are here stay as they are.

    Example:

    ```
    graphmend bench unpack results.tar.xz
    ```
    """
    from graphmend.lab.cli.bench_run import run_unpack

    run_unpack(archive, store, quiet)


@bench_app.command()
@reported
def verify(
    page: Annotated[
        Path, typer.Argument(help="A page with stored runs in 'results' beside it.", metavar="PAGE")
    ] = Path("docs/results.md"),
    quiet: Quiet = False,
) -> None:
    """Recompute every table and every marked number of a page from its stored runs; exit code 1 if any is different.

    Example:

    ```
    graphmend bench verify docs/results.md
    ```
    """
    from graphmend.lab.cli.bench_run import run_verify

    run_verify(page, quiet)
