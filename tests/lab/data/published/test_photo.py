"""The Amazon-Photo loader on a small file in the published format."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from graphmend.errors import GraphMendError
from graphmend.graph.checks import check_graph
from graphmend.lab.data.published.photo import photo_graph
from support.graphs import pairs
from support.real_data import nowhere as nowhere_fixture

nowhere = nowhere_fixture


def test_photo(nowhere: Path) -> None:
    adjacency = sp.csr_matrix(np.array([[1, 1, 0, 0], [1, 0, 0, 1], [0, 0, 0, 0], [0, 0, 0, 0]], dtype=np.float32))
    attributes = sp.csr_matrix(np.array([[1, 0, 2], [0, 0, 0], [0, 1, 0], [1, 1, 1]], dtype=np.float32))
    arrays = {
        f"{kind}_{part}": getattr(matrix, part)
        for kind, matrix in (("adj", adjacency), ("attr", attributes))
        for part in ("data", "indices", "indptr", "shape")
    }
    names = np.array(["lens", None], dtype=object)  # the published file holds such pickles; they are not touched
    np.savez(nowhere / "amazon_electronics_photo.npz", **arrays, labels=np.array([0, 7, 3, 1]), idx_to_attr=names)
    graph = photo_graph(nowhere)
    check_graph(graph)
    assert torch.equal(graph.x, torch.from_numpy((attributes.toarray() > 0).astype(np.float32)))
    assert pairs(graph.edge_index) == {(0, 1), (1, 3)} and graph.num_edges == 4
    assert graph.y.tolist() == [0, 7, 3, 1]
    np.savez(nowhere / "amazon_electronics_photo.npz", labels=np.zeros(4))
    with pytest.raises(GraphMendError, match="has no array adj_data and no adj_indices"):
        photo_graph(nowhere)
