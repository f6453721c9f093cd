"""A graph in two halves that differ in degree, words, community or topic: train on one, predict on the other.

Nothing is broken in either half: they are two mixes of one population, and what a mender does to the other half is
its own doing. A half is an induced subgraph. Ties are broken by one fixed random order of the nodes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
import scipy.sparse as sp
import torch
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import LinearOperator, eigsh, svds
from sklearn.decomposition import TruncatedSVD
from torch import Tensor
from torch_geometric.data import Data

from graphmend.files.files import Array
from graphmend.lab.data import Splits, load, masked, photo_graph, stratified_parts
from graphmend.lab.data.sklearn_graphs import embedded, knn_graph

__all__ = ["GRAPHS", "WAYS", "cora_dense", "half_splits", "lower_half", "tiny"]

PARTS = (0.6, 0.2)  # training and validation nodes; the others are held out
COLUMNS = 64  # of the dense Cora
DENSE = ("cora-dense", "digits")  # graphs whose rows are no counts of words
TINY = 200  # nodes


@functools.cache
def cora_dense() -> Splits:
    """Cora with 64 standardised columns, the singular vectors of its words; the public split."""
    graph = load("cora").train[0]
    del graph.mask
    columns = TruncatedSVD(COLUMNS, random_state=0).fit_transform(sp.csr_matrix(graph.x.double().numpy()))
    graph.x = torch.from_numpy((columns - columns.mean(axis=0)) / columns.std(axis=0)).float()
    return Splits.transductive(graph, meta={"name": "cora-dense", "classes": 7})


@functools.cache
def tiny() -> Splits:
    """Two hundred of the handwritten digits: a graph as small as people try things on."""
    splits = embedded("digits")
    graph = splits.train[0]
    chosen = torch.cat([(graph.y == label).nonzero().view(-1)[: TINY // 10] for label in range(10)]).sort().values
    x, y = graph.x[chosen], graph.y[chosen]
    parts = stratified_parts(y.numpy(), (0.3, 0.3, 0.4), seed=0)
    masks = {name: torch.zeros(len(y), dtype=torch.bool) for name in ("train_mask", "val_mask", "test_mask")}
    for mask, nodes in zip(masks.values(), parts, strict=True):
        mask[torch.from_numpy(nodes)] = True
    data = Data(x=x, edge_index=knn_graph(x, 5), y=y, **masks)
    return Splits.transductive(data, meta={"name": "tiny", "classes": 10})


def half_splits(graph: str, way: str, side: int, seed: int, *, everyone: bool = False) -> Splits:
    """Train on one half and predict on the other.

    Args:
        graph: A key of :data:`GRAPHS`.
        way: A key of :data:`WAYS`.
        side: 0 trains on the lower half, 1 on the upper one.
        seed: Seed of the random training (60 %), validation (20 %) and held-out nodes of the training half.
        everyone: Train and validate on all nodes, so that none is held out.
    """
    whole = _graph(graph)
    lower = lower_half(graph, way)
    own, other = (whole.subgraph(lower if side == half else ~lower) for half in (0, 1))
    nodes = own.num_nodes
    place = torch.randperm(nodes, generator=torch.Generator().manual_seed(seed)) / nodes
    train, val = place < PARTS[0], (place >= PARTS[0]) & (place < sum(PARTS))
    if everyone:
        train = val = torch.ones(nodes, dtype=torch.bool)
    meta = {"name": f"half-{graph}-{way}-{side}", "classes": int(whole.y.max()) + 1, "held_out": ~(train | val)}
    return Splits([masked(own, train)], [masked(own, val)], [other], meta=meta)


@functools.lru_cache(maxsize=8)
def lower_half(graph: str, way: str) -> Tensor:
    """The nodes of the lower half as a mask."""
    data = _graph(graph)
    return WAYS[way](data, graph in DENSE)


@functools.lru_cache(maxsize=1)
def _graph(name: str) -> Data:
    data = GRAPHS[name]()
    return Data(x=data.x, edge_index=data.edge_index, y=data.y)


def _below_median(values: Array) -> Tensor:
    """The half of the nodes with the lower values, which are rounded, so that other machines find the same half."""
    spread = float(values.std()) or 1.0
    tie = np.random.RandomState(0).permutation(len(values))
    order = np.lexsort((tie, np.round(values / spread, 5)))
    mask = torch.zeros(len(values), dtype=torch.bool)
    mask[torch.from_numpy(order[: len(values) // 2])] = True
    return mask


def _degree(data: Data, dense: bool) -> Tensor:
    return _below_median(np.bincount(data.edge_index[0].numpy(), minlength=data.num_nodes).astype(float))


def _words(data: Data, dense: bool) -> Tensor:
    """By the number of words of a node; where features are dense, by their length as a vector."""
    size = data.x.double().norm(dim=1) if dense else (data.x != 0).sum(1).double()
    return _below_median(size.numpy())


def _topic(data: Data, dense: bool) -> Tensor:
    """By the first principal component of the features."""
    x = sp.csr_matrix(data.x.double().numpy())
    mean = np.asarray(x.mean(axis=0)).reshape(-1)
    centred = LinearOperator(
        x.shape,
        matvec=lambda v: x @ v.reshape(-1) - mean @ v.reshape(-1),
        rmatvec=lambda u: x.T @ u.reshape(-1) - mean * u.sum(),
        dtype=np.float64,
    )
    start = np.random.RandomState(0).standard_normal(min(x.shape))
    left, _, _ = svds(centred, k=1, v0=start)
    return _below_median(_signed(left[:, 0]))


def _community(data: Data, dense: bool) -> Tensor:
    """By the second eigenvector of the normalised Laplacian on the largest component; the others even out the sizes."""
    nodes = data.num_nodes
    source, target = data.edge_index.numpy()
    adjacency = sp.csr_matrix((np.ones(len(source)), (source, target)), shape=(nodes, nodes))
    _, component = connected_components(adjacency, directed=False)
    sizes = np.bincount(component)
    largest = int(sizes.argmax())
    inside = np.flatnonzero(component == largest)
    block = adjacency[inside][:, inside]
    scale = 1 / np.sqrt(np.asarray(block.sum(axis=1)).reshape(-1))
    walk = sp.diags(scale) @ block @ sp.diags(scale)
    start = np.random.RandomState(0).standard_normal(len(inside))
    _, vectors = eigsh(walk, k=2, which="LA", v0=start, tol=1e-6, maxiter=20_000)
    mask = torch.zeros(nodes, dtype=torch.bool)
    mask[torch.from_numpy(inside)] = _below_median(_signed(vectors[:, 0] * scale))
    members = np.split(np.argsort(component, kind="stable"), np.cumsum(sizes)[:-1])
    counts = [int(mask[inside].sum()), len(inside) - int(mask[inside].sum())]
    for number in np.argsort(-sizes, kind="stable"):
        if number != largest:
            smaller = int(counts[1] < counts[0])
            mask[torch.from_numpy(members[number])] = smaller == 0
            counts[smaller] += len(members[number])
    return mask


def _signed(vector: Array) -> Array:
    """A vector whose sign is not for the solver to choose."""
    signed: Array = vector * np.sign(vector[np.abs(vector).argmax()])
    return signed


GRAPHS: dict[str, Callable[[], Data]] = {
    "cora": lambda: load("cora").train[0],
    "citeseer": lambda: load("citeseer").train[0],
    "pubmed": lambda: load("pubmed").train[0],
    "photo": photo_graph,
    "acm": lambda: load("citation", source="ACMv9").train[0],
    "citation1": lambda: load("citation", source="Citationv1").train[0],
    "digits": lambda: load("digits").train[0],
    "cora-dense": lambda: cora_dense().train[0],
}
WAYS: dict[str, Callable[[Data, bool], Tensor]] = {
    "degree": _degree,
    "words": _words,
    "community": _community,
    "pc": _topic,
}
