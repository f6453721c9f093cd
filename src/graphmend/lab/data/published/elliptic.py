"""Elliptic: Bitcoin transactions of 49 time steps, from the published csv files."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from graphmend.errors import GraphMendError, require
from graphmend.files.files import Array
from graphmend.lab.data.catalogue import Dataset
from graphmend.lab.data.readers.csv_files import Member, read_table
from graphmend.lab.data.readers.sources import FETCH_AGAIN, Source, cached_arrays, download, find, stamps
from graphmend.lab.data.splits import Splits, node_mask
from graphmend.results.scores import score

__all__ = ["DATASETS", "elliptic", "grouped_scores"]

FOLDER = "elliptic_bitcoin_dataset"
FILES = ("elliptic_txs_features", "elliptic_txs_classes", "elliptic_txs_edgelist")
FEATURES = 165
STEPS = {"train": range(7, 12), "val": range(12, 17), "test": range(17, 50)}  # steps 1-6 are not used
GROUPS = [[0], *([*range(first, first + 4)] for first in range(1, 33, 4))]  # test graphs whose nodes are scored as one
CLASSES = {"1": 1, "2": 0, "unknown": -1}  # illicit, licit, not labelled


def elliptic(*, seed: int = 0, data_dir: str | Path | None = None) -> Splits:
    """Each time step is one directed graph: steps 7-11 for training, 12-16 for validation, 17-49 for testing.

    `Weber et al. 2019 <https://arxiv.org/abs/1908.02591>`_, split as in EERM and GTrans. Features are the 165 columns
    after id and time step, raw. An edge leads from ``txId1`` to ``txId2`` and counts once, if both ends are in the same
    step. ``y`` is 1 for illicit (class 1), 0 for licit (class 2) and -1 for unknown transactions. These stay in the
    graph and out of ``mask``; losses and metrics reject the negative label if the mask is not applied.
    ``meta["groups"]`` holds the nine groups of test graphs that are scored together (:func:`grouped_scores`).

    Args:
        seed: Accepted for uniformity; nothing here is drawn.
        data_dir: Where ``elliptic_bitcoin_dataset/elliptic_txs_{features,classes,edgelist}.csv`` are (or .csv.zip).
    """
    paths = [_locate(name, data_dir) for name in FILES]
    members = [
        zipfile.Path(path, f"{name}.csv") if path.suffix == ".zip" and zipfile.is_zipfile(path) else path
        for path, name in zip(paths, FILES, strict=True)
    ]
    arrays = cached_arrays("elliptic", f"1 {stamps(paths)}", lambda: _parse(*members))
    parts = {part: [_graph(arrays, step) for step in steps] for part, steps in STEPS.items()}
    meta = {
        "name": "elliptic",
        "classes": 2,
        "generated": False,
        "steps": {part: list(steps) for part, steps in STEPS.items()},
        "groups": GROUPS,
        "nodes": len(arrays["step"]),
        "edges": int(arrays["listed"]),
        "illicit": int((arrays["y"] == 1).sum()),
        "licit": int((arrays["y"] == 0).sum()),
    }
    return Splits(**parts, metric="macro_f1", task="binary", meta=meta)


def grouped_scores(logits: Sequence[Tensor], splits: Splits, rounded: bool = False) -> list[float]:
    """The metric of each group of test graphs, over the labelled nodes of the group pooled together.

    Args:
        logits: One tensor of shape ``(N, 2)`` (or one logit per node) per test graph, in their order.
        splits: With ``meta["groups"]``, as :func:`elliptic` gives it.
        rounded: Round each score to two decimals, as the released code does before it averages.

    Example:
        >>> import torch
        >>> from torch_geometric.data import Data
        >>> from graphmend.lab.data import Splits, grouped_scores
        >>> def day(*labels):
        ...     edge_index = torch.empty(2, 0, dtype=torch.long)
        ...     return Data(x=torch.rand(len(labels), 2), edge_index=edge_index, y=torch.tensor(labels))
        >>> test = [day(0, 1), day(1, 0), day(0, 0, 1)]
        >>> groups = {"groups": [[0, 1], [2]]}
        >>> splits = Splits([day(0, 1)], [day(0, 1)], test, "accuracy", "multiclass", groups)
        >>> logits = [torch.nn.functional.one_hot(graph.y, 2).float() for graph in test]
        >>> grouped_scores(logits, splits)
        [1.0, 1.0]
    """
    count = len(splits.test)
    require(len(logits) == count, f"pass one logits tensor per test graph (got {len(logits)} for {count} graphs)")
    values = []
    for group in splits.meta["groups"]:
        pooled = torch.cat([logits[index] for index in group])
        y = torch.cat([splits.test[index].y for index in group])
        mask = torch.cat([node_mask(splits.test[index]) for index in group])
        values.append(score(splits.metric, pooled, y, mask))
    return [round(value, 2) for value in values] if rounded else values


def _locate(name: str, data_dir: str | Path | None) -> Path:
    paths = [f"{FOLDER}/{name}.csv", f"{FOLDER}/{name}.csv.zip"]
    return find(paths, data_dir) or download(Source(paths[1], f"https://data.pyg.org/datasets/elliptic/{name}.csv.zip"))


def _parse(features: Member, classes: Member, edgelist: Member) -> dict[str, Array]:
    row = np.dtype([("id", "f8"), ("step", "f8"), ("x", "f4", (FEATURES,))])
    table = read_table(features, row)
    ids, step = _whole(features, table["id"]), _whole(features, table["step"])
    require(bool(np.isfinite(table["x"]).all()), f"{features} holds NaN or infinite features; {FETCH_AGAIN}")
    order = np.argsort(ids, kind="stable")
    repeated = ids[order][1:][np.diff(ids[order]) == 0]
    if repeated.size:
        raise GraphMendError(f"{features} lists transaction {repeated[0]} twice; {FETCH_AGAIN}")

    def positions(path: Member, wanted: Array) -> Array:
        places: Array = order[np.searchsorted(ids, wanted, sorter=order).clip(max=ids.size - 1)]
        unknown = wanted[ids[places] != wanted]
        if unknown.size:
            raise GraphMendError(f"{path} names transaction {unknown[0]}, which {features} lacks; fetch both again")
        return places

    codes = read_table(classes, np.dtype([("id", "f8"), ("code", "U16")]), ("txId", "class"))
    names, which = np.unique(codes["code"], return_inverse=True)
    strange = [str(name) for name in names if name not in CLASSES]
    require(not strange, f"{classes} holds the class code {', '.join(strange)!r}; use '1', '2' or 'unknown'")
    y = np.full(ids.size, -2, np.int8)
    y[positions(classes, _whole(classes, codes["id"]))] = np.array([CLASSES[str(name)] for name in names], np.int8)[
        which
    ]
    require(bool((y >= -1).all()), f"{classes} lacks {int((y < -1).sum())} of {ids.size} transactions; {FETCH_AGAIN}")

    listed = read_table(edgelist, np.dtype([("a", "f8"), ("b", "f8")]), ("txId1", "txId2"))
    source, target = (positions(edgelist, _whole(edgelist, listed[end])) for end in "ab")
    within = step[source] == step[target]
    keys = np.unique(source[within] * ids.size + target[within])
    edges = np.stack([keys // ids.size, keys % ids.size])
    return {"step": step, "x": table["x"], "y": y, "edges": edges, "listed": np.array(len(listed))}


def _whole(path: Member, values: Array) -> Array:
    wrong = values[~(np.floor(values) == values)]
    if wrong.size:
        raise GraphMendError(f"{path} holds {wrong[0]} where a whole number belongs; {FETCH_AGAIN}")
    return values.astype(np.int64)


def _graph(arrays: dict[str, Array], step: int) -> Data:
    nodes = np.flatnonzero(arrays["step"] == step)
    require(nodes.size > 0, f"no transaction has time step {step}; the features file must cover steps 7 to 49")
    local = np.full(len(arrays["step"]), -1)
    local[nodes] = np.arange(nodes.size)
    edges = local[arrays["edges"]]
    y = torch.from_numpy(arrays["y"][nodes].astype(np.int64))
    x = torch.from_numpy(arrays["x"][nodes])
    return Data(x=x, edge_index=torch.from_numpy(edges[:, edges[0] >= 0]), y=y, mask=y >= 0)


def _measure(splits: Splits) -> dict[str, dict[str, Any]]:
    keys = ("nodes", "edges", "illicit", "licit")
    statistics = {"all steps": {key: splits.meta[key] for key in keys} | {"features": splits.train[0].num_features}}
    statistics["step 7"] = {"nodes": splits.train[0].num_nodes}
    statistics["step 12"] = {"nodes": splits.val[0].num_nodes}
    for number, group in enumerate(splits.meta["groups"]):
        statistics[f"G{number}"] = {"nodes": sum(splits.test[index].num_nodes for index in group)}
    return statistics


_GROUP_NODES = (3_385, 13_310, 16_965, 9_540, 12_975, 17_692, 15_474, 22_776, 14_048)
DATASETS = {
    "elliptic": Dataset(
        "elliptic",
        "time: later steps, a market shutdown at step 43",
        elliptic,
        "macro_f1",
        tuple(tuple(f"{FOLDER}/{name}{suffix}" for name in FILES) for suffix in (".csv", ".csv.zip")),
        {
            "all steps": {"nodes": 203_769, "edges": 234_355, "illicit": 4_545, "licit": 42_019, "features": FEATURES},
            "step 7": {"nodes": 6_048},
            "step 12": {"nodes": 2_047},
            **{f"G{number}": {"nodes": nodes} for number, nodes in enumerate(_GROUP_NODES)},
        },
        _measure,
        note="33 test graphs, scored in 9 groups",
    )
}
