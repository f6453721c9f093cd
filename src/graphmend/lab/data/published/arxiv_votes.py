"""ogbn-arxiv with substitute features: a language model's guesses of a paper's class in place of 128 numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from graphmend.errors import require
from graphmend.files.files import Array
from graphmend.lab.data.catalogue import Dataset
from graphmend.lab.data.published.arxiv import CUTS, measure_periods, measure_split, period_splits, year_splits
from graphmend.lab.data.readers.arrays import edge_pairs, node_ids, read_named
from graphmend.lab.data.readers.sources import FETCH_AGAIN, Source, locate
from graphmend.lab.data.splits import Splits

__all__ = ["DATASETS", "arxiv_votes", "arxiv_votes_ood"]

SOURCE = Source("arxiv_votes.npz")
CLASSES = 40


def arxiv_votes(*, seed: int = 0, data_dir: str | Path | None = None) -> Splits:
    """The graph, labels and split of :func:`~graphmend.lab.data.published.arxiv.arxiv` with substitute features.

    A language model was given title and abstract of each paper and named up to five of the 40 classes, best first
    (`He et al. 2024 <https://arxiv.org/abs/2305.19523>`_); the class in place k adds 1 / k to its column.

    Args:
        seed: Accepted for uniformity; nothing here is drawn.
        data_dir: Where ``arxiv_votes.npz`` (edges, y, year, split, votes) lies.
    """
    arrays, homophily = _load(data_dir)
    return year_splits(arrays, {"name": "arxiv-votes", "homophily": homophily})


def arxiv_votes_ood(*, seed: int = 0, data_dir: str | Path | None = None) -> Splits:
    """The cumulative graphs of :func:`~graphmend.lab.data.published.arxiv.arxiv_ood` with substitute features.

    Args:
        seed: Accepted for uniformity; nothing here is drawn.
        data_dir: As in :func:`arxiv_votes`.
    """
    arrays, homophily = _load(data_dir)
    return period_splits(arrays, {"name": "arxiv-votes-ood", "homophily": homophily})


def _load(data_dir: str | Path | None) -> tuple[dict[str, Array], float]:
    """``x``, ``edge_index``, ``y`` and ``year``, and the share of edges between papers of one class."""
    path = locate(SOURCE, data_dir)
    edges, y, year, split, votes = read_named(path, ["edges", "y", "year", "split", "votes"]).values()
    nodes = len(votes)
    fits = votes.ndim == 2 and y.shape == year.shape == split.shape == (nodes,)
    require(fits, f"{path} does not give each of its {nodes} papers votes, a label, a year and a part; {FETCH_AGAIN}")
    source, target = edge_pairs(path, "edges", edges)
    edge_index = np.stack([node_ids(path, source, nodes), node_ids(path, target, nodes)])
    known = votes.min(initial=0) >= -1 and max(votes.max(initial=0), y.max(initial=0)) < CLASSES
    require(known, f"{path} names a class that is not one of {CLASSES}; {FETCH_AGAIN}")
    by_year = np.digitize(year, CUTS, right=True)
    require(np.array_equal(split, by_year), f"{path} holds a split that its years do not give; {FETCH_AGAIN}")
    arrays = {"x": _features(votes), "edge_index": edge_index, "y": y, "year": year.astype(np.int64)}
    return arrays, float((y[edge_index[0]] == y[edge_index[1]]).mean())


def _features(votes: Array) -> Array:
    """One column per class; -1 is no vote, and a class that is named twice counts twice."""
    x = np.zeros((len(votes), CLASSES), dtype=np.float32)
    for place, column in enumerate(votes.T.astype(np.int64), 1):
        named = np.flatnonzero(column >= 0)
        x[named, column[named]] += np.float32(1 / place)
    return x


def _with_homophily(
    measure: Callable[[Splits], dict[str, dict[str, Any]]],
) -> Callable[[Splits], dict[str, dict[str, Any]]]:
    def measured(splits: Splits) -> dict[str, dict[str, Any]]:
        found = measure(splits)
        found["all"]["homophily"] = round(splits.meta["homophily"], 3)
        return found

    return measured


_ALL: Mapping[str, Any] = {
    "nodes": 169_343,
    "directed_edges": 1_166_243,
    "features": CLASSES,
    "classes": CLASSES,
    "homophily": 0.655,
}
_NOTE = "real citations, labels and years; the features are substitutes, a language model's votes for classes"
DATASETS = {
    "arxiv-votes": Dataset(
        "arxiv-votes",
        "none (one graph, split by year)",
        arxiv_votes,
        files=((SOURCE.path,),),
        published={
            "all": {**_ALL, "stored_edges": 2_315_598},
            "train": {"nodes": 90_941},
            "val": {"nodes": 29_799},
            "test": {"nodes": 48_603},
        },
        measure=_with_homophily(measure_split),
        note=_NOTE,
    ),
    "arxiv-votes-ood": Dataset(
        "arxiv-votes-ood",
        "time: papers of later years",
        arxiv_votes_ood,
        files=((SOURCE.path,),),
        published={"all": dict(_ALL), "until 2018": {"nodes": 120_740}, "until 2020": {"nodes": 169_343}},
        measure=_with_homophily(measure_periods),
        note=_NOTE,
    ),
}
