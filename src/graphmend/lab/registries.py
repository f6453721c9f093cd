"""The registries of the lab by family, for 'graphmend list'."""

from __future__ import annotations

from collections.abc import Mapping

from graphmend.lab.attacks import ATTACKS
from graphmend.lab.backbones import BACKBONES
from graphmend.lab.data.catalogue import Dataset
from graphmend.lab.data.corruptions import FeatureNoise, RandomEdges
from graphmend.lab.data.registry import DATASETS
from graphmend.lab.data.shifts import SHIFTS
from graphmend.lab.training import TRAINERS

__all__ = ["CORRUPTIONS", "NEEDS", "REGISTRIES", "about_dataset"]

CORRUPTIONS: dict[str, type] = {"feature_noise": FeatureNoise, "random_edges": RandomEdges}
REGISTRIES: dict[str, Mapping[str, object]] = {
    "backbones": BACKBONES,
    "trainers": TRAINERS,
    "corruptions": CORRUPTIONS,
    "attacks": ATTACKS,
    "datasets": DATASETS,
    "shifts": SHIFTS,
}
_TEST_GRAPHS = "the test graphs, without labels"
NEEDS: dict[str, dict[str, str]] = {
    "trainers": {
        "dann": _TEST_GRAPHS,
        "eerm": "memory for N x N numbers per view, unless candidates is set",
        "sr_gnn": _TEST_GRAPHS,
        "uda_gcn": f"the backbone dual_gcn, and {_TEST_GRAPHS}",
    },
    "attacks": {"grbcd": "the trained model", "prbcd": "the trained model"},
}
"""What a member needs beyond what its whole family does."""


def about_dataset(entry: Dataset) -> tuple[str, str]:
    """A sentence about a data set, and what it needs."""
    sentence = f"{entry.shift[:1].upper()}{entry.shift[1:]}{'; generated' if entry.generated else ''}."
    has_files = bool(entry.files) or entry.availability is not None
    return sentence, "its files, see 'graphmend data list'" if has_files else ""
