"""``twitch-e``: friendships of Twitch streamers in seven languages."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from graphmend.datasets.catalogue import Dataset
from graphmend.datasets.readers.arrays import AGAIN, Array, dense_rows, node_ids, read_named, undirected
from graphmend.datasets.readers.sources import Source, find, locate
from graphmend.datasets.splits import Splits
from graphmend.errors import GraphMendError, require
from graphmend.io.files import first_line

__all__ = ["DATASETS", "twitch"]

NPZ = "twitch_explicit.npz"
FEATURES = 3170
PARTS = {"train": ["DE"], "val": ["ENGB"], "test": ["ES", "FR", "PTBR", "RU", "TW"]}
COUNTRIES = [country for part in PARTS.values() for country in part]
KINDS = ("edges.csv", "features.json", "target.csv")
# nodes, edges as listed, nodes of class 1
PUBLISHED = {
    "DE": (9498, 153138, 5742),
    "ENGB": (7126, 35324, 3888),
    "ES": (4648, 59382, 1360),
    "FR": (6549, 112666, 2414),
    "PTBR": (1912, 31299, 661),
    "RU": (4385, 37304, 1075),
    "TW": (2772, 63462, 1088),
}
_URL = "https://github.com/CUAI/Non-Homophily-Large-Scale/raw/master/data/twitch"


def twitch(*, seed: int = 0, data_dir: str | Path | None = None, undirected: bool = False) -> Splits:
    """Does a streamer use explicit language? One graph per country.

    From `Rozemberczki, Allen and Sarkar <https://arxiv.org/abs/1909.13021>`_. Trained on DE, validated on ENGB, tested
    on ES, FR, PTBR, RU and TW by ROC-AUC; 3,170 binary features, shared by all countries. Every friendship is one
    directed edge, as it is listed, which is how the paper and EERM use it.

    Args:
        seed: Not used; nothing here is random.
        data_dir: Where ``twitch_explicit.npz`` or the published ``<C>/musae_<C>_*`` lie.
        undirected: Store both directions of every friendship, as the original benchmark does.
    """
    graphs = {part: [_country(name, data_dir, undirected) for name in names] for part, names in PARTS.items()}
    meta = {"name": "twitch-e", "classes": 2, "undirected": undirected, "graphs": PARTS}
    return Splits(**graphs, metric="roc_auc", task="binary", meta=meta)


def _country(name: str, data_dir: str | Path | None, both: bool) -> Data:
    found = find([NPZ, _source(name, "edges.csv").path], data_dir)
    if found is not None and found.name == NPZ:
        path, (edges, x, y) = found, _plain(found, name)
    else:
        path, (edges, x, y) = _source_path(name, "edges.csv", data_dir), _published(name, data_dir)
    edges = node_ids(path, edges, x.size(0))
    edge_index = undirected(path, edges[0], edges[1], x.size(0)) if both else torch.from_numpy(edges)
    return Data(x=x, edge_index=edge_index, y=torch.from_numpy(y.astype(np.int64)))


def _plain(path: Path, name: str) -> tuple[Array, Tensor, Array]:
    arrays = read_named(path, [*(f"{name}_{part}" for part in ("edges", "x_indptr", "x_indices", "y")), "num_features"])
    edges, indptr, indices, y, width = arrays.values()
    require(edges.ndim == 2 and len(edges) == 2, f"{path}: {name}_edges has shape {edges.shape}, not (2, E); {AGAIN}")
    x = dense_rows(path, np.ones(len(indices), dtype=np.float32), indices, indptr, (len(y), int(width)))
    return edges, x, y


def _published(name: str, data_dir: str | Path | None) -> tuple[Array, Tensor, Array]:
    paths = [_source_path(name, kind, data_dir) for kind in KINDS]
    y = _targets(paths[2])
    pairs = [(_whole(row["from"], paths[0]), _whole(row["to"], paths[0])) for row in _table(paths[0], ("from", "to"))]
    return np.array(pairs, dtype=np.int64).reshape(-1, 2).T.copy(), _multi_hot(paths[1], len(y)), y


def _targets(path: Path) -> Array:
    """The ``mature`` flag of node ``new_id``; of repeated rows (FR has two) the first counts."""
    labels: dict[int, int] = {}
    for row in _table(path, ("mature", "new_id")):
        flag = row["mature"].strip().lower()
        require(flag in ("true", "false"), f"{path} has mature = {row['mature']!r}, not True or False; {AGAIN}")
        labels.setdefault(_whole(row["new_id"], path), int(flag == "true"))
    require(
        len(labels) > 0 and set(labels) == set(range(len(labels))),
        f"{path} does not number its {len(labels)} nodes from 0 in new_id; {AGAIN}",
    )
    return np.array([labels[node] for node in range(len(labels))])


def _multi_hot(path: Path, nodes: int) -> Tensor:
    try:
        found = json.loads(_text(path))
        lists = {int(node): np.array(columns, dtype=np.int64) for node, columns in found.items()}
    except (ValueError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        if isinstance(error, GraphMendError):
            raise
        raise GraphMendError(f"{path} is no JSON of feature lists per node ({first_line(error)}); {AGAIN}") from error
    node_ids(path, np.array(list(lists), dtype=np.int64), nodes)
    x = np.zeros((nodes, FEATURES), dtype=np.float32)
    for node, columns in lists.items():
        bad = columns[(columns < 0) | (columns >= FEATURES)]
        require(bad.size == 0, f"{path} names feature {bad[:1]}, but they are 0 to {FEATURES - 1}; {AGAIN}")
        x[node, columns] = 1.0
    return torch.from_numpy(x)


def _table(path: Path, columns: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    """The rows of a csv file with a header, provided that it has the columns asked for."""
    reader = csv.DictReader(_text(path).splitlines())
    missing = [column for column in columns if column not in (reader.fieldnames or ())]
    require(not missing, f"{path} has no column {' and no '.join(missing)}; {AGAIN}")
    for row in reader:
        short = [column for column in columns if row[column] is None]
        require(not short, f"{path}: line {reader.line_num} has no {' and no '.join(short)}; {AGAIN}")
        yield row


def _whole(text: str, path: Path) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise GraphMendError(f"{path} has {text!r} where a node number should be; {AGAIN}") from error


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise GraphMendError(f"{path} is not UTF-8 text ({first_line(error)}); {AGAIN}") from error


def _source(name: str, kind: str) -> Source:
    path = f"{name}/musae_{name}_{kind}"
    return Source(path, f"{_URL}/{path}")


def _source_path(name: str, kind: str, data_dir: str | Path | None) -> Path:
    return locate(_source(name, kind), data_dir)


DATASETS = {
    "twitch-e": Dataset(
        "twitch-e",
        "countries",
        twitch,
        metric="roc_auc",
        files=((NPZ,), tuple(_source(name, kind).path for name in COUNTRIES for kind in KINDS)),
        published={
            name: {"nodes": nodes, "edges": edges, "features": FEATURES, "classes": 2, "class 1": ones}
            for name, (nodes, edges, ones) in PUBLISHED.items()
        },
        note="directed as listed; undirected=True stores both directions",
    )
}
