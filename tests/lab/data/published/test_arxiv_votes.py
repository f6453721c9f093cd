"""ogbn-arxiv with substitute features, on a file of ten papers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from graphmend.errors import GraphMendError
from graphmend.lab.data import row_normalise
from graphmend.lab.data.published.arxiv_votes import DATASETS, arxiv_votes, arxiv_votes_ood
from support.real_data import nowhere as nowhere_fixture
from support.small_files import EDGES, YEARS

nowhere = nowhere_fixture
LABELS = [0, 1, 2, 3, 0, 1, 2, 3, 0, 39]
SPLIT = [0, 0, 0, 0, 0, 0, 1, 2, 2, 0]
VOTES = np.full((10, 5), -1, dtype=np.int8)
VOTES[:, 0] = LABELS
VOTES[0] = [3, 1, 4, 1, 39]


def write(folder: Path, **changed: Any) -> Path:
    arrays = {
        "edges": np.array(EDGES, dtype=np.int32).T,
        "y": np.array(LABELS, dtype=np.uint8),
        "year": np.array(YEARS, dtype=np.uint16),
        "split": np.array(SPLIT, dtype=np.uint8),
        "votes": VOTES,
    }
    np.savez(folder / "arxiv_votes.npz", **{**arrays, **changed})
    return folder


def test_votes_become_features(nowhere: Path) -> None:
    last = arxiv_votes_ood(data_dir=write(nowhere)).test[-1]
    row = last.x[(last.year == 2010).nonzero().view(-1)]
    assert row.shape == (1, 40)
    found = {int(column): float(row[0, column]) for column in row[0].nonzero()}
    assert found == pytest.approx({3: 1.0, 1: 1 / 2 + 1 / 4, 4: 1 / 3, 39: 1 / 5})
    assert float(last.x[last.y == 39].sum()) == 1.0


def test_the_split_and_the_periods_are_those_of_arxiv(nowhere: Path) -> None:
    write(nowhere)
    graph = arxiv_votes(data_dir=nowhere).test[0]
    assert graph.is_undirected() and graph.num_edges == 2 * len({frozenset(edge) for edge in EDGES})
    masks = (graph.train_mask, graph.val_mask, graph.test_mask)
    assert [[int(mask[node]) for mask in masks].index(1) for node in range(10)] == SPLIT
    assert torch.equal(graph.x, row_normalise(graph.x)) and float(graph.x.sum(1).max()) <= 1 + 1e-6
    splits = arxiv_votes_ood(data_dir=nowhere)
    graphs = [*splits.train, *splits.val, *splits.test]
    assert [data.num_nodes for data in graphs] == [3, 5, 6, 8, 10]
    last = splits.test[-1]
    assert last.num_edges == len(EDGES) and sorted(last.year[last.mask].tolist()) == [2019, 2020]


def test_measured_statistics_have_the_published_keys(nowhere: Path) -> None:
    write(nowhere)
    same = sum(LABELS[one] == LABELS[other] for one, other in EDGES)
    for dataset in DATASETS.values():
        assert dataset.measure is not None and "substitutes" in dataset.note
        measured = dataset.measure(dataset.load(data_dir=nowhere))
        assert measured["all"]["homophily"] == round(same / len(EDGES), 3)
        for name, values in dataset.published.items():
            assert set(values) <= set(measured[name])


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"split": np.zeros(10, dtype=np.uint8)}, "a split that its years do not give"),
        ({"votes": np.full((10, 5), 40, dtype=np.int8)}, "not one of 40"),
        ({"votes": np.full((10, 5), -2, dtype=np.int8)}, "not one of 40"),
        ({"votes": VOTES[:9]}, "does not give each of its 9 papers"),
        ({"edges": np.array([[0], [10]])}, "names node 10"),
        ({"edges": np.zeros((3, 2), dtype=np.int32)}, r"not \(2, E\)"),
    ],
)
def test_damaged_files(nowhere: Path, changed: dict[str, Any], message: str) -> None:
    with pytest.raises(GraphMendError, match=message):
        arxiv_votes(data_dir=write(nowhere, **changed))
