"""Tables of the paper: GTrans on harmed graphs with edges alone, features alone, or both."""

from __future__ import annotations

from graphmend.lab.bench.experiments.ablations import ablation

__all__ = ["EXPERIMENT"]

EXPERIMENT = ablation(
    "feature-vs-structure",
    "What is mended on harmed graphs: nothing, edges, features, both",
    {
        "none": lambda _: None,
        "edges": lambda settings: {**settings, "feature_steps": 0},
        "features": lambda settings: {**settings, "edge_steps": 0},
        "both": lambda settings: settings,
    },
    abnormal={"none": "none", "edges": "edges", "features": "features", "both": "both"},
    attack={"none": "gcn", "edges": "edges_only", "features": "features_only", "both": "gtrans"},
)
