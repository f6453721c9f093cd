"""The loader of the two citation networks on small files in the published format."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from scipy.io import savemat

from graphmend.errors import GraphMendError
from graphmend.graph.checks import check_graph
from graphmend.lab.data.published.citation import citation
from support.real_data import nowhere as nowhere_fixture

nowhere = nowhere_fixture


def write_citation(folder: Path) -> None:
    for name, seed in (("acmv9", 0), ("citationv1", 1)):
        rng = np.random.default_rng(seed)
        network = sp.csc_matrix(np.triu(rng.random((20, 20)) < 0.2) | np.eye(20, dtype=bool)).astype(np.uint8)
        group = np.zeros((20, 5), dtype=np.uint8)
        group[np.arange(20), np.arange(20) % 5] = 1
        group[0, 4] = 1  # two fields: the first counts
        savemat(
            folder / f"{name}.mat",
            {"network": network, "attrb": sp.csc_matrix(rng.integers(0, 3, (20, 7))), "group": group},
        )


def test_citation(nowhere: Path) -> None:
    write_citation(nowhere)
    there, back = citation(data_dir=nowhere), citation(data_dir=nowhere, source="Citationv1")
    for splits in (there, back):
        train, val, test = splits.train[0], splits.val[0], splits.test[0]
        for graph in (train, val, test):
            check_graph(graph)
            assert graph.is_undirected() and not graph.has_self_loops() and graph.x.shape == (20, 7)
        assert torch.equal(train.mask, ~val.mask) and int(val.mask.sum()) == 5 and "mask" not in test
        assert train.x is val.x and test.y.tolist() == [i % 5 for i in range(20)]
    assert torch.equal(there.train[0].x, back.test[0].x) and torch.equal(there.test[0].x, back.train[0].x)
    with pytest.raises(GraphMendError, match="unknown source graph 'dblp'; choose one of ACMv9, Citationv1"):
        citation(data_dir=nowhere, source="dblp")
    savemat(nowhere / "acmv9.mat", {"network": np.eye(3), "attrb": np.eye(3), "group": np.zeros((3, 5))})
    with pytest.raises(GraphMendError, match="does not give each of its 3 papers one of 5 fields"):
        citation(data_dir=nowhere)
