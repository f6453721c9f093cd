from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from graphmend.errors import GraphMendError
from graphmend.lab.data.generated import elliptic_size as elliptic_module
from graphmend.lab.data.generated.arxiv_size import arxiv_size, generate
from graphmend.lab.data.generated.elliptic_size import elliptic_size
from graphmend.lab.data.generated.products_size import products_size
from graphmend.lab.data.published.elliptic import grouped_scores
from graphmend.lab.data.splits import Splits
from support.graphs import homophily
from support.processes import run_python

LOADERS: dict[str, Callable[[], Splits]] = {
    "arxiv_size": lambda: arxiv_size(scale=0.01),
    "elliptic_size": lambda: elliptic_size(scale=0.01),
    "products_size": lambda: products_size(scale=0.001),
}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GRAPHMEND_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def fingerprint(splits: Splits) -> str:
    checksum = hashlib.sha256()
    for graph in [*splits.train, *splits.val, *splits.test]:
        for name in ("x", "edge_index", "y", "mask"):
            if name in graph:
                checksum.update(graph[name].numpy().tobytes())
    return checksum.hexdigest()


def test_same_data_across_processes_and_through_the_cache(tmp_path: Path) -> None:
    here = {name: load() for name, load in LOADERS.items()}
    assert all(splits.meta["generated"] is True for splits in here.values())
    expected = [fingerprint(splits) for splits in here.values()]
    assert [fingerprint(load()) for load in LOADERS.values()] == expected  # from the cache, where there is one
    code = "from test_generated import *; print(*[fingerprint(load()) for load in LOADERS.values()])"
    assert run_python(code, GRAPHMEND_CACHE=str(tmp_path / "other")).split() == expected


def test_arxiv_size_has_the_form_of_arxiv() -> None:
    arrays = generate(scale=0.05)
    y, (source, target), year = arrays["y"], arrays["edge_index"], arrays["year"]
    nodes = len(y)
    assert nodes == pytest.approx(169_343 * 0.05, abs=30)
    assert len(source) == pytest.approx(1_166_243 * 0.05, abs=200)
    assert arrays["x"].shape == (nodes, 128) and set(y) == set(range(40))
    assert np.unique(source * nodes + target).size == len(source)
    assert bool((year[source] >= year[target]).all())  # nobody cites the future
    assert (y[source] == y[target]).mean() == pytest.approx(0.65, abs=0.03)
    degree = np.bincount(np.concatenate([source, target]), minlength=nodes)
    assert degree.max() > 40 * np.median(degree)
    assert year.min() < 2000 and year.max() == 2020
    assert np.mean(year <= 2017) == pytest.approx(0.537, abs=0.005)
    assert np.mean(year == 2018) == pytest.approx(0.176, abs=0.005)


def test_arxiv_size_splits() -> None:
    splits = arxiv_size(scale=0.02)
    masks = [part[0].mask for part in (splits.train, splits.val, splits.test)]
    assert torch.stack(masks).sum(dim=0).eq(1).all()  # disjoint, and all nodes
    assert splits.train[0].is_undirected()
    periods = arxiv_size(scale=0.02, ood=True)
    sizes = [graph.num_nodes for graph in [*periods.train, *periods.val, *periods.test]]
    assert sizes == sorted(sizes) and len(sizes) == 5
    assert not periods.test[0].is_undirected()
    scored = [periods.train[0].num_nodes, *(int(g.mask.sum()) for g in [*periods.val, *periods.test])]
    assert sum(scored) == periods.test[-1].num_nodes == splits.test[0].num_nodes
    # the class frequencies drift
    first, last = (g.y.bincount(minlength=40) / g.num_nodes for g in (periods.train[0], periods.test[-1]))
    assert float((first - last).abs().sum()) > 0.1


def test_elliptic_size_end_to_end(cache: Path) -> None:
    splits = elliptic_size(scale=0.05)
    assert (len(splits.train), len(splits.val), len(splits.test)) == (5, 5, 33)
    assert splits.meta["name"] == "elliptic-size"
    assert splits.meta["nodes"] == pytest.approx(203_769 * 0.05, abs=50)
    assert splits.meta["edges"] == pytest.approx(234_355 * 0.05, abs=50)
    assert splits.meta["illicit"] / splits.meta["nodes"] == pytest.approx(0.022, abs=0.005)
    assert splits.meta["licit"] / splits.meta["nodes"] == pytest.approx(0.206, abs=0.02)
    for graph in splits.test:
        assert graph.num_features == 165
        assert torch.equal(graph.mask, graph.y >= 0)
    pooled = [sum(splits.test[index].num_nodes for index in group) for group in splits.meta["groups"]]
    assert pooled[1] == pytest.approx(13_310 * 0.05, abs=5)
    perfect = [torch.nn.functional.one_hot(graph.y.clamp(min=0), 2).float() for graph in splits.test]
    assert grouped_scores(perfect, splits) == [1.0] * 9
    folders = list((cache / "elliptic-size").iterdir())
    assert len(folders) == 1 and not folders[0].name.startswith(".")  # nothing temporary is left
    first = (folders[0] / "elliptic_bitcoin_dataset" / "elliptic_txs_features.csv").read_text().splitlines()[0]
    assert len(first.split(",")) == 167


def test_elliptic_size_leaves_nothing_behind_when_it_fails(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(elliptic_module, "write_files", full)
    with pytest.raises(GraphMendError, match="No space left"):
        elliptic_size(scale=0.01)
    assert list((cache / "elliptic-size").iterdir()) == []


def test_elliptic_size_written_by_another_process_meanwhile(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = elliptic_module.write_files
    target = cache / "elliptic-size" / "1-0.01-0"

    def race(folder: Path, *, scale: float, seed: int) -> None:
        write(folder, scale=scale, seed=seed)
        write(target / "elliptic_bitcoin_dataset", scale=scale, seed=seed)  # the other one is faster

    monkeypatch.setattr(elliptic_module, "write_files", race)
    assert len(elliptic_size(scale=0.01).test) == 33
    assert [folder.name for folder in target.parent.iterdir()] == [target.name]


def test_products_size_is_a_scaled_products() -> None:
    splits = products_size(scale=0.004)
    graph = splits.test[0]
    assert graph.num_nodes == round(2_449_029 * 0.004) and graph.num_edges == 2 * round(61_859_140 * 0.004)
    assert graph.num_features == 100 and int(graph.y.max()) == 46
    assert graph.is_undirected() and not graph.has_self_loops()
    key = graph.edge_index[1] * graph.num_nodes + graph.edge_index[0]
    assert bool((key[1:] > key[:-1]).all())  # sorted, each once
    assert homophily(graph) == pytest.approx(0.81, abs=1e-4)
    degree = torch.bincount(graph.edge_index[0], minlength=graph.num_nodes)
    assert degree.max() > 15 * degree.median()
    masks = torch.stack([part[0].mask for part in (splits.train, splits.val, splits.test)])
    assert masks.sum(dim=0).eq(1).all()
    assert masks.float().mean(dim=1).tolist() == pytest.approx([0.08, 0.02, 0.9], abs=1e-3)
    assert splits.train[0].edge_index is graph.edge_index  # held once


@pytest.mark.parametrize("load", [arxiv_size, elliptic_size, products_size])
@pytest.mark.parametrize("scale", [0.0, 1.5])
def test_bad_scale(load: Callable[..., Splits], scale: float) -> None:
    with pytest.raises(GraphMendError, match="scale must be in"):
        load(scale=scale)


@pytest.mark.slow
def test_full_arxiv_size_statistics() -> None:
    arrays = generate()
    y, (source, target) = arrays["y"], arrays["edge_index"]
    assert arrays["x"].shape == (169_343, 128) and len(source) == 1_166_243
    assert (y[source] == y[target]).mean() == pytest.approx(0.65, abs=0.02)
    degree = np.sort(np.bincount(np.concatenate([source, target]), minlength=len(y)))
    tail = degree[degree >= 50]
    exponent = 1 + tail.size / np.log(tail / 49.5).sum()  # maximum likelihood for a power-law tail
    assert 2.0 < exponent < 3.5
    splits = arxiv_size()
    assert [int(part[0].mask.sum()) for part in (splits.train, splits.val, splits.test)] == [90_941, 29_799, 48_603]


@pytest.mark.slow
def test_full_elliptic_size_statistics() -> None:
    splits = elliptic_size()
    assert (splits.meta["nodes"], splits.meta["edges"]) == (203_769, 234_355)
    assert splits.train[0].num_nodes == 6_048 and splits.val[0].num_nodes == 2_047
