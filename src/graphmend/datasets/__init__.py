"""Data sets as :class:`Splits`, the scenarios of the demo, and simulated shifts."""

from graphmend.datasets.attack_cache import attacked
from graphmend.datasets.catalogue import Availability, Dataset
from graphmend.datasets.edge_attack import attack_graph
from graphmend.datasets.edges import undirected
from graphmend.datasets.generated.csbm import csbm
from graphmend.datasets.published.elliptic import grouped_scores
from graphmend.datasets.published.photo import photo_graph
from graphmend.datasets.published.planetoid import planetoid_graph
from graphmend.datasets.readers.arrays import row_normalise
from graphmend.datasets.registry import DATASETS, availability, compare, load, measured, missing_files, statistics
from graphmend.datasets.scenarios import Scenario, abnormal_features, shift, structure_attack
from graphmend.datasets.shifts import SHIFTS, ColumnShift, EdgeSubsample, LabelShift, MissingColumns
from graphmend.datasets.sklearn_graphs import embedded, knn_graph, stratified_parts
from graphmend.datasets.splits import Splits, masked, node_labels, node_mask

__all__ = [
    "DATASETS",
    "SHIFTS",
    "Availability",
    "ColumnShift",
    "Dataset",
    "EdgeSubsample",
    "LabelShift",
    "MissingColumns",
    "Scenario",
    "Splits",
    "abnormal_features",
    "attack_graph",
    "attacked",
    "availability",
    "compare",
    "csbm",
    "embedded",
    "grouped_scores",
    "knn_graph",
    "load",
    "masked",
    "measured",
    "missing_files",
    "node_labels",
    "node_mask",
    "photo_graph",
    "planetoid_graph",
    "row_normalise",
    "shift",
    "statistics",
    "stratified_parts",
    "structure_attack",
    "undirected",
]
