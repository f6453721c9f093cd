"""A generated citation graph of the size of ogbn-arxiv, for use where the real one is not available."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np

from graphmend.errors import require
from graphmend.files.files import Array
from graphmend.lab.data.catalogue import Dataset
from graphmend.lab.data.generated.csbm import distinct
from graphmend.lab.data.published.arxiv import period_splits, year_splits
from graphmend.lab.data.readers.sources import cached_arrays
from graphmend.lab.data.splits import Splits

__all__ = ["DATASETS", "arxiv_size", "generate"]

NODES, EDGES, FEATURES, CLASSES = 169_343, 1_166_243, 128, 40
PERIODS = {  # papers per period, growing geometrically within each
    (1991, 2011): 17_401,
    (2012, 2014): 23_724,
    (2015, 2016): 28_374,
    (2017, 2017): 21_442,
    (2018, 2018): 29_799,
    (2019, 2019): 39_711,
    (2020, 2020): 8_892,
}
NEIGHBOURS = ((1, 0.5), (-1, 0.3), (2, 0.2))  # offset of the second field on the ring of classes, and its frequency
STRAY = 0.03  # share of citations to a random field
STRANGERS, STRANGERS_GROWTH = 0.33, 0.06  # share of papers nearer to their second field in 2011, and its growth to 2020
STRANGERS_CITED = 0.15  # popularity of such papers, relative to the others
SCALE = 0.1  # standard deviation of the feature noise
SIGNAL = 3.5  # length of a field's mean, in standard deviations of the noise
DRIFT = 0.6  # how far a field's mean moves in nine years, relative to its length


def arxiv_size(
    *, seed: int = 0, data_dir: str | Path | None = None, ood: bool = False, scale: float = 1.0, graph_seed: int = 0
) -> Splits:
    """A generated stand-in for ogbn-arxiv: the split by year of ``arxiv``, or the periods of ``arxiv-ood``.

    The graph is the same for every run seed, as the real one is.

    Args:
        seed: Accepted for uniformity; nothing here depends on the run.
        data_dir: Accepted for uniformity; nothing is read from it.
        ood: The five cumulative directed graphs instead of the one undirected graph.
        scale: Share of the nodes and edges, for small tests.
        graph_seed: Seed of the graph.
    """
    require(0.002 <= scale <= 1, f"scale must be in [0.002, 1] (got {scale})")
    key = f"1 {scale!r} {graph_seed}"
    arrays = cached_arrays("arxiv-size", key, lambda: generate(scale=scale, seed=graph_seed))
    meta = {"name": "arxiv-size-ood" if ood else "arxiv-size", "generated": True, "scale": scale, "seed": graph_seed}
    return period_splits(arrays, meta) if ood else year_splits(arrays, meta)


def generate(*, scale: float = 1.0, seed: int = 0) -> dict[str, Array]:
    r"""Arrays ``x``, ``edge_index``, ``y`` and ``year`` of the graph.

    Papers arrive in time. Each has a field :math:`y`, its label, a second field :math:`s` near the first, and a purity
    :math:`m`; a share of papers that grows with time lies nearer to its second field (:math:`m < 1/2`), which bounds
    what a classifier can reach. A citation is to field :math:`y` with probability :math:`m`, else to :math:`s`, and
    among the *earlier* papers of that field (each belongs to both of its own, with weights :math:`m` and
    :math:`1 - m`) in proportion to a Pareto popularity. Features are
    :math:`x = m \mu_y(t) + (1 - m) \mu_s(t) + \varepsilon` with means that drift; class frequencies drift too.
    """
    rng = np.random.default_rng([seed, 0])
    year = _years(scale)
    nodes = year.size
    time = np.clip((year - 2011) / 9, -1.0, 1.0)
    prior = rng.permutation(np.arange(1, CLASSES + 1) ** -0.9)
    growth = 0.8 * rng.standard_normal(CLASSES)
    y = _draw_rows(rng, prior * np.exp(growth * time[:, None]))
    ring = rng.permutation(CLASSES)
    step = rng.choice([offset for offset, _ in NEIGHBOURS], nodes, p=[share for _, share in NEIGHBOURS])
    second = ring[(np.argsort(ring)[y] + step) % CLASSES]
    stranger = rng.random(nodes) < STRANGERS + STRANGERS_GROWTH * time
    purity = np.where(stranger, rng.uniform(0.05, 0.4, nodes), rng.uniform(0.9, 1.0, nodes))
    x = _features(rng, y, second, purity, time)
    edges = _citations(rng, y, second, purity, round(EDGES * nodes / NODES), seed)
    shuffle = rng.permutation(nodes)  # so that node ids do not reveal time, as in the published data
    back = np.argsort(shuffle)
    order = rng.permutation(edges.shape[1])
    return {"x": x[shuffle], "edge_index": back[edges[:, order]], "y": y[shuffle], "year": year[shuffle]}


def _years(scale: float) -> Array:
    years = []
    for (first, last), papers in PERIODS.items():
        growth = 1.25 ** np.arange(last - first + 1)
        ends = np.rint(np.cumsum(growth) / growth.sum() * papers * scale).astype(int)
        years.append(np.repeat(np.arange(first, last + 1), np.diff(ends, prepend=0)))
    return np.concatenate(years)


def _draw_rows(rng: np.random.Generator, weights: Array) -> Array:
    """One random column for every row, with probabilities in proportion to the weights."""
    ends = np.cumsum(weights, axis=1)
    columns: Array = (rng.random((len(ends), 1)) * ends[:, -1:] > ends).sum(axis=1)
    return columns


def _features(rng: np.random.Generator, y: Array, second: Array, purity: Array, time: Array) -> Array:
    centre, direction = (rng.standard_normal((CLASSES, FEATURES)) / np.sqrt(FEATURES) for _ in range(2))
    x: Array = rng.standard_normal((y.size, FEATURES), dtype=np.float32)
    for field, share in ((y, purity), (second, 1 - purity)):
        x += (SIGNAL * share[:, None] * (centre[field] + DRIFT * time[:, None] * direction[field])).astype(np.float32)
    return x * np.float32(SCALE)


def _citations(rng: np.random.Generator, y: Array, second: Array, purity: Array, count: int, seed: int) -> Array:
    """``count`` distinct pairs of a citing and an earlier paper; papers are numbered by time."""
    nodes = y.size
    length = np.cumsum(rng.lognormal(0.0, 0.8, nodes))  # running total of the lengths of reference lists
    popularity = np.minimum(rng.random(nodes) ** -0.8, 400.0) * np.where(purity < 0.5, STRANGERS_CITED, 1.0)
    # Every paper is listed under both of its fields. A field lists its papers by time, each as long as its weight, so
    # that a random point selects a paper.
    listed_under = np.concatenate([y, second])
    paper = np.tile(np.arange(nodes), 2)
    order = np.argsort(listed_under * nodes + paper)
    places = (listed_under * nodes + paper)[order]
    paper = paper[order]
    ends = np.cumsum((np.concatenate([purity, 1 - purity]) * np.tile(popularity, 2))[order])
    starts = np.concatenate([[0.0], ends])
    first = np.searchsorted(places, np.arange(CLASSES) * nodes)

    def draw(stream: np.random.Generator, size: int) -> Array:
        source = np.searchsorted(length, stream.random(size) * length[-1], side="right")
        field = np.where(stream.random(size) < purity[source], y[source], second[source])
        field = np.where(stream.random(size) < STRAY, stream.integers(CLASSES, size=size), field)
        low = starts[first[field]]
        high = starts[np.searchsorted(places, field * nodes + source)]
        point = low + (high - low) * stream.random(size) ** 0.7  # later papers are cited more
        target = paper[np.minimum(np.searchsorted(ends, point, side="right"), paper.size - 1)]
        return np.where((high > low) & (target < source), source * nodes + target, -1)

    keys = distinct(draw, count, (seed, 1))
    return np.stack([keys // nodes, keys % nodes])


_NOTE = "generated in the size of ogbn-arxiv"
DATASETS = {
    "arxiv-size": Dataset("arxiv-size", "none (one graph, split by year)", arxiv_size, generated=True, note=_NOTE),
    "arxiv-size-ood": Dataset(
        "arxiv-size-ood",
        "time: papers of later years",
        functools.partial(arxiv_size, ood=True),
        generated=True,
        note=_NOTE,
    ),
}
"""Every data set by name.

Example:
    >>> from graphmend.lab.data import DATASETS
    >>> DATASETS["wine"].note
    "scikit-learn's own set as a graph of nearest neighbours"
"""
