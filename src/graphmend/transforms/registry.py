"""Transforms by name."""

from __future__ import annotations

from typing import Any

from graphmend.errors import choose
from graphmend.transforms.attacks.attack import EdgeAttack
from graphmend.transforms.attacks.grbcd import GRBCD
from graphmend.transforms.attacks.prbcd import PRBCD
from graphmend.transforms.corruptions.feature_noise import FeatureNoise
from graphmend.transforms.corruptions.random_edges import RandomEdges
from graphmend.transforms.purifiers.jaccard import Jaccard
from graphmend.transforms.views.drop_edge import DropEdge
from graphmend.transforms.views.drop_node import DropNode
from graphmend.transforms.views.shuffle import Shuffle
from graphmend.transforms.views.subgraph import Subgraph
from graphmend.transforms.views.view import View

__all__ = ["ATTACKS", "CORRUPTIONS", "PURIFIERS", "VIEWS", "view_of"]

VIEWS: dict[str, type[View]] = {
    "drop_edge": DropEdge,
    "drop_node": DropNode,
    "shuffle": Shuffle,
    "subgraph": Subgraph,
}
CORRUPTIONS: dict[str, type[Any]] = {"feature_noise": FeatureNoise, "random_edges": RandomEdges}
PURIFIERS: dict[str, type[Any]] = {"jaccard": Jaccard}
ATTACKS: dict[str, type[EdgeAttack]] = {"grbcd": GRBCD, "prbcd": PRBCD}


def view_of(name: str) -> View:
    """A view with its default arguments, by name."""
    return choose("view", name, VIEWS)()
