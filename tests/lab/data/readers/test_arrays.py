"""Checked arrays of files as tensors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from graphmend.lab.data.readers.arrays import row_normalise, undirected_edges


def test_undirected_edges_are_sorted_without_loops_and_duplicates() -> None:
    source, target = np.array([2, 0, 1, 0, 3, 3], dtype=np.uint16), np.array([0, 1, 0, 1, 3, 2], dtype=np.uint16)
    edges = undirected_edges(Path("file"), source, target, 4)
    assert edges.tolist() == [[0, 0, 1, 2, 2, 3], [1, 2, 0, 0, 3, 2]] and edges.dtype == torch.int64
    assert undirected_edges(Path("file"), source[:0], target[:0], 4).shape == (2, 0)
    assert undirected_edges(Path("file"), source[4:5], target[4:5], 4).shape == (2, 0)


def test_row_normalisation_is_the_old_rule() -> None:
    x = torch.tensor([[2.0, 6.0], [0.25, 0.5], [0.0, 0.0], [-1.0, 3.0]])
    expected = torch.tensor([[0.25, 0.75], [0.25, 0.5], [0.0, 0.0], [-0.5, 1.5]])
    assert torch.equal(row_normalise(x), expected)
