"""All data sets by name: load one, list its missing files, compare its statistics with the published ones."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torch import Tensor
from torch_geometric.data import Data

from graphmend.errors import choose, listed, require
from graphmend.lab.data.catalogue import Availability, Dataset
from graphmend.lab.data.generated.arxiv_size import DATASETS as ARXIV_SIZE
from graphmend.lab.data.generated.csbm import DATASETS as CSBM
from graphmend.lab.data.generated.elliptic_size import DATASETS as ELLIPTIC_SIZE
from graphmend.lab.data.generated.products_size import DATASETS as PRODUCTS_SIZE
from graphmend.lab.data.generated.synthetic_domains import DATASETS as SYNTHETIC_DOMAINS
from graphmend.lab.data.published.arxiv import DATASETS as ARXIV
from graphmend.lab.data.published.arxiv_votes import DATASETS as ARXIV_VOTES
from graphmend.lab.data.published.citation import DATASETS as CITATION
from graphmend.lab.data.published.elliptic import DATASETS as ELLIPTIC
from graphmend.lab.data.published.fb100 import DATASETS as FB100
from graphmend.lab.data.published.planetoid import DATASETS as PLANETOID
from graphmend.lab.data.published.twitch import DATASETS as TWITCH
from graphmend.lab.data.readers.sources import find
from graphmend.lab.data.scenarios import DATASETS as SCENARIOS
from graphmend.lab.data.sklearn_graphs import DATASETS as SKLEARN
from graphmend.lab.data.splits import Splits, node_mask

__all__ = ["DATASETS", "availability", "compare", "load", "measured", "missing_files", "statistics"]


DATASETS: dict[str, Dataset] = {
    **SYNTHETIC_DOMAINS,  # cora-ood, photo-ood
    **TWITCH,  # twitch-e
    **FB100,  # fb100
    **ELLIPTIC,  # elliptic
    "arxiv-ood": ARXIV["arxiv-ood"],
    **PLANETOID,  # cora, citeseer, pubmed
    **ARXIV,  # arxiv
    **ARXIV_VOTES,  # arxiv-votes, arxiv-votes-ood
    **CITATION,  # citation
    **SKLEARN,  # digits, breast-cancer, wine
    **SCENARIOS,  # digits-shift
    **CSBM,  # csbm
    **ARXIV_SIZE,  # arxiv-size and its periods
    **ELLIPTIC_SIZE,  # elliptic-size
    **PRODUCTS_SIZE,  # products-size
}


def load(name: str, *, seed: int = 0, data_dir: str | Path | None = None, **options: Any) -> Splits:
    """A data set by name.

    Args:
        name: A key of :data:`DATASETS`.
        seed: The run seed; it matters only where something is drawn.
        data_dir: A directory to look in before ``GRAPHMEND_DATA`` and the cache.
        options: Options of the data set itself, such as ``triple=1`` for ``fb100``.

    Example:
        >>> from graphmend.lab.data import load
        >>> load("wine").train[0].num_nodes
        178
    """
    dataset = choose("data set", name, DATASETS)
    known = inspect.signature(dataset.load).parameters
    free = any(parameter.kind is parameter.VAR_KEYWORD for parameter in known.values())
    wrong = [option for option in options if option not in known]
    choices = listed(set(known) - {"seed", "data_dir"}) or "none"
    require(free or not wrong, f"{name} has no option {listed(wrong)}; its options are {choices}")
    splits: Splits = dataset.load(seed=seed, data_dir=data_dir, **options)
    return splits


def missing_files(dataset: Dataset, data_dir: str | Path | None = None) -> list[list[str]]:
    """An empty list if the data set can be loaded; otherwise the missing files of each layout it is published in.

    Example:
        >>> from graphmend.lab.data import DATASETS, missing_files
        >>> missing_files(DATASETS["wine"])
        []
    """
    return availability(dataset, data_dir).missing


def availability(dataset: Dataset, data_dir: str | Path | None = None) -> Availability:
    """Which files of a data set are available, and the name under which it will be loaded.

    Example:
        >>> from graphmend.lab.data import DATASETS, availability
        >>> availability(DATASETS["wine"]).missing
        []
    """
    if dataset.availability is not None:
        return dataset.availability(data_dir)
    missing = [[file for file in group if find(file, data_dir) is None] for group in dataset.files]
    return Availability(dataset.name, missing if all(missing) else [])


def measured(dataset: Dataset, splits: Splits) -> dict[str, dict[str, Any]]:
    """The statistics of loaded splits, by the data set's own measure or by :func:`statistics`.

    Example:
        >>> from graphmend.lab.data import DATASETS, load, measured
        >>> measured(DATASETS["wine"], load("wine"))["wine"]["classes"]
        3
    """
    return (dataset.measure or statistics)(splits)


def statistics(splits: Splits) -> dict[str, dict[str, Any]]:
    """Nodes, edges, features and classes of each graph, and the number of nodes in the mask of each part.

    An undirected edge is counted once, a directed one as it is stored. Graphs have the names in ``meta["graphs"]``.

    Example:
        >>> from graphmend.lab.data import load, statistics
        >>> statistics(load("wine"))["wine"]["features"]
        13
    """
    graphs: dict[str, dict[str, Any]] = {}
    for part, name, data in _named(splits):
        if name not in graphs:
            graphs[name] = _graph_statistics(data, splits)
        if "mask" in data:
            graphs[name][part] = int(node_mask(data).sum())
    return graphs


def compare(
    measured: dict[str, dict[str, Any]], published: dict[str, dict[str, Any]]
) -> dict[str, dict[str, dict[str, Any]]]:
    """Each statistic of the loaded graphs beside the published one; ``difference`` is measured minus published.

    Example:
        >>> from graphmend.lab.data import DATASETS, compare, load, measured
        >>> wine = DATASETS["wine"]
        >>> compare(measured(wine, load("wine")), wine.published)["wine"]["nodes"]
        {'measured': 178, 'published': 178, 'difference': 0}
    """
    rows: dict[str, dict[str, dict[str, Any]]] = {}
    for graph, values in measured.items():
        expected = published.get(graph, {})
        keys = [*values, *(expected.keys() - values)]
        rows[graph] = {key: _compared(values.get(key), expected.get(key)) for key in keys}
    return rows


def _compared(value: Any, published: Any) -> dict[str, Any]:
    difference = None if value is None or published is None else round(value - published, 6)
    return {"measured": value, "published": published, "difference": difference}


def _graph_statistics(data: Data, splits: Splits) -> dict[str, Any]:
    y: Tensor = data.y
    edges = data.edge_index.size(1)
    values = {
        "nodes": data.x.size(0),
        "edges": edges // 2 if data.is_undirected() else edges,
        "features": data.x.size(1),
        "classes": int(splits.meta.get("classes", int(y.max()) + 1)),
    }
    if splits.task == "binary":
        values["class 1"] = int((y == 1).sum())
    return values


def _named(splits: Splits) -> Iterator[tuple[str, str, Data]]:
    names = splits.meta.get("graphs")
    is_one_graph = all(len(graphs) == 1 for graphs in splits.parts.values()) and splits.train[0].x is splits.test[0].x
    for part, graphs in splits.parts.items():
        for index, data in enumerate(graphs):
            if names is not None:
                name = names[part][index]
            else:
                name = str(splits.meta.get("name", "graph")).replace("_", "-") if is_one_graph else f"{part} {index}"
            yield part, name, data
