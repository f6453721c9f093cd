"""Data sets as :class:`Splits`, the scenarios of the demo, and simulated shifts."""

from graphmend.lab.data.attacked import attack_graph, attacked
from graphmend.lab.data.catalogue import Availability, Dataset
from graphmend.lab.data.corruptions import FeatureNoise, RandomEdges
from graphmend.lab.data.generated.csbm import csbm
from graphmend.lab.data.published.elliptic import grouped_scores
from graphmend.lab.data.published.photo import photo_graph
from graphmend.lab.data.published.planetoid import planetoid_graph
from graphmend.lab.data.readers.arrays import row_normalise, undirected
from graphmend.lab.data.registry import DATASETS, availability, compare, load, measured, missing_files, statistics
from graphmend.lab.data.scenarios import Scenario, abnormal_features, shift, structure_attack
from graphmend.lab.data.shifts import SHIFTS, ColumnShift, EdgeSubsample, LabelShift, MissingColumns
from graphmend.lab.data.sklearn_graphs import embedded, knn_graph, stratified_parts
from graphmend.lab.data.splits import Splits, masked, node_labels, node_mask

__all__ = [
    "DATASETS",
    "SHIFTS",
    "Availability",
    "ColumnShift",
    "Dataset",
    "EdgeSubsample",
    "FeatureNoise",
    "LabelShift",
    "MissingColumns",
    "RandomEdges",
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
