"""A generated co-purchase graph of the size of ogbn-products: 2.4 million nodes, 62 million edges."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch_geometric.data import Data

from graphmend.errors import require
from graphmend.lab.data.catalogue import Dataset
from graphmend.lab.data.generated.csbm import Blocks, block_edges, block_features
from graphmend.lab.data.readers.arrays import undirected
from graphmend.lab.data.splits import MASKS, Splits

__all__ = ["DATASETS", "products_size"]

NODES, EDGES, FEATURES, CLASSES = 2_449_029, 61_859_140, 100, 47
HOMOPHILY = 0.81
SHARES = (0.08, 0.02)  # training and validation nodes: the best-selling products; all others are for testing
SIGNAL = 1.0


def products_size(
    *, seed: int = 0, data_dir: str | Path | None = None, scale: float = 1.0, graph_seed: int = 0
) -> Splits:
    r"""One undirected graph with power-law degrees and homophily 0.81, split 8 / 2 / 90 % by popularity.

    The ends of an edge are drawn in proportion to Pareto weights, the second within the class of the first with
    probability 0.81; features are :math:`x_i = \mu_{y_i} + \varepsilon_i` with unit vectors :math:`\mu_c`. All of it is
    generated in chunks. At full size the result takes 3 GB and its generation at most 4 GB; nothing is cached.

    Args:
        seed: Accepted for uniformity; the graph is the same for every run.
        data_dir: Accepted for uniformity; nothing is read.
        scale: Share of the nodes and edges, for small tests.
        graph_seed: Seed of the graph.
    """
    require(0.0005 <= scale <= 1, f"scale must be in [0.0005, 1] (got {scale})")
    nodes, edges = round(NODES * scale), round(EDGES * scale)
    rng = np.random.default_rng([graph_seed, 0])
    prior = np.arange(1, CLASSES + 1) ** -0.8
    y = rng.choice(CLASSES, nodes, p=prior / prior.sum()).astype(np.int16)
    weight = np.minimum(rng.random(nodes) ** -0.6, 200.0)
    means = rng.standard_normal((CLASSES, FEATURES))
    means *= SIGNAL / np.linalg.norm(means, axis=1, keepdims=True)
    rank = np.empty(nodes, np.int64)
    rank[np.argsort(-weight * rng.lognormal(0.0, 1.0, nodes))] = np.arange(nodes)
    keys = block_edges(Blocks(y, CLASSES, weight), edges, HOMOPHILY, (graph_seed, 1))
    edge_index = undirected(keys, nodes, sort_by_row=False)
    del keys  # half a gigabyte at full size
    x = torch.from_numpy(block_features(y, means, (graph_seed, 2)))
    train, val = (round(nodes * share) for share in SHARES)
    graph = Data(x=x, edge_index=edge_index, y=torch.from_numpy(y.astype(np.int64)))
    members = (rank < train, (rank >= train) & (rank < train + val), rank >= train + val)
    for mask, chosen in zip(MASKS, members, strict=True):
        graph[mask] = torch.from_numpy(chosen)
    meta = {"name": "products-size", "generated": True, "classes": CLASSES, "scale": scale, "seed": graph_seed}
    return Splits.transductive(graph, meta=meta)


DATASETS = {
    "products-size": Dataset(
        "products-size",
        "none (one graph, split by popularity)",
        products_size,
        generated=True,
        note="generated in the size of ogbn-products; 3 GB in memory, 4 GB while it is generated",
    )
}
