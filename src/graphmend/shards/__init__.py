"""Graphs that are larger than memory: folders of arrays, packed from tables, and runs of a model in shards."""

from graphmend.shards.folder import MappedGraph, open_graph
from graphmend.shards.pack import pack

__all__ = ["MappedGraph", "open_graph", "pack"]
