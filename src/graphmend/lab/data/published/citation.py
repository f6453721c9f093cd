"""``citation``: two citation networks from different sources and years with the same features and classes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch_geometric.data import Data
from torch_geometric.utils import index_to_mask

from graphmend.errors import choose, require
from graphmend.lab.data.catalogue import Dataset
from graphmend.lab.data.readers.arrays import dense_rows, edge_pairs, read_mat, read_named, undirected_edges
from graphmend.lab.data.readers.sources import FETCH_AGAIN, Source, locate
from graphmend.lab.data.sklearn_graphs import stratified_parts
from graphmend.lab.data.splits import Splits, masked

__all__ = ["DATASETS", "citation"]

NPZ = "citation.npz"
CLASSES = 5
_URL = "https://github.com/shenxiaocam/ACDNE/raw/master/ACDNE_codes/input"
SOURCES = {name: Source(f"{name.lower()}.mat", f"{_URL}/{name.lower()}.mat") for name in ("ACMv9", "Citationv1")}
DIRECTIONS = {"ACMv9": ("ACMv9", "Citationv1"), "Citationv1": ("Citationv1", "ACMv9")}
VALIDATION = 0.2  # share of the source graph's nodes, by class


def citation(*, seed: int = 0, data_dir: str | Path | None = None, source: str = "ACMv9") -> Splits:
    """Papers of ACM (2000 to 2010) and of Microsoft Academic Graph (up to 2008): train on one, test on the other.

    The two networks of `Shen et al. <https://arxiv.org/abs/2002.07366>`_ share 6,775 keyword counts and five fields of
    research. The label of a paper with several fields is the first of them. A fixed, stratified fifth of the source
    graph's nodes is for validation, the others are for training; all nodes of the other graph are tested.

    Args:
        seed: Not used; the parts are always the same.
        data_dir: Where ``citation.npz`` or the published ``acmv9.mat`` and ``citationv1.mat`` lie.
        source: The graph to train on, ``"ACMv9"`` or ``"Citationv1"``; the other one is the test.
    """
    names = choose("source graph", source, DIRECTIONS)
    graph, target = (_network(name, data_dir) for name in names)
    widths = graph.x.size(1), target.x.size(1)
    require(widths[0] == widths[1], f"the two networks have {widths[0]} and {widths[1]} features; fetch both again")
    parts = stratified_parts(graph.y.numpy(), (1 - VALIDATION, VALIDATION), seed=0)
    train, val = (masked(graph, index_to_mask(torch.from_numpy(nodes), graph.num_nodes)) for nodes in parts)
    meta = {
        "name": "citation",
        "classes": CLASSES,
        "source": source,
        "graphs": {"train": [names[0]], "val": [names[0]], "test": [names[1]]},
    }
    return Splits([train], [val], [target], meta=meta)


def _network(name: str, data_dir: str | Path | None) -> Data:
    path = locate(SOURCES[name], data_dir, plain=NPZ)
    if path.name == NPZ:
        keys = ("edges", "x_data", "x_indices", "x_indptr", "Y")
        edges, data, indices, indptr, fields, width = read_named(
            path, [*(f"{name}_{key}" for key in keys), "num_features"]
        ).values()
        shape: Any = (len(fields), int(width))
        source, target = edge_pairs(path, f"{name}_edges", edges)
    else:
        arrays = read_mat(path, ["network", "attrb", "group"])
        network, rows, fields = sp.coo_matrix(arrays["network"]), sp.csr_matrix(arrays["attrb"]), arrays["group"]
        data, indices, indptr, shape = rows.data, rows.indices, rows.indptr, rows.shape
        source, target = network.row, network.col
        fields = fields.toarray() if sp.issparse(fields) else fields
    fits = fields.ndim == 2 and fields.shape == (shape[0], CLASSES) and bool((fields.sum(axis=1) > 0).all())
    require(fits, f"{path} does not give each of its {shape[0]} papers one of {CLASSES} fields; {FETCH_AGAIN}")
    x = dense_rows(path, data, indices, indptr, shape)
    y = torch.from_numpy(np.asarray(fields).argmax(axis=1).astype(np.int64))
    return Data(x=x, edge_index=undirected_edges(path, source, target, x.size(0)), y=y)


DATASETS = {
    "citation": Dataset(
        "citation",
        "source and period of the papers",
        citation,
        files=((NPZ,), tuple(source.path for source in SOURCES.values())),
        published={
            "ACMv9": {"nodes": 9360, "edges": 15556, "features": 6775, "classes": CLASSES},
            "Citationv1": {"nodes": 8935, "edges": 15098, "features": 6775, "classes": CLASSES},
        },
        note="source='Citationv1' trains on the other graph; the first of several fields is the label",
    )
}
