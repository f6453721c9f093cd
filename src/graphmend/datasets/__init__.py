"""Data sets as :class:`Splits`, and the scenarios of the demo."""

from graphmend.datasets.attack_cache import attacked
from graphmend.datasets.edge_attack import attack_graph
from graphmend.datasets.registry import DATASETS, load
from graphmend.datasets.scenarios import Scenario, abnormal_features, shift, structure_attack
from graphmend.datasets.sklearn_graphs import embedded, knn_graph
from graphmend.datasets.splits import Splits, masked, node_mask

__all__ = [
    "DATASETS",
    "Scenario",
    "Splits",
    "abnormal_features",
    "attack_graph",
    "attacked",
    "embedded",
    "knn_graph",
    "load",
    "masked",
    "node_mask",
    "shift",
    "structure_attack",
]
