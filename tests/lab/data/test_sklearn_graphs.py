from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from torch import Tensor

from graphmend.errors import GraphMendError
from graphmend.lab.data import embedded, knn_graph
from graphmend.lab.data.sklearn_graphs import EMBEDDED, stratified_parts

LOADERS = {"digits": load_digits, "breast_cancer": load_breast_cancer, "wine": load_wine}
SIZES = {"digits": (1797, 64, 10), "breast_cancer": (569, 30, 2), "wine": (178, 13, 3)}


def brute_force(x: Tensor, k: int) -> set[tuple[int, int]]:
    """Neighbours one node at a time by (distance, index), from the definition."""
    points = x.double().numpy()
    edges: set[tuple[int, int]] = set()
    for i in range(len(points)):
        distance = [(float(((points[i] - points[j]) ** 2).sum()), j) for j in range(len(points)) if j != i]
        for _, j in sorted(distance)[:k]:
            edges |= {(i, j), (j, i)}
    return edges


@settings(max_examples=50, deadline=None)
@given(st.integers(2, 25), st.integers(1, 4), st.integers(1, 24), st.integers(0, 10_000))
def test_knn_graph_equals_brute_force(nodes: int, width: int, k: int, seed: int) -> None:
    k = min(k, nodes - 1)
    x = torch.randint(0, 3, (nodes, width), generator=torch.Generator().manual_seed(seed)).float()  # ties, twins
    edge_index = knn_graph(x, k)
    pairs = [tuple(pair) for pair in edge_index.t().tolist()]
    assert pairs == sorted(brute_force(x, k))  # also: sorted, no duplicates, no loops
    assert edge_index.dtype == torch.long


def test_knn_graph_in_several_blocks_of_rows() -> None:
    x = torch.rand(100, 3, generator=torch.Generator().manual_seed(0))
    whole = knn_graph(x, 5)
    assert torch.equal(knn_graph(x, 5, block_rows=7), whole)
    assert set(map(tuple, whole.t().tolist())) == brute_force(x, 5)


CASES: dict[str, tuple[Callable[[], object], str]] = {
    "one dimension": (lambda: knn_graph(torch.zeros(4), 1), r"shape \(N, F\)"),
    "no neighbours": (lambda: knn_graph(torch.zeros(4, 2), 0), r"1\.\.3"),
    "too many neighbours": (lambda: knn_graph(torch.zeros(4, 2), 4), "got 4"),
    "nan": (lambda: knn_graph(torch.full((4, 2), torch.nan), 1), "NaN"),
    "fractions": (lambda: stratified_parts(np.array([0, 1]), (0.5, 0.4), seed=0), "sum to 1"),
    "unknown": (lambda: embedded("iris"), "breast_cancer, digits, wine"),
}


@pytest.mark.parametrize(("call", "said"), CASES.values(), ids=CASES)
def test_what_it_cannot_work_with_is_named(call: Callable[[], object], said: str) -> None:
    with pytest.raises(GraphMendError, match=said):
        call()


@pytest.mark.parametrize("name", sorted(EMBEDDED))
def test_splits(name: str) -> None:
    splits = embedded(name)
    parts = [splits.train, splits.val, splits.test]
    assert [len(part) for part in parts] == [1, 1, 1]
    train, val, test = (part[0] for part in parts)
    nodes, width, classes = SIZES[name]
    assert tuple(train.x.shape) == (nodes, width)
    assert train.x.dtype == torch.float32
    assert splits.meta["classes"] == classes == int(train.y.max()) + 1
    assert splits.task == ("binary" if classes == 2 else "multiclass")
    for other in (val, test):
        assert other.x is train.x
        assert other.edge_index is train.edge_index
        assert other.y is train.y
    counted = torch.stack([train.mask, val.mask, test.mask]).long()
    assert torch.equal(counted.sum(0), torch.ones(nodes, dtype=torch.long))  # disjoint, complete
    for data, mask in ((train, "train_mask"), (val, "val_mask"), (test, "test_mask")):
        assert torch.equal(data.mask, train[mask])
    for label in range(classes):  # stratified: to the node
        members = int((train.y == label).sum())
        for mask, fraction in ((train.mask, 0.2), (val.mask, 0.4), (test.mask, 0.4)):
            assert abs(int((mask & (train.y == label)).sum()) - fraction * members) <= 1


@pytest.mark.parametrize("name", sorted(EMBEDDED))
def test_features(name: str) -> None:
    raw, labels = LOADERS[name](return_X_y=True)
    data = embedded(name).train[0]
    assert data.y.tolist() == labels.tolist()
    if name == "digits":
        assert torch.equal(data.x, torch.from_numpy(raw / 16).float())
        assert (data.x.min().item(), data.x.max().item()) == (0.0, 1.0)
        return
    train = raw[data.train_mask.numpy()]
    expected = (raw - train.mean(0)) / train.std(0)
    np.testing.assert_allclose(data.x.numpy(), expected, rtol=1e-4, atol=1e-5)
    # training nodes alone have mean 0 and deviation 1: the others were not looked at
    np.testing.assert_allclose(data.x[data.train_mask].mean(0).numpy(), 0, atol=1e-5)
    assert data.x.mean(0).abs().max() > 1e-3


@pytest.mark.parametrize("name", ["breast_cancer", "wine"])
def test_graph_is_the_knn_graph_of_the_features(name: str) -> None:
    data = embedded(name, neighbours=7).train[0]
    assert torch.equal(data.edge_index, knn_graph(data.x, 7))
    assert set(map(tuple, data.edge_index.t().tolist())) == brute_force(data.x, 7)
    assert not data.has_self_loops()
    assert data.is_undirected()
    assert data.is_coalesced()
