"""Amazon-Photo."""

from __future__ import annotations

from pathlib import Path

from torch_geometric.data import Data

from graphmend.lab.data.readers.arrays import (
    PARTS,
    ROWS,
    compressed_rows,
    dense_rows,
    node_labels,
    plain_graph,
    read_named,
    undirected_edges,
)
from graphmend.lab.data.readers.sources import Source, locate

__all__ = ["NPZ", "PHOTO", "photo_graph"]

NPZ = "amazon_photo.npz"
PHOTO = Source(
    "amazon_electronics_photo.npz",
    "https://github.com/shchur/gnn-benchmark/raw/master/data/npz/amazon_electronics_photo.npz",
)


def photo_graph(data_dir: str | Path | None = None) -> Data:
    """The co-purchase graph of photo equipment of `Shchur et al. <https://arxiv.org/abs/1811.05868>`_.

    7,650 products, 119,081 undirected edges, 745 binary words, 8 classes; no split belongs to it. It is read from
    ``amazon_photo.npz`` or, as published, from ``amazon_electronics_photo.npz``. Self-loops are dropped.

    Example:
        >>> from graphmend.lab.data import DATASETS, missing_files, photo_graph
        >>> if not missing_files(DATASETS["photo-ood"]):  # its files have been fetched
        ...     assert photo_graph().num_nodes == 7650
    """
    path = locate(PHOTO, data_dir, plain=NPZ)
    if path.name == NPZ:
        return plain_graph(path, read_named(path, ["y", "edge_index", *ROWS]))
    arrays = read_named(path, ["labels", *(f"{kind}_{part}" for kind in ("adj", "attr") for part in PARTS)])
    x = dense_rows(path, *(arrays[f"attr_{part}"] for part in PARTS))
    adjacency = compressed_rows(path, *(arrays[f"adj_{part}"] for part in PARTS)).tocoo()
    edge_index = undirected_edges(path, adjacency.row, adjacency.col, x.size(0))
    labels = node_labels(path, arrays["labels"], x.size(0))
    return Data(x=(x > 0).float(), edge_index=edge_index, y=labels)
