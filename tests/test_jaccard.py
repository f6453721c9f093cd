from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

from graphmend.errors import GraphMendError
from graphmend.transforms import Jaccard, edge_similarity
from support.graphs import labelled, pairs


def test_jaccard_matches_the_formulas() -> None:
    data = labelled(30)
    source, target = data.edge_index
    x = data.x.double().numpy()
    norms = np.linalg.norm(x, axis=1)
    cosine = (x @ x.T) / (np.outer(norms, norms) + 1e-8)
    np.testing.assert_allclose(edge_similarity(data), cosine[source, target], rtol=1e-5)
    kept = Jaccard(0.8)(data)
    assert pairs(kept.edge_index) == {(i, j) for i, j in pairs(data.edge_index) if cosine[i, j] >= 0.8}
    assert kept.is_undirected()
    binary = copy.copy(data)
    binary.x = (data.x > 0.6).float()
    binary.x[0] = 0
    b = binary.x.bool().numpy()
    shared, union = (b[:, None] & b[None]).sum(-1), (b[:, None] | b[None]).sum(-1)
    jaccard = shared / np.maximum(union, 1)
    np.testing.assert_allclose(edge_similarity(binary), jaccard[source, target], rtol=1e-6)
    assert pairs(Jaccard(0.5)(binary).edge_index) == {(i, j) for i, j in pairs(data.edge_index) if jaccard[i, j] >= 0.5}
    assert not torch.allclose(edge_similarity(binary, "cosine"), edge_similarity(binary))
    with pytest.raises(GraphMendError, match="0 and 1"):
        Jaccard(kind="jaccard")(data)


def test_jaccard_keeps_weights_and_loops_and_works_in_chunks() -> None:
    data = labelled(loops=True)
    data.edge_weight = torch.rand(data.num_edges)
    before = data.clone()
    whole = Jaccard(0.9)(data)
    assert torch.equal(data.edge_index, before.edge_index)
    assert torch.equal(whole.edge_weight, data.edge_weight[edge_similarity(data) >= 0.9])
    assert Jaccard(1.0)(data).has_self_loops()
    assert torch.equal(edge_similarity(data, chunk_bytes=100), edge_similarity(data))


def test_bad_purifier() -> None:
    with pytest.raises(GraphMendError, match=r"Jaccard's threshold must be a number in \[-1, 1\] \(got 2.0\)"):
        Jaccard(2.0)
    with pytest.raises(GraphMendError, match="unknown kind 'dice'; choose one of auto, cosine, jaccard"):
        Jaccard(kind="dice")
