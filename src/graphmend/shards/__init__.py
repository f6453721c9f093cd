"""Graphs that are larger than memory: folders of arrays, packed from tables."""

from graphmend.shards.folder import open_graph
from graphmend.shards.pack import pack
from graphmend.shards.saving import save_folder

__all__ = ["open_graph", "pack", "save_folder"]
