"""``twitch-e``: friendships of Twitch streamers in seven languages."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from graphmend.errors import GraphMendError, require
from graphmend.files.files import Array, first_line
from graphmend.lab.data.catalogue import Dataset
from graphmend.lab.data.readers.arrays import dense_rows, edge_pairs, node_ids, read_named, undirected_edges
from graphmend.lab.data.readers.csv_files import read_table
from graphmend.lab.data.readers.sources import FETCH_AGAIN, Source, locate
from graphmend.lab.data.splits import Splits

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


def _country(name: str, data_dir: str | Path | None, both_directions: bool) -> Data:
    path = locate(_source(name, "edges.csv"), data_dir, plain=NPZ)
    edges, x, y = _plain(path, name) if path.name == NPZ else _published(name, data_dir)
    edges = node_ids(path, edges, len(y))
    edge_index = undirected_edges(path, edges[0], edges[1], len(y)) if both_directions else torch.from_numpy(edges)
    return Data(x=x, edge_index=edge_index, y=torch.from_numpy(y.astype(np.int64)))


def _plain(path: Path, name: str) -> tuple[Array, Tensor, Array]:
    arrays = read_named(path, [*(f"{name}_{part}" for part in ("edges", "x_indptr", "x_indices", "y")), "num_features"])
    edges, indptr, indices, y, width = arrays.values()
    x = dense_rows(path, np.ones(len(indices), dtype=np.float32), indices, indptr, (len(y), int(width)))
    return edge_pairs(path, f"{name}_edges", edges), x, y


def _published(name: str, data_dir: str | Path | None) -> tuple[Array, Tensor, Array]:
    edges, features, targets = (locate(_source(name, kind), data_dir) for kind in KINDS)
    y = _targets(targets)
    return read_table(edges, np.int64, ("from", "to"), ndmin=2).T.copy(), _multi_hot(features, len(y)), y


def _targets(path: Path) -> Array:
    """The ``mature`` flag of node ``new_id``; if a node has several rows, as two of FR do, the first one decides."""
    table = read_table(path, np.dtype([("mature", "U8"), ("new_id", "i8")]), ("mature", "new_id"))
    flags = np.char.lower(np.char.strip(table["mature"]))
    wrong = table["mature"][~np.isin(flags, ("true", "false"))]
    require(wrong.size == 0, f"{path} has mature = {', '.join(wrong[:1])!r}, not True or False; {FETCH_AGAIN}")
    nodes, first = np.unique(table["new_id"], return_index=True)
    numbered = np.array_equal(nodes, np.arange(len(nodes)))
    require(numbered, f"{path} does not number its {len(nodes)} nodes from 0 in new_id; {FETCH_AGAIN}")
    labels: Array = (flags == "true")[first]
    return labels


def _multi_hot(path: Path, nodes: int) -> Tensor:
    """Features from lists of the columns that are 1, node by node."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        lists = {int(node): np.array(columns, dtype=np.int64) for node, columns in content.items()}
    except UnicodeDecodeError as error:
        raise GraphMendError(f"{path} is not UTF-8 text (byte {error.start}); {FETCH_AGAIN}") from error
    except (ValueError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        reason = first_line(error)
        raise GraphMendError(f"{path} is no JSON of feature lists per node ({reason}); {FETCH_AGAIN}") from error
    node_ids(path, np.array(list(lists), dtype=np.int64), nodes)
    x = np.zeros((nodes, FEATURES), dtype=np.float32)
    for node, columns in lists.items():
        bad = columns[(columns < 0) | (columns >= FEATURES)]
        require(bad.size == 0, f"{path} names feature {bad[:1]}, but they are 0 to {FEATURES - 1}; {FETCH_AGAIN}")
        x[node, columns] = 1.0
    return torch.from_numpy(x)


def _source(name: str, kind: str) -> Source:
    path = f"{name}/musae_{name}_{kind}"
    return Source(path, f"{_URL}/{path}")


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
