"""``graphmend apply`` and ``graphmend revert``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from graphmend.cli.common import JsonFlag, Quiet, check_no_clash, name_of, reported
from graphmend.cli.console import PlainConsole, log_to_stderr
from graphmend.errors import choose, require

PatchFile = Annotated[
    Path,
    typer.Argument(
        help="NAME.patch.safetensors, or the folder NAME.patch, written by 'graphmend mend'.", metavar="PATCH"
    ),
]
Graph = Annotated[Path, typer.Argument(help="The graph, .npz, a saved PyG Data or a graph folder.", metavar="GRAPH")]


@reported
def apply(
    patch: PatchFile,
    graph: Graph,
    out: Annotated[
        Path | None,
        typer.Option(
            help="File to write, .npz or .pt, or, from a graph folder, a folder; without it NAME.mended.npz beside "
            "NAME.npz, or NAME.mended beside the folder NAME.",
            metavar="FILE",
        ),
    ] = None,
    json_: JsonFlag = False,
    quiet: Quiet = False,
) -> None:
    """Apply a patch to the graph that it was made for, bit for bit as 'graphmend mend' did; no model is needed.

    Example:

    ```
    graphmend apply mended/today.patch.safetensors today.npz --out again.npz
    ```
    """
    _change(patch, graph, out, "mended", json_, quiet)


@reported
def revert(
    patch: PatchFile,
    graph: Graph,
    out: Annotated[
        Path | None,
        typer.Option(
            help="File to write, .npz or .pt, or, from a graph folder, a folder; without it NAME.reverted.npz beside "
            "NAME.npz, or NAME.reverted beside the folder NAME.",
            metavar="FILE",
        ),
    ] = None,
    json_: JsonFlag = False,
    quiet: Quiet = False,
) -> None:
    """Take a patch back: restore the original graph from the mended one, bit for bit; no model is needed.

    Example:

    ```
    graphmend revert mended/today.patch.safetensors mended/today.npz --out old.npz
    ```
    """
    _change(patch, graph, out, "reverted", json_, quiet)


def _change(patch_file: Path, graph: Path, out: Path | None, done: str, as_json: bool, quiet: bool) -> None:
    log_to_stderr(quiet)
    from graphmend.files.files import check_folder, check_target
    from graphmend.files.graph_files import FORMATS, save_graph
    from graphmend.hetero import fingerprint_of_any, read_any_patch
    from graphmend.shards.folder import read_graph
    from graphmend.shards.saving import save_folder

    beside = graph.parent / f"{name_of(graph)}.{done}{'' if graph.is_dir() else graph.suffix}"
    target = beside if out is None else out
    is_folder = graph.is_dir() and target.suffix.lower() not in FORMATS
    if not is_folder:
        choose("ending of a graph file", target.suffix.lower(), FORMATS)
    is_free = not target.exists() or (out is not None and not is_folder)  # files are replaced, and folders never
    require(is_free, f"{target} is there already; choose a name with --out")
    check_no_clash([target], [patch_file, graph])
    (check_folder if is_folder else check_target)(target)
    patch, data = read_any_patch(patch_file), read_graph(graph)
    changed = patch.apply(data) if done == "mended" else patch.revert(data)
    if is_folder:
        save_folder(changed, target)
    else:
        save_graph(target, changed)
    if as_json:
        facts = {"graph": str(target), "patch": patch.summary(), "fingerprint": fingerprint_of_any(changed)}
        typer.echo(json.dumps(facts))
    elif not quiet:
        PlainConsole().print(f"{patch.summary()}\n{done} graph written to {target}", soft_wrap=True)
