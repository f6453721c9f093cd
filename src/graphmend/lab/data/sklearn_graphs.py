"""Data sets that need no download: scikit-learn's digits, breast-cancer and wine sets as exact kNN graphs."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.spatial.distance import cdist
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import index_to_mask

from graphmend.errors import choose, require
from graphmend.files.files import Array
from graphmend.lab.data.catalogue import Dataset
from graphmend.lab.data.readers.arrays import undirected
from graphmend.lab.data.splits import MASKS, Splits

__all__ = ["DATASETS", "EMBEDDED", "embedded", "knn_graph", "stratified_parts"]

EMBEDDED: dict[str, Callable[..., Any]] = {
    "digits": load_digits,
    "breast_cancer": load_breast_cancer,
    "wine": load_wine,
}
FRACTIONS = (0.2, 0.4, 0.4)  # train, validation, test; validation is as large as the test it predicts


def embedded(name: str, neighbours: int = 10) -> Splits:
    """One of scikit-learn's own sets as a transductive node-classification task.

    The graph joins every sample to its ``neighbours`` nearest ones. The split (20 / 40 / 40 %, stratified) is always
    the same. Pixels of the digits are divided by 16; the other two sets are standardised by the mean and standard
    deviation of the training nodes.

    Args:
        name: ``"digits"`` (1,797 nodes, 64 features, 10 classes), ``"breast_cancer"`` (569, 30, 2) or ``"wine"``
            (178, 13, 3).
        neighbours: Nearest neighbours per node, before the graph is made undirected.

    Example:
        >>> from graphmend.lab.data import embedded
        >>> splits = embedded("wine")
        >>> splits.train[0].num_nodes, int(splits.train[0].mask.sum())
        (178, 36)
    """
    features, labels = choose("embedded data set", name, EMBEDDED)(return_X_y=True)
    parts = stratified_parts(labels, FRACTIONS, seed=0)
    if name == "digits":
        features = features / 16.0
    else:
        train = features[parts[0]]
        features = (features - train.mean(axis=0)) / train.std(axis=0)
    x = torch.from_numpy(features).float()
    graph = Data(x=x, edge_index=knn_graph(x, neighbours), y=torch.from_numpy(labels).long())
    for mask, nodes in zip(MASKS, parts, strict=True):
        graph[mask] = index_to_mask(torch.from_numpy(nodes), len(x))
    meta = {"name": name, "neighbours": neighbours, "classes": int(labels.max()) + 1, "fractions": FRACTIONS}
    return Splits.transductive(graph, task="binary" if name == "breast_cancer" else "multiclass", meta=meta)


def knn_graph(x: Tensor, k: int, *, block_rows: int = 1024) -> Tensor:
    """The exact, undirected k-nearest-neighbour graph of the rows of ``x`` under the Euclidean distance.

    Ties go to the lower index. Distances are computed in float64 from differences, without matrix products, so the
    graph does not depend on the BLAS in use. An edge exists when either end is among the ``k`` nearest of the other.

    Args:
        x: Features of shape ``(N, F)``.
        k: Neighbours per node, from 1 to N - 1.
        block_rows: Rows of the distance matrix that are held at a time.

    Returns:
        ``edge_index`` of shape ``(2, E)``: both directions, sorted, without self-loops or duplicates.

    Example:
        >>> import torch
        >>> from graphmend.lab.data import knn_graph
        >>> knn_graph(torch.tensor([[0.0], [1.0], [5.0]]), k=1)
        tensor([[0, 1, 1, 2],
                [1, 0, 2, 1]])
    """
    require(x.dim() == 2, f"x must have shape (N, F) (got {tuple(x.shape)}); pass one row per node")
    nodes = x.size(0)
    require(1 <= k < nodes, f"k must lie in 1..{nodes - 1} for {nodes} nodes (got {k})")
    require(
        bool(torch.isfinite(x).all()), "x holds NaN or infinite values, which have no neighbours; replace them first"
    )
    points = x.detach().cpu().double().numpy()
    blocks = (np.arange(start, min(start + block_rows, nodes)) for start in range(0, nodes, block_rows))
    nearest = np.concatenate([_nearest(points, rows, k) for rows in blocks])
    source, target = np.repeat(np.arange(nodes), k), nearest.reshape(-1)
    return undirected(source * nodes + target, nodes).to(x.device)


def stratified_parts(labels: Array, fractions: Sequence[float], seed: int) -> list[Array]:
    """Disjoint sorted index sets that cover all samples, each with the class proportions of ``labels``.

    Within a class, part ``i`` takes the samples between the rounded cumulative fractions, in an order drawn from
    ``seed`` alone (NumPy's frozen ``RandomState`` stream, so the parts never change).

    Example:
        >>> import numpy as np
        >>> from graphmend.lab.data import stratified_parts
        >>> first, second = stratified_parts(np.array([0, 0, 0, 0, 1, 1]), [0.5, 0.5], seed=0)
        >>> len(first), len(second)
        (3, 3)
    """
    require(
        abs(sum(fractions) - 1) < 1e-9 and min(fractions) > 0,
        f"fractions must be positive and sum to 1 (got {list(fractions)})",
    )
    rng = np.random.RandomState(seed)
    parts: list[list[Array]] = [[] for _ in fractions]
    for label in np.unique(labels):
        members = rng.permutation(np.flatnonzero(labels == label))
        cuts = np.rint(np.cumsum(fractions)[:-1] * members.size).astype(int)
        for part, chunk in zip(parts, np.split(members, cuts), strict=True):
            part.append(chunk)
    return [np.sort(np.concatenate(part)) for part in parts]


def _nearest(points: Array, rows: Array, k: int) -> Array:
    distance = cdist(points[rows], points, "sqeuclidean")
    distance[np.arange(rows.size), rows] = np.inf  # a node is not its own neighbour
    limit = np.partition(distance, k - 1, axis=1)[:, k - 1 : k]
    closer, tied = distance < limit, distance == limit
    missing = k - closer.sum(axis=1, keepdims=True)
    return np.nonzero(closer | (tied & (tied.cumsum(axis=1) <= missing)))[1].reshape(-1, k)


def _load(name: str, *, seed: int = 0, data_dir: str | Path | None = None, neighbours: int = 10) -> Splits:
    return embedded(name.replace("-", "_"), neighbours)  # neither the seed nor the directory matters


SIZES = {"digits": (1797, 64, 10), "breast-cancer": (569, 30, 2), "wine": (178, 13, 3)}  # nodes, features, classes
DATASETS = {
    name: Dataset(
        name,
        "none (scenarios of the demo)",
        functools.partial(_load, name),
        published={name: {"nodes": nodes, "features": features, "classes": classes}},
        note="scikit-learn's own set as a graph of nearest neighbours",
    )
    for name, nodes, features, classes in (
        ("digits", 1797, 64, 10),
        ("breast-cancer", 569, 30, 2),
        ("wine", 178, 13, 3),
    )
}
