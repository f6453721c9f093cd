"""ogbn-arxiv: one graph with the official split, and the cumulative graphs of five periods."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch_geometric.data import Data

from graphmend.errors import GraphMendError, require
from graphmend.files.files import Array, read_arrays
from graphmend.lab.data.catalogue import Dataset
from graphmend.lab.data.readers.arrays import row_normalise, undirected
from graphmend.lab.data.readers.csv_files import Member, read_table
from graphmend.lab.data.readers.sources import FETCH_AGAIN, Source, cached_arrays, download, find, stamps
from graphmend.lab.data.splits import MASKS, Splits

__all__ = ["DATASETS", "arxiv", "arxiv_ood", "measure_periods", "measure_split", "period_splits", "year_splits"]

SOURCE = Source("arxiv.zip", "https://snap.stanford.edu/ogb/data/nodeproppred/arxiv.zip")
RAW = ("edge", "node-feat", "node-label", "node_year")
LAYOUTS = (
    ("arxiv.npz",),
    *(tuple(f"{folder}/raw/{name}.csv.gz" for name in RAW) for folder in ("ogbn_arxiv", "arxiv")),
    (SOURCE.path,),
)
CUTS = (2017, 2018)  # last years of the official training and validation nodes
UPPER_YEARS = {"train": (2011,), "val": (2014,), "test": (2016, 2018, 2020)}


def arxiv(*, seed: int = 0, data_dir: str | Path | None = None) -> Splits:
    """One graph: papers until 2017 for training, of 2018 for validation, later ones for testing.

    `Hu et al. 2020 <https://arxiv.org/abs/2005.00687>`_. Citations become undirected edges, and the rows of features
    are divided by their sums (:func:`~graphmend.lab.data.row_normalise`).

    Args:
        seed: Accepted for uniformity; nothing here is drawn.
        data_dir: Where ``ogbn_arxiv/raw/*.csv.gz``, ``arxiv.zip`` or ``arxiv.npz`` (x, edge_index, y, year) is.
    """
    return year_splits(_load(data_dir), {"name": "arxiv", "generated": False})


def arxiv_ood(*, seed: int = 0, data_dir: str | Path | None = None) -> Splits:
    """Cumulative graphs of all papers until 2011 (training), 2014 (validation), 2016, 2018 and 2020 (tests).

    Split as in EERM and GTrans: edges are directed as listed, from the citing to the cited paper, and features are
    raw. All nodes of the training graph are trained on; of the others only the papers that are new (``mask``) count.

    Args:
        seed: Accepted for uniformity; nothing here is drawn.
        data_dir: As in :func:`arxiv`.
    """
    return period_splits(_load(data_dir), {"name": "arxiv-ood", "generated": False})


def year_splits(arrays: Mapping[str, Array], meta: Mapping[str, Any]) -> Splits:
    """The official split of ``x``, ``edge_index``, ``y`` and ``year``, symmetrised and row-normalised."""
    year, nodes = arrays["year"], len(arrays["x"])
    source, target = arrays["edge_index"].astype(np.int64)
    masks = dict(zip(MASKS, (year <= CUTS[0], (year > CUTS[0]) & (year <= CUTS[1]), year > CUTS[1]), strict=True))
    for name, mask in masks.items():
        years = f"{year.min()}..{year.max()}"
        require(bool(mask.any()), f"{name} is empty; the years must reach beyond {CUTS} (got {years})")
    graph = Data(
        x=row_normalise(torch.from_numpy(arrays["x"]).double()).float(),
        edge_index=undirected(source * nodes + target, nodes, sort_by_row=False),
        y=torch.from_numpy(arrays["y"].astype(np.int64)),
        **{name: torch.from_numpy(mask) for name, mask in masks.items()},
    )
    return Splits.transductive(graph, meta={**meta, **_facts(arrays), "cuts": CUTS})


def period_splits(arrays: Mapping[str, Array], meta: Mapping[str, Any]) -> Splits:
    """The cumulative directed graphs of :data:`UPPER_YEARS`; ``mask`` selects the years since the graph before."""
    uppers = [year for years in UPPER_YEARS.values() for year in years]
    train, val, *test = (_until(arrays, *period) for period in zip([None, *uppers], uppers, strict=False))
    return Splits([train], [val], test, meta={**meta, **_facts(arrays), "upper_years": UPPER_YEARS})


def _until(arrays: Mapping[str, Array], lower: int | None, upper: int) -> Data:
    """The graph of all papers until ``upper``, its nodes sorted by total degree, descending and stable."""
    kept = arrays["year"] <= upper
    edges = arrays["edge_index"][:, kept[arrays["edge_index"]].all(axis=0)].astype(np.int64)
    degree = np.bincount(edges.reshape(-1), minlength=kept.size)
    nodes = np.flatnonzero(kept)
    nodes = nodes[np.argsort(-degree[nodes], kind="stable")]
    place = np.full(kept.size, -1)
    place[nodes] = np.arange(nodes.size)
    year = torch.from_numpy(arrays["year"][nodes].astype(np.int64))
    graph = Data(
        x=torch.from_numpy(arrays["x"][nodes]),
        edge_index=torch.from_numpy(place[edges]),
        y=torch.from_numpy(arrays["y"][nodes].astype(np.int64)),
        year=year,
    )
    if lower is not None:
        graph.mask = year > lower
    scored = nodes.size if lower is None else int(graph.mask.sum())
    require(scored > 0, f"no paper has a year in ({lower}, {upper}]; the years must cover the periods until 2020")
    return graph


def _facts(arrays: Mapping[str, Array]) -> dict[str, Any]:
    return {
        "classes": int(arrays["y"].max()) + 1,
        "nodes": len(arrays["x"]),
        "directed_edges": arrays["edge_index"].shape[1],
    }


def _load(data_dir: str | Path | None) -> dict[str, Array]:
    """``x``, ``edge_index``, ``y`` and ``year``, from the first layout that is available."""
    path = find([layout[0] for layout in LAYOUTS], data_dir) or download(SOURCE)
    if path.suffix == ".npz":
        return _checked(path, read_arrays(path))
    files = [path] if path.suffix == ".zip" else sorted(path.parents[1].glob("*/**/*.csv.gz"))
    return cached_arrays("arxiv", f"1 {stamps(files)}", lambda: _parse(path))


def _parse(path: Path) -> dict[str, Array]:
    """The arrays of an archive, or of the unpacked folder that holds the file ``path``."""
    if path.suffix == ".zip":
        require(zipfile.is_zipfile(path), f"{path} is not a complete zip archive; {FETCH_AGAIN}")
        root: Member = zipfile.Path(path, "arxiv/")
    else:
        root = path.parents[1]
    raw = root / "raw"
    arrays = {
        "edge_index": read_table(raw / "edge.csv.gz", np.int64, ndmin=2).T,
        "x": read_table(raw / "node-feat.csv.gz", np.float32, ndmin=2),
        "y": read_table(raw / "node-label.csv.gz", np.int64, ndmin=2)[:, 0],
        "year": read_table(raw / "node_year.csv.gz", np.int64, ndmin=2)[:, 0],
    }
    for name, count in (("num-node-list", len(arrays["x"])), ("num-edge-list", arrays["edge_index"].shape[1])):
        file = raw / f"{name}.csv.gz"
        promised = int(read_table(file, np.int64).sum()) if file.exists() else count
        require(promised == count, f"{file} promises {promised} rows, but there are {count}; fetch the files again")
    arrays = _checked(path, arrays)
    year = arrays["year"]
    official = {"train": year <= CUTS[0], "valid": year == CUTS[1], "test": year > CUTS[1]}
    for name, expected in official.items():
        file = root / "split" / "time" / f"{name}.csv.gz"
        if file.exists():
            listed = np.sort(read_table(file, np.int64))
            agrees = np.array_equal(listed, np.flatnonzero(expected))
            require(agrees, f"{file} is not the split by year that node_year.csv.gz gives; fetch the files again")
    return arrays


def _checked(path: Path, arrays: Mapping[str, Array]) -> dict[str, Array]:
    names = ("x", "edge_index", "y", "year")
    missing = [name for name in names if name not in arrays]
    require(not missing, f"{path} has no array {', '.join(missing)}; it must hold x, edge_index, y and year")
    x, edges, y, year = (arrays[name] for name in names)
    nodes = len(x)
    require(x.ndim == 2, f"the features in {path} must have shape (N, F) (got {x.shape}); {FETCH_AGAIN}")
    y, year = y.reshape(-1), year.reshape(-1)
    require(
        len(y) == nodes and len(year) == nodes,
        f"{path} has {nodes} rows of features, {len(y)} labels and {len(year)} years; {FETCH_AGAIN}",
    )
    require(edges.ndim == 2 and len(edges) == 2, f"edges in {path} must be pairs (got {edges.shape}); {FETCH_AGAIN}")
    if edges.size and (edges.min() < 0 or edges.max() >= nodes):
        wrong = edges.min() if edges.min() < 0 else edges.max()
        raise GraphMendError(f"an edge in {path} names node {wrong}, but nodes are 0..{nodes - 1}; {FETCH_AGAIN}")
    require(bool(np.isfinite(x).all()), f"{path} holds NaN or infinite features; {FETCH_AGAIN}")
    return {"x": x.astype(np.float32, copy=False), "edge_index": edges, "y": y, "year": year}


def _measure(splits: Splits) -> dict[str, dict[str, Any]]:
    statistics = {key: splits.meta[key] for key in ("nodes", "directed_edges", "classes")}
    return {"all": {**statistics, "features": splits.test[-1].num_features}}


def measure_split(splits: Splits) -> dict[str, dict[str, Any]]:
    """The statistics of :func:`year_splits`."""
    statistics = _measure(splits)
    statistics["all"]["stored_edges"] = splits.test[0].num_edges
    return statistics | {part: {"nodes": int(graphs[0].mask.sum())} for part, graphs in splits.parts.items()}


def measure_periods(splits: Splits) -> dict[str, dict[str, Any]]:
    """The statistics of :func:`period_splits`."""
    graphs = [*splits.train, *splits.val, *splits.test]
    years = [year for part in UPPER_YEARS.values() for year in part]
    return _measure(splits) | {f"until {y}": {"nodes": g.num_nodes} for y, g in zip(years, graphs, strict=True)}


_ALL = {"nodes": 169_343, "directed_edges": 1_166_243, "features": 128, "classes": 40}
DATASETS = {
    "arxiv": Dataset(
        "arxiv",
        "none (one graph, split by year)",
        arxiv,
        files=LAYOUTS,
        published={
            "all": {**_ALL, "stored_edges": 2_315_598},
            "train": {"nodes": 90_941},
            "val": {"nodes": 29_799},
            "test": {"nodes": 48_603},
        },
        measure=measure_split,
    ),
    "arxiv-ood": Dataset(
        "arxiv-ood",
        "time: papers of later years",
        arxiv_ood,
        files=LAYOUTS,
        published={"all": _ALL, "until 2018": {"nodes": 120_740}, "until 2020": {"nodes": 169_343}},
        measure=measure_periods,
        note="cumulative directed graphs; only the papers of the period are scored",
    ),
}
