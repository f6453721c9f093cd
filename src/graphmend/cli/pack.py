"""``graphmend pack``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from graphmend.cli.common import JsonFlag, Quiet, Verbose, number, reported
from graphmend.cli.console import PlainConsole, log_to_stderr
from graphmend.errors import require


@reported
def pack(
    out: Annotated[Path, typer.Option(help="Folder to create; it must not exist yet.", metavar="FOLDER")],
    graph: Annotated[
        Path | None,
        typer.Argument(help="A graph, .npz or a saved PyG Data, or a folder in OGB's layout.", metavar="GRAPH"),
    ] = None,
    nodes: Annotated[
        list[Path] | None,
        typer.Option(help="Table of nodes, Parquet or CSV, or a folder of them; may be repeated.", metavar="FILE"),
    ] = None,
    edges: Annotated[
        list[Path] | None,
        typer.Option(help="Table of edges, Parquet or CSV, or a folder of them; may be repeated.", metavar="FILE"),
    ] = None,
    both_directions: Annotated[
        bool, typer.Option("--both-directions", help="Add the other direction of each edge, if edges are listed once.")
    ] = False,
    memory: Annotated[
        float, typer.Option(help="GiB that sorting may take.", callback=number(0.05, 1e6), metavar="NUMBER")
    ] = 1.0,
    json_: JsonFlag = False,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Pack a graph into a folder that need not fit into memory; 'card', 'mend' and 'info' take such folders.

    If it is interrupted, the same command continues with the part it was working on. Tables of nodes have a column for
    each feature, or one of lists, and may have 'id' (numbers or texts), 'y' and masks ('train_mask'). Tables of edges
    have 'source' and 'target', and may have 'edge_weight'.

    Example:

    ```
    graphmend pack --nodes users.parquet --edges follows.csv.gz --out users
    graphmend pack ogbn_products --both-directions --out products
    ```
    """
    log_to_stderr(quiet, verbose)
    from graphmend.shards import open_graph
    from graphmend.shards import pack as packed

    require(graph is None or not (nodes or edges), "give either a graph, or --nodes and --edges")
    packed(out, graph, nodes=nodes or None, edges=edges or None, both_directions=both_directions, memory=memory)
    data = open_graph(out, verify=False)
    facts = {"graph": str(out), "nodes": data.x.size(0), "features": data.x.size(1), "edges": data.edge_index.size(1)}
    if json_:
        typer.echo(json.dumps(facts))
    elif not quiet:
        size = f"{facts['nodes']:,} nodes, {facts['features']:,} features, {facts['edges']:,} edges"
        PlainConsole().print(f"{size}\nwritten to {out}", soft_wrap=True)
