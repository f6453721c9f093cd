"""Views by name."""

from __future__ import annotations

from graphmend.errors import choose
from graphmend.transforms.drop_edge import DropEdge
from graphmend.transforms.drop_node import DropNode
from graphmend.transforms.shuffle import Shuffle
from graphmend.transforms.subgraph import Subgraph
from graphmend.transforms.view import View

VIEWS: dict[str, type[View]] = {
    "drop_edge": DropEdge,
    "drop_node": DropNode,
    "shuffle": Shuffle,
    "subgraph": Subgraph,
}


def view_of(name: str) -> View:
    """A view with its default arguments, by name."""
    return choose("view", name, VIEWS)()
