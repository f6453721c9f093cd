"""Heterogeneous graphs on disk: read as they were written, in both formats, and refused with the type and reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from graphmend import GraphMendError, load_graph, save_graph
from support.hetero_cases import contents, papers, with_gaps


@pytest.mark.parametrize("ending", ["npz", "pt"])
def test_a_graph_is_read_as_it_was_written(ending: str, tmp_path: Path) -> None:
    data: Any = with_gaps(papers())
    data["paper", "cites", "paper"].edge_attr = torch.rand(data["paper", "cites", "paper"].edge_index.size(1), 2)
    data["author"].x = data["author"].x.to(torch.bfloat16)
    data["author"].names = ["a", "b"]
    data["venue"].num_nodes = 3
    data.title = "papers"
    path = tmp_path / f"g.{ending}"
    before = {key: str(value) for key, value in contents_of(data).items()}
    save_graph(path, data)
    again: Any = load_graph(path)
    assert {key: str(value) for key, value in contents_of(again).items()} == before
    assert again.edge_types == data.edge_types and again.title == "papers" and again["venue"].num_nodes == 3


def contents_of(data: Any) -> dict[Any, Any]:
    return {
        (store._key, name): (value.dtype, value.tolist()) if isinstance(value, torch.Tensor) else value
        for store in data.stores
        for name, value in store.items()
    }


def test_arrays_from_elsewhere_are_enough(tmp_path: Path) -> None:
    arrays = {
        "paper.x": np.ones((3, 2), dtype=np.float32),
        "author.x": np.ones((2, 4), dtype=np.float32),
        "author__writes__paper.edge_index": np.array([[0, 1], [2, 0]], dtype=np.int32),
    }
    np.savez(tmp_path / "g.npz", **arrays)
    data: Any = load_graph(tmp_path / "g.npz")
    assert data["author", "writes", "paper"].edge_index.dtype == torch.long and data["paper"].x.shape == (3, 2)


WRONG = {
    "no such node": ({"a__r__b.edge_index": np.array([[9], [0]])}, "a__r__b.*node 9"),
    "half an edge type": ({"a__r.edge_index": np.array([[0], [0]])}, "a__r.edge_index.*belongs to no"),
    "no edges": ({}, "no edges"),
    "a name of PyG's": ({"a.keys": np.ones(3)}, "cannot have the name 'keys'"),
}


@pytest.mark.parametrize("case", sorted(WRONG))
def test_what_is_no_graph_is_refused(case: str, tmp_path: Path) -> None:
    arrays, words = WRONG[case]
    np.savez(tmp_path / "g.npz", **{"a.x": np.ones((3, 2)), "b.x": np.ones((2, 2))}, **arrays)
    with pytest.raises(GraphMendError, match=words):
        load_graph(tmp_path / "g.npz")


def test_a_type_that_a_file_cannot_name_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    data: Any = papers()
    with pytest.warns(UserWarning, match="double underscores"):
        data["a__b"].x = torch.ones(2, 2)
    with pytest.raises(GraphMendError, match="a__b"):
        save_graph(tmp_path / "g.pt", data)
    assert not list(tmp_path.iterdir()) and contents(data)
