r"""Contextual stochastic block model: graphs with chosen shifts of homophily, features, classes and size.

Everything is drawn in :math:`O(N F + E)` time and memory, in chunks with random streams of their own, so that drawing a
graph of :math:`10^8` stored edges needs little more memory than the graph itself.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch_geometric.data import Data

from graphmend.errors import GraphMendError, require
from graphmend.files.files import Array
from graphmend.lab.data.catalogue import Dataset
from graphmend.lab.data.readers.arrays import undirected
from graphmend.lab.data.splits import Splits

__all__ = ["DATASETS", "Blocks", "block_edges", "block_features", "csbm", "distinct"]

CHUNK = 1 << 22  # pairs drawn at a time
ROWS = 1 << 16  # rows of features drawn at a time
STRENGTHS = {"train": 0.0, "val": 0.5, "test": 1.0}  # how much of the shifts each part sees


def csbm(
    *,
    seed: int = 0,
    data_dir: str | Path | None = None,
    nodes: int = 1000,
    classes: int = 4,
    features: int = 32,
    degree: float = 8.0,
    homophily: float = 0.8,
    feature_signal: float = 1.0,
    feature_shift: float = 0.0,
    structure_shift: float = 0.0,
    label_shift: float = 0.0,
    test_nodes: int | None = None,
    train_graphs: int = 1,
    val_graphs: int = 1,
    test_graphs: int = 3,
) -> Splits:
    r"""Undirected graphs of one contextual block model, the training graphs at shift t = 0, the others shifted.

    Validation graphs have t = 1/2, test graphs t = 1. With unit vectors :math:`\mu_c` and :math:`\delta` drawn once,

    .. math:: P(y_i = c) \propto e^{t \lambda u_c}, \qquad
              x_i = s \mu_{y_i} + t f \delta + \varepsilon_i, \quad \varepsilon_i \sim N(0, I), \qquad
              h_t = h - t \Delta h

    where :math:`u` runs evenly from -1 to 1 over the classes in a random order. There are exactly N degree / 2
    distinct edges; one end is any node and the other, with probability :math:`h_t`, one of the same class, otherwise
    one of another class (`Deshpande et al. 2018 <https://arxiv.org/abs/1807.09596>`_ for the model).

    Args:
        seed: The same seed gives the same graphs.
        data_dir: Accepted for uniformity; nothing is read.
        nodes: N, per graph.
        classes: At least 2.
        features: F.
        degree: Mean degree.
        homophily: h, the share of edges between nodes of one class, at t = 0.
        feature_signal: s, the length of the class means in standard deviations of the noise.
        feature_shift: f, how far all features move, in the same unit.
        structure_shift: The drop of homophily; negative for a rise.
        label_shift: :math:`\lambda`; 1 makes the commonest class e² times as frequent as the rarest.
        test_nodes: N of the test graphs, when it differs.
        train_graphs: Number of training graphs.
        val_graphs: Number of validation graphs.
        test_graphs: Number of test graphs.

    Example:
        >>> from graphmend.lab.data import csbm
        >>> splits = csbm(nodes=200, homophily=0.9, structure_shift=0.5)
        >>> len(splits.test), splits.test[0].num_nodes, splits.test[0].num_edges
        (3, 200, 1600)
    """
    given = {key: value for key, value in locals().items() if key != "data_dir"}
    require(classes >= 2, f"classes must be at least 2 (got {classes})")
    require(features >= 1, f"features must be at least 1 (got {features})")
    smallest = min(nodes, nodes if test_nodes is None else test_nodes)
    require(smallest > classes, f"nodes must exceed the {classes} classes (got {smallest})")
    require(0 <= degree <= (smallest - 1) / 2, f"degree must lie in 0..{(smallest - 1) / 2} (got {degree})")
    for value in (homophily, homophily - structure_shift):
        require(0 <= value <= 1, f"homophily must be in [0, 1] before and after structure_shift (got {value:g})")
    rng = _stream(seed, 0)
    means = _unit_rows(rng.standard_normal((classes, features))) * feature_signal
    direction = _unit_rows(rng.standard_normal((1, features)))[0] * feature_shift
    tilt = rng.permutation(np.linspace(-1, 1, classes)) * label_shift

    def graph(part: str, number: int) -> Data:
        t = STRENGTHS[part]
        size = test_nodes if part == "test" and test_nodes is not None else nodes
        name = (seed, 1, list(STRENGTHS).index(part), number)
        prior = np.exp(t * tilt - (t * tilt).max())
        y = _stream(*name, 0).choice(classes, size, p=prior / prior.sum())
        count = round(size * degree / 2)
        keys = block_edges(Blocks(y, classes), count, homophily - t * structure_shift, (*name, 1))
        x = block_features(y, means + t * direction, (*name, 2))
        edge_index = undirected(keys, size, sort_by_row=False)
        return Data(x=torch.from_numpy(x), edge_index=edge_index, y=torch.from_numpy(y.astype(np.int64)))

    counts = {"train": train_graphs, "val": val_graphs, "test": test_graphs}
    parts = {part: [graph(part, number) for number in range(count)] for part, count in counts.items()}
    task = "binary" if classes == 2 else "multiclass"
    meta = {"name": "csbm", "generated": True, "strengths": STRENGTHS, **given}
    return Splits(parts["train"], parts["val"], parts["test"], task=task, meta=meta)


class Blocks:
    """Nodes ordered by class along a line, each as long as its weight, so that a random point selects a node.

    Args:
        y: Class of every node.
        classes: Number of classes.
        weight: Relative frequency with which each node is drawn; equal when ``None``.
    """

    def __init__(self, y: Array, classes: int, weight: Array | None = None) -> None:
        self.nodes = len(y)
        self.y = y.astype(np.int16)
        self.order = np.argsort(self.y, kind="stable").astype(np.int32 if self.nodes < 2**31 else np.int64)
        self.ends = None if weight is None else np.cumsum(weight[self.order], dtype=np.float64)
        last = np.bincount(self.y, minlength=classes).cumsum()
        ends = np.arange(1, self.nodes + 1, dtype=np.float64) if self.ends is None else self.ends
        self.high = np.where(last > 0, ends[np.maximum(last - 1, 0)], 0.0)
        self.low = np.concatenate([[0.0], self.high[:-1]])

    def pairs(self, rng: np.random.Generator, count: int, homophily: float) -> tuple[Array, Array]:
        """Ends of ``count`` random edges: any node, and one of the same class with probability ``homophily``."""
        point = rng.random(count)
        point.sort()  # pairs may come in any order, and this one reads memory in order
        first = self._at(point * self.high[-1])
        own = self.y[first]
        low, width = self.low[own], (self.high - self.low)[own]
        same = rng.random(count) < homophily
        point = rng.random(count)
        point *= np.where(same, width, self.high[-1] - width)
        point += np.where(same, low, np.where(point >= low, width, 0.0))  # for another class, skip the node's own
        return first, self._at(point)

    def _at(self, point: Array) -> Array:
        place = point.astype(np.int64) if self.ends is None else np.searchsorted(self.ends, point, side="right")
        nodes: Array = self.order[np.minimum(place, self.nodes - 1)].astype(np.int64)
        return nodes


def block_edges(blocks: Blocks, count: int, homophily: float, seed: tuple[int, ...], *, chunk: int = CHUNK) -> Array:
    """Exactly ``count`` distinct undirected edges without self-loops, as sorted keys ``low * N + high``.

    Edges within and between classes are drawn separately, so that the homophily is exact in dense graphs, too.
    """

    def keys(same: bool, size: int) -> Array:
        def draw(rng: np.random.Generator, some: int) -> Array:
            first, second = blocks.pairs(rng, some, float(same))
            drawn = np.minimum(first, second) * blocks.nodes + np.maximum(first, second)
            drawn[first == second] = -1
            return drawn

        return distinct(draw, size, (*seed, int(same)), chunk=chunk)

    within = round(count * homophily)
    edges = np.concatenate([keys(True, within), keys(False, count - within)])
    edges.sort(kind="stable")  # merges two sorted runs in linear time
    return edges


def distinct(
    draw: Callable[[np.random.Generator, int], Array], count: int, seed: tuple[int, ...], *, chunk: int = CHUNK
) -> Array:
    """``count`` different keys from ``draw(rng, size)``, sorted; negative keys and repetitions are drawn again.

    Each chunk of at most ``chunk`` keys has a random stream of its own.
    """
    keys = np.empty(0, np.int64)
    for attempt in range(100):
        missing = count - keys.size
        if missing == 0:
            return keys
        fresh = np.empty(missing, np.int64)
        for number, start in enumerate(range(0, missing, chunk)):
            size = min(chunk, missing - start)
            fresh[start : start + size] = draw(_stream(*seed, attempt, number), size)
        fresh.sort()
        fresh = fresh[(fresh >= 0) & np.concatenate([[True], fresh[1:] != fresh[:-1]])]
        if keys.size:
            known = keys[np.minimum(np.searchsorted(keys, fresh), keys.size - 1)] == fresh
            fresh = np.concatenate([keys, fresh[~known]])
            fresh.sort(kind="stable")  # merges two sorted runs in linear time
        keys = fresh
    raise GraphMendError(f"there are no {count} distinct edges to draw (got {keys.size}); lower degree or add nodes")


def block_features(y: Array, means: Array, seed: tuple[int, ...], *, rows: int = ROWS) -> Array:
    """The class means plus standard normal noise, in single precision, drawn in blocks of ``rows`` rows."""
    x = np.empty((len(y), means.shape[1]), np.float32)
    centres = means.astype(np.float32)
    for number, start in enumerate(range(0, len(y), rows)):
        block = x[start : start + rows]
        _stream(*seed, number).standard_normal(out=block, dtype=np.float32)
        block += centres[y[start : start + rows]]
    return x


def _stream(*name: int) -> np.random.Generator:
    require(name[0] >= 0, f"seed must not be negative (got {name[0]})")
    return np.random.default_rng(name)


def _unit_rows(vectors: Array) -> Array:
    lengths: Array = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / lengths


DATASETS = {
    "csbm": Dataset(
        "csbm",
        "chosen by options: features, structure, classes, size",
        csbm,
        generated=True,
        note="contextual stochastic block model; options of graphmend.lab.data.csbm",
    )
}
