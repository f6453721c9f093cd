"""Every data set that is here keeps the contract of a data set; the real ones have their published statistics."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data

from graphmend.engine.adjacency import Adjacency
from graphmend.errors import GraphMendError
from graphmend.files.files import digest
from graphmend.graph.checks import check_graph, check_no_duplicates
from graphmend.lab.data.generated.synthetic_domains import BASES
from graphmend.lab.data.published.fb100 import COLUMNS, code_union, fb100
from graphmend.lab.data.published.planetoid import planetoid, planetoid_graph
from graphmend.lab.data.readers.arrays import row_normalise
from graphmend.lab.data.registry import DATASETS, compare, load, measured, missing_files
from graphmend.lab.data.splits import Splits, node_mask
from support.processes import run_python
from support.real_data import home as home_fixture
from support.real_data import places as places_fixture
from support.untouched import assert_same, generator_states

home, places = home_fixture, places_fixture
pytestmark = pytest.mark.usefixtures("places")

REAL = ["cora", "citeseer", "pubmed", "cora-ood", "photo-ood", "twitch-e", "citation", "arxiv-votes", "arxiv-votes-ood"]
DIRECTED = ["twitch-e", "arxiv-votes-ood"]
EMBEDDED = ["digits", "breast-cancer", "wine"]
PARTS = ("train", "val", "test")


class Loaded(NamedTuple):
    name: str
    splits: Splits


@pytest.fixture(scope="module", params=[*REAL, *EMBEDDED, "csbm", pytest.param("fb100", marks=pytest.mark.slow)])
def loaded(request: pytest.FixtureRequest, places: Path | None) -> Iterator[Loaded]:
    name: str = request.param
    if missing_files(DATASETS[name]):
        pytest.skip(f"the files of {name} are not here")
    yield Loaded(name, load(name))


def graphs_of(splits: Splits) -> Iterator[tuple[str, int, Data]]:
    for part in PARTS:
        for index, data in enumerate(getattr(splits, part)):
            yield part, index, data


def test_the_catalogue_is_complete() -> None:
    wanted = ["cora-ood", "photo-ood", "twitch-e", "fb100", "elliptic", "arxiv-ood", "arxiv", *REAL, *EMBEDDED]
    wanted += ["csbm", "arxiv-size", "elliptic-size", "products-size"]
    assert set(wanted) <= set(DATASETS)
    for name, dataset in DATASETS.items():
        assert dataset.name == name and dataset.shift and dataset.metric in ("accuracy", "roc_auc", "macro_f1")
        assert dataset.generated or dataset.published
        assert dataset.generated == (name in ("csbm", "digits-shift") or "-size" in name)
        assert "-size" not in name or "generated" in dataset.note
    with pytest.raises(GraphMendError, match=r"unknown data set 'core'; choose one of arxiv, .*, wine"):
        load("core")
    with pytest.raises(GraphMendError, match="fb100 has no option tripel; its options are triple"):
        load("fb100", tripel=1)


def test_every_graph_is_sound(loaded: Loaded) -> None:
    splits = loaded.splits
    assert splits.metric == DATASETS[loaded.name].metric
    edges = None
    for _, _, data in graphs_of(splits):
        check_graph(data)
        assert data.x.dtype == torch.float32 and data.y.dtype == torch.int64 and data.y.dim() == 1
        if data.edge_index is not edges:  # the domains share theirs
            check_no_duplicates(Adjacency(data.edge_index, data.num_nodes))
            assert not data.has_self_loops() and data.is_undirected() == (loaded.name not in DIRECTED)
            edges = data.edge_index
        assert int(data.y.min()) >= 0 and int(data.y.max()) < splits.meta["classes"]
        assert bool(node_mask(data).any())


def test_no_node_is_in_two_parts(loaded: Loaded) -> None:
    splits = loaded.splits
    names = splits.meta.get("graphs")
    seen: dict[str, Tensor] = {}
    for part, index, data in graphs_of(splits):
        shared = names is None and loaded.name in EMBEDDED
        name = names[part][index] if names else "graph" if shared else f"{part} {index}"
        mask = node_mask(data)
        if name in seen:
            assert seen[name].numel() == mask.numel() and not bool((seen[name] & mask).any())
        seen[name] = seen.get(name, torch.zeros_like(mask)) | mask
        for other in PARTS:
            if f"{other}_mask" in data and "mask" in data:
                assert torch.equal(data[f"{other}_mask"], mask) == (other == part)


def test_the_statistics_are_the_published_ones(loaded: Loaded) -> None:
    dataset = DATASETS[loaded.name]
    rows = compare(measured(dataset, loaded.splits), dataset.published)
    known = [row for graph in rows.values() for row in graph.values() if row["published"] is not None]
    assert all(row["difference"] == 0 for row in known), rows
    assert dataset.generated or len(known) >= 3


def test_no_feature_gives_the_label_away(loaded: Loaded) -> None:
    """No column correlates fully with a class; the ten columns that depend on the label by design are left out."""
    data = loaded.splits.train[0]
    x = data.x[:, :-10] if loaded.name.endswith("-ood") else data.x
    classes = torch.eye(loaded.splits.meta["classes"])[data.y]
    classes = classes[:, classes.any(dim=0) & ~classes.all(dim=0)]
    centred = classes - classes.mean(dim=0)
    spread = x.std(dim=0, correction=0) * centred.std(dim=0, correction=0).unsqueeze(1) * len(x)
    correlation = (centred.t() @ x) / spread.clamp(min=1e-6)
    assert float(correlation.abs().max()) < 0.97


def hashed(name: str) -> str:
    splits = load(name, seed=1)
    tensors = {
        f"{part} {index} {key}": value
        for part, index, data in graphs_of(splits)
        for key, value in data.to_dict().items()
        if isinstance(value, Tensor)
    }
    return digest(tensors, json.dumps(splits.meta, default=str))


def test_the_same_seed_gives_the_same_data_in_every_process() -> None:
    names = [name for name in ("cora", "cora-ood", *EMBEDDED, "csbm") if not missing_files(DATASETS[name])]
    code = (
        "import sys, json, numpy, torch; numpy.random.seed(5); torch.manual_seed(5); import test_datasets_real as t;"
        "print(json.dumps([t.hashed(name) for name in sys.argv[1:]]))"
    )
    elsewhere = json.loads(run_python(code, *names))
    before = generator_states()
    assert elsewhere == [hashed(name) for name in names]
    assert_same(before, generator_states())


LABELS = {
    "cora": [351, 217, 418, 818, 426, 298, 180],
    "citeseer": [264, 590, 668, 701, 596, 508],
    "pubmed": [4103, 7739, 7875],
}


@pytest.mark.parametrize("name", LABELS)
def test_planetoid_labels_masks_and_normalisation(name: str, home: Path) -> None:
    splits = planetoid(name)
    data = splits.train[0]
    assert torch.bincount(data.y).tolist() == LABELS[name]
    assert torch.bincount(data.y[data.train_mask]).tolist() == [20] * len(LABELS[name])
    assert torch.equal(data.x, row_normalise(planetoid_graph(name).x))
    sums = data.x.double().sum(dim=1)
    assert float(sums.max()) <= 1 + 1e-5 and splits.meta["normalised"]


@pytest.mark.parametrize("loaded", ["cora-ood", "photo-ood"], indirect=True)
def test_the_domains_extend_the_base_graphs_unchanged(loaded: Loaded) -> None:
    base = BASES[loaded.name](None)
    for _, _, data in graphs_of(loaded.splits):
        assert torch.equal(data.x[:, :-10], base.x) and torch.equal(data.edge_index, base.edge_index)
    if loaded.name == "photo-ood":
        assert torch.bincount(base.y).tolist() == [369, 1686, 703, 915, 882, 823, 1941, 331]


@pytest.mark.parametrize("loaded", ["twitch-e"], indirect=True)
def test_twitch_keeps_the_direction_of_the_list(loaded: Loaded) -> None:
    forward = [129323, 31293, 49736, 98541, 28169, 31752, 58701]  # edges from a lower to a higher number
    for count, (_, _, data) in zip(forward, graphs_of(loaded.splits), strict=True):
        source, target = data.edge_index
        assert int((source < target).sum()) == count
        keys, reverse = source * data.num_nodes + target, target * data.num_nodes + source
        assert not bool(torch.isin(keys, reverse).any())


def test_the_widths_of_facebook(home: Path) -> None:
    if missing_files(DATASETS["fb100"]):
        pytest.skip("the files of fb100 are not here")
    first = "Amherst41 Bingham82 Brandeis99 Brown11 Caltech36 Carnegie49 Cornell5 Duke14 JohnsHopkins55 Princeton12 "
    with np.load(home / "facebook100.npz") as file:
        codes = code_union(file[f"{school}_local_info"] for school in (first + "Reed98 WashU32 Yale4").split())
    assert [len(values) for values in codes.values()] == [8, 371, 374, 290, 74, 9255]  # 10,372 as calculated before
    splits = fb100()
    assert splits.meta["name"] == "fb100-standin" and splits.meta["graphs"]["test"][1] == "Brown11"
    assert splits.meta["features"] == 13_027 and len(splits.meta["schools"]) == 18
    small = splits.train[1]
    assert small.x.shape == (769, 13_027) and torch.equal(small.x.sum(dim=1), torch.full((769,), float(len(COLUMNS))))
    assert splits.train[1] is small


def test_the_largest_school_needs_less_than_two_gigabytes(home: Path) -> None:
    if missing_files(DATASETS["fb100"]):
        pytest.skip("the files of fb100 are not here")
    tracemalloc.start()
    try:
        data = fb100().test[0]
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert data.num_nodes == 24_580 and data.x.numel() * 4 < peak < 2e9
