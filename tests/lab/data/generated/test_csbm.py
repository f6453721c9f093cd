from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from graphmend.errors import GraphMendError
from graphmend.lab.data.generated.csbm import Blocks, block_edges, block_features, csbm, distinct
from graphmend.lab.data.readers.arrays import undirected
from support.graphs import homophily
from support.refusals import assert_refused, wrong


def test_edges_are_undirected_distinct_and_as_many_as_asked_for() -> None:
    splits = csbm(nodes=500, degree=6.0, features=5)
    for graph in [*splits.train, *splits.val, *splits.test]:
        assert graph.x.shape == (500, 5) and graph.x.dtype == torch.float32
        assert graph.num_edges == 3000
        assert graph.is_undirected() and not graph.has_self_loops()
        key = graph.edge_index[1] * 500 + graph.edge_index[0]
        assert bool((key[1:] > key[:-1]).all())  # by target, then source, each once
    assert splits.meta["generated"] is True


@pytest.mark.parametrize("wanted", [0.0, 0.1, 0.5, 0.9, 1.0])
def test_homophily_is_the_one_asked_for(wanted: float) -> None:
    graph = csbm(nodes=4000, degree=10.0, homophily=wanted, features=1).train[0]
    assert homophily(graph) == pytest.approx(wanted, abs=1e-4)


def test_every_shift_moves_its_own_quantity_and_only_that() -> None:
    options = {"nodes": 4000, "classes": 3, "features": 8, "homophily": 0.8, "feature_signal": 0.5, "test_graphs": 1}
    plain = csbm(**options)
    moved = csbm(**options, feature_shift=2.0)
    rewired = csbm(**options, structure_shift=0.4)
    relabelled = csbm(**options, label_shift=1.0)
    resized = csbm(**options, test_nodes=1234)

    def centre(graph: Data) -> torch.Tensor:
        return graph.x.mean(dim=0)

    for part, strength in (("train", 0.0), ("val", 0.5), ("test", 1.0)):
        graph, base = getattr(moved, part)[0], getattr(plain, part)[0]
        assert float((centre(graph) - centre(base)).norm()) == pytest.approx(2.0 * strength, abs=1e-3)
        assert torch.equal(graph.edge_index, base.edge_index)
        graph = getattr(rewired, part)[0]
        assert homophily(graph) == pytest.approx(0.8 - 0.4 * strength, abs=1e-4)
        assert torch.equal(graph.x, base.x) and torch.equal(graph.y, base.y)
        counts = getattr(relabelled, part)[0].y.bincount(minlength=3).double()
        assert float(counts.max() / counts.min()) == pytest.approx(np.exp(2 * strength), rel=0.15)
    assert resized.test[0].num_nodes == 1234 and resized.val[0].num_nodes == 4000


def test_signal_is_the_distance_of_the_class_means() -> None:
    graph = csbm(nodes=20_000, classes=2, features=10, degree=1.0, feature_signal=3.0).train[0]
    means = torch.stack([graph.x[graph.y == label].mean(dim=0) for label in range(2)])
    assert means.norm(dim=1).tolist() == pytest.approx([3.0, 3.0], abs=0.1)
    assert float((graph.x - means[graph.y]).std()) == pytest.approx(1.0, abs=0.02)


def test_same_seed_same_data() -> None:
    one, same, other = (csbm(nodes=300, seed=seed).test for seed in (1, 1, 2))
    assert all(
        torch.equal(a.x, b.x) and torch.equal(a.edge_index, b.edge_index) for a, b in zip(one, same, strict=True)
    )
    assert not torch.equal(one[0].x, other[0].x)
    assert not torch.equal(one[0].x, one[1].x)  # the test graphs are different draws


def test_graphs_and_tasks() -> None:
    splits = csbm(nodes=50, classes=2, degree=2.0, train_graphs=2, val_graphs=3, test_graphs=1)
    assert (len(splits.train), len(splits.val), len(splits.test), splits.task) == (2, 3, 1, "binary")


def test_weights_make_hubs() -> None:
    y = np.arange(1000) % 5
    weight = np.ones(1000)
    weight[7] = 50.0
    keys = block_edges(Blocks(y, 5, weight), 5000, 0.8, (0,))
    degree = torch.bincount(undirected(keys, 1000)[0], minlength=1000)
    assert degree[7] > 10 * degree.float().mean()
    assert int(degree.sum()) == 10_000


def test_an_empty_class_is_never_drawn() -> None:
    blocks = Blocks(np.array([1, 1, 3, 3, 3]), 5)
    first, second = blocks.pairs(np.random.default_rng(0), 2000, 0.5)
    assert set(first) == set(second) == set(range(5))
    same = blocks.y[first] == blocks.y[second]
    assert same.mean() == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize("chunk", [1, 7, 64, 99, 100, 101])
def test_every_chunk_of_keys_is_drawn_from_a_stream_of_its_own(chunk: int) -> None:
    count = 100

    def draw(rng: np.random.Generator, size: int) -> np.ndarray[Any, Any]:
        assert 0 < size <= chunk
        return rng.integers(1 << 60, size=size)  # so many that none comes twice

    sizes = [min(chunk, count - start) for start in range(0, count, chunk)]
    streams = (np.random.default_rng((5, 2, 0, number)) for number in range(len(sizes)))
    expected = np.concatenate([draw(rng, size) for rng, size in zip(streams, sizes, strict=True)])
    assert distinct(draw, count, (5, 2), chunk=chunk).tolist() == sorted(expected.tolist())


def test_what_comes_twice_is_drawn_again_from_the_next_stream() -> None:
    def draw(rng: np.random.Generator, size: int) -> np.ndarray[Any, Any]:
        return rng.integers(-5, 40, size=size)

    keys = distinct(draw, 40, (1,), chunk=16)
    assert keys.tolist() == list(range(40))  # all there are, none negative


@pytest.mark.parametrize("rows", [1, 7, 50, 99, 100, 101])
def test_every_block_of_features_is_drawn_from_a_stream_of_its_own(rows: int) -> None:
    y, means = np.arange(100) % 3, np.arange(12.0).reshape(3, 4)
    blocks = [np.arange(start, min(start + rows, 100)) for start in range(0, 100, rows)]
    noise = [
        np.random.default_rng((9, number)).standard_normal((len(block), 4), dtype=np.float32)
        for number, block in enumerate(blocks)
    ]
    expected = np.concatenate(noise) + means[y].astype(np.float32)
    assert np.array_equal(block_features(y, means, (9,), rows=rows), expected)


@pytest.mark.parametrize("chunk", [37, 1 << 22])
def test_edges_have_the_same_distribution_in_chunks_and_at_once(chunk: int) -> None:
    """Every pair within a class is as likely as any other: 20 nodes, two classes, half of the pairs within each."""
    y = np.arange(20) % 2
    counts = np.zeros(400)
    for seed in range(400):
        keys = block_edges(Blocks(y, 2), 45, 1.0, (seed,), chunk=chunk)
        assert keys.size == 45
        counts[keys] += 1
    within = counts[counts > 0]
    assert within.size == 90  # 2 * (10 * 9 / 2)
    assert abs(within - 200).max() < 5 * 10  # five standard deviations of 400 draws with probability 1/2


@wrong(classes=[1], features=[0], nodes=[3], degree=[1000.0], homophily=[1.2], seed=[-1])
def test_wrong_options(setting: str, value: float) -> None:
    assert_refused(csbm, setting, value)


def test_what_cannot_be_drawn() -> None:
    with pytest.raises(GraphMendError, match="structure_shift"):
        csbm(homophily=0.3, structure_shift=0.5)
    with pytest.raises(GraphMendError, match="test must hold"):
        csbm(test_graphs=0)
    with pytest.raises(GraphMendError, match="no 4 distinct"):
        distinct(lambda rng, size: rng.integers(3, size=size), 4, (0,))
