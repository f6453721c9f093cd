"""Views by name."""

from __future__ import annotations

from graphmend.errors import choose
from graphmend.transforms.views.drop_edge import DropEdge
from graphmend.transforms.views.drop_node import DropNode
from graphmend.transforms.views.shuffle import Shuffle
from graphmend.transforms.views.subgraph import Subgraph
from graphmend.transforms.views.view import View

VIEWS: dict[str, type[View]] = {
    "drop_edge": DropEdge,
    "drop_node": DropNode,
    "shuffle": Shuffle,
    "subgraph": Subgraph,
}


def view_of(name: str) -> View:
    """A view with its default arguments, by name."""
    return choose("view", name, VIEWS)()
