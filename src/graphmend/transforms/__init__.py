"""Transforms: ``Data -> Data``, the input is left as it was.

Views drop edges by giving them weight 0, which every model under GraphMend treats as the edge not being there; the
sparse structure of a graph is then built only once. Their randomness comes from the generator passed in. Corruptions
(``FeatureNoise``), attacks (``PRBCD``, ``GRBCD``, ``RandomEdges``) and purifiers (``Jaccard``) return another graph;
their randomness comes from their seed.
"""

from graphmend.transforms.attacks.attack import EdgeAttack
from graphmend.transforms.attacks.grbcd import GRBCD
from graphmend.transforms.attacks.prbcd import PRBCD
from graphmend.transforms.corruptions.feature_noise import FeatureNoise
from graphmend.transforms.corruptions.random_edges import RandomEdges
from graphmend.transforms.purifiers.jaccard import Jaccard, edge_similarity
from graphmend.transforms.registry import ATTACKS, CORRUPTIONS, PURIFIERS, VIEWS, view_of
from graphmend.transforms.views.drop_edge import DropEdge
from graphmend.transforms.views.drop_node import DropNode
from graphmend.transforms.views.shuffle import Shuffle
from graphmend.transforms.views.subgraph import Subgraph
from graphmend.transforms.views.view import View

__all__ = [
    "ATTACKS",
    "CORRUPTIONS",
    "GRBCD",
    "PRBCD",
    "PURIFIERS",
    "VIEWS",
    "DropEdge",
    "DropNode",
    "EdgeAttack",
    "FeatureNoise",
    "Jaccard",
    "RandomEdges",
    "Shuffle",
    "Subgraph",
    "View",
    "edge_similarity",
    "view_of",
]
