"""The names under which a data set's graphs appear in tables, and what is counted of them."""

from __future__ import annotations

import pytest
import torch

from graphmend.lab.data import Splits, load, masked
from graphmend.lab.data.registry import DATASETS, compare, measured, statistics
from support.graphs import labelled


def one_graph(**meta: object) -> Splits:
    data = labelled(20)
    number = torch.arange(20)
    data.train_mask, data.val_mask, data.test_mask = number < 4, (number >= 4) & (number < 10), number >= 10
    return Splits.transductive(data, meta=dict(meta))


def test_one_graph_under_three_masks_is_one_row_with_its_name() -> None:
    found = statistics(one_graph(name="breast_cancer"))
    assert list(found) == ["breast-cancer"]
    assert found["breast-cancer"] == {
        "nodes": 20,
        "edges": labelled(20).num_edges // 2,
        "features": 5,
        "classes": 3,
        "train": 4,
        "val": 6,
        "test": 10,
    }
    assert list(statistics(one_graph())) == ["graph"]


@pytest.mark.parametrize("kind", [torch.uint8, torch.int64])
def test_masks_of_zeros_and_ones_are_counted_like_booleans(kind: torch.dtype) -> None:
    splits = one_graph(name="one")
    for graphs in splits.parts.values():
        graphs[0].mask = graphs[0].mask.to(kind)
    assert statistics(splits) == statistics(one_graph(name="one"))


def test_several_graphs_are_numbered_within_their_part() -> None:
    splits = Splits([labelled(20)], [labelled(21)], [labelled(22), labelled(23)], meta={"name": "several"})
    assert list(statistics(splits)) == ["train 0", "val 0", "test 0", "test 1"]
    assert [row["nodes"] for row in statistics(splits).values()] == [20, 21, 22, 23]


def test_graphs_that_are_not_the_same_are_not_one() -> None:
    """Three graphs, one per part, with features of their own, and one graph that appears twice among the tests."""
    apart = Splits([labelled(20)], [labelled(20)], [labelled(20)], meta={"name": "three"})
    assert list(statistics(apart)) == ["train 0", "val 0", "test 0"]
    data = labelled(20)
    mask = torch.arange(20) < 5
    twice = Splits([masked(data, mask)], [masked(data, mask)], [masked(data, mask), masked(data, ~mask)])
    assert list(statistics(twice)) == ["train 0", "val 0", "test 0", "test 1"]


def test_names_that_a_data_set_gives_are_taken() -> None:
    names = {"train": ["Ann"], "val": ["Bob"], "test": ["Cleo", "Dan"]}
    splits = Splits([labelled(20)], [labelled(21)], [labelled(22), labelled(23)], meta={"graphs": names})
    assert list(statistics(splits)) == ["Ann", "Bob", "Cleo", "Dan"]


@pytest.mark.parametrize("name", ["digits", "breast-cancer", "wine"])
def test_measured_names_are_published_names(name: str) -> None:
    rows = compare(measured(DATASETS[name], load(name)), DATASETS[name].published)
    assert list(rows) == [name]
    assert [rows[name][key]["difference"] for key in ("nodes", "features", "classes")] == [0, 0, 0]
