"""Graphs that are larger than memory: folders of arrays, packed from tables."""

from graphmend.shards.folder import open_graph, save_folder
from graphmend.shards.pack import pack

__all__ = ["open_graph", "pack", "save_folder"]
