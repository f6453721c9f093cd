"""Writing a graph as a graph folder."""

from __future__ import annotations

from pathlib import Path

from torch import Tensor
from torch_geometric.data import Data

from graphmend.errors import listed, require
from graphmend.files.array_folders import write_arrays
from graphmend.graph.convert import with_edge_index
from graphmend.graph.mapped import MappedGraph
from graphmend.shards.folder import FORMAT, NOTE, PLAIN
from graphmend.shards.pack import pack

__all__ = ["save_folder"]


def save_folder(graph: Data, folder: str | Path) -> Path:
    """Write a graph as a graph folder, a block at a time, such as the mended graph of a large one.

    A call that was interrupted goes on where it was. Edges that are not sorted by target are sorted, by
    :func:`graphmend.shards.pack`.

    Example:
        >>> import graphmend
        >>> from graphmend.lab.data import embedded
        >>> from graphmend.shards import save_folder
        >>> _ = save_folder(embedded("wine").test[0], "wine")
        >>> graphmend.open_graph("wine").num_nodes
        178
    """
    graph = with_edge_index(graph)
    offsets = graph.offsets() if isinstance(graph, MappedGraph) else None
    if offsets is None:
        return pack(folder, graph)
    assert isinstance(graph, MappedGraph)
    values = {name: value for name, value in graph.to_dict().items() if not isinstance(value, Tensor)}
    tensors = {name: value for name, value in graph.to_dict().items() if isinstance(value, Tensor)}
    values.pop("num_nodes", None)
    odd = [name for name, value in values.items() if not (isinstance(value, PLAIN) or value is None)]
    require(not odd, f"{listed(odd)} are neither tensors, numbers nor texts, which no folder holds; leave them out")
    note = {"format": FORMAT, "values": values, "symmetric": graph.is_symmetric}
    return write_arrays(folder, {**tensors, "offsets": offsets}, note, file=NOTE)
