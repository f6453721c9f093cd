"""The patch of a heterogeneous graph: bit for bit in both directions, on its own graph only, and on disk."""

from __future__ import annotations

import copy
import tempfile
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.data import HeteroData

from graphmend.errors import GraphMendError
from graphmend.hetero import HeteroPatch
from support.hetero_cases import contents, papers

pytestmark = pytest.mark.usefixtures("one_thread")


@st.composite
def cases(draw: st.DrawFn) -> tuple[HeteroData, HeteroPatch, HeteroData]:
    """A graph of up to three node types with all kinds of edge attributes, and a change of it."""
    rng = torch.Generator().manual_seed(draw(st.integers(0, 2**30)))
    kinds = ["a", "b c", "node_type"][: draw(st.integers(1, 3))]
    data = HeteroData()
    x = {}
    for kind in kinds:
        n, width = draw(st.integers(1, 5)), draw(st.integers(1, 3))
        data[kind].x = torch.randn(n, width, generator=rng).to(draw(st.sampled_from([torch.float32, torch.float64])))
        data[kind].name = kind
        if draw(st.booleans()):
            data[kind].x[0, 0] = torch.nan
        if draw(st.booleans()) or width > 1:
            new = data[kind].x.clone()
            new[draw(st.integers(0, n - 1))] = draw(st.sampled_from([0.0, -0.0, 1e-45, 3.5]))
            x[kind] = new
    removed = {}
    for number in range(draw(st.integers(1, 4))):
        source, target = draw(st.sampled_from(kinds)), draw(st.sampled_from(kinds))
        edges = draw(st.integers(0 if number else 1, 6))
        kind = (source, f"r{number}", target)
        ends = [torch.randint(data[end].num_nodes, (edges,), generator=rng) for end in (source, target)]
        data[kind].edge_index = torch.stack(ends)
        if draw(st.booleans()):
            data[kind].edge_weight = torch.rand(edges, generator=rng)
        if draw(st.booleans()):
            data[kind].edge_attr = torch.rand(edges, 2, generator=rng)
        if draw(st.booleans()):
            data[kind].since = torch.arange(edges)
        if draw(st.booleans()):
            data[kind].label = [f"e{k}" for k in range(edges)]
        keep = torch.rand(edges, generator=rng) < 0.6
        removed[kind] = (~keep).nonzero().view(-1)
    before = contents(data)
    patch, mended = HeteroPatch.make(data, x, removed)
    assert contents(data) == before
    return data, patch, mended


@settings(deadline=None, max_examples=60)
@given(cases())
def test_it_leads_there_and_back_bit_for_bit(case: tuple[HeteroData, HeteroPatch, HeteroData]) -> None:
    data, patch, mended = case
    with tempfile.TemporaryDirectory() as folder:
        patch.save(Path(folder) / "p.safetensors")
        stored = HeteroPatch.load(Path(folder) / "p.safetensors")
    for own in (patch, stored):
        assert contents(own.apply(data)) == contents(mended)
        assert contents(own.revert(mended)) == contents(data)
        assert own.summary() == patch.summary()
    for kind, one in patch.edges.items():
        assert mended[kind].edge_index.size(1) + one.num_removed == data[kind].edge_index.size(1)


def test_it_refuses_another_graph() -> None:
    data = papers()
    x = data["author"].x.clone()
    x[0] = 7.0
    patch, mended = HeteroPatch.make(data, {"author": x}, {})
    other = copy.copy(data)
    other["paper"].x = data["paper"].x + 1
    with pytest.raises(GraphMendError, match="paper: this patch"):
        patch.apply(other)
    with pytest.raises(GraphMendError, match="author: this patch"):
        patch.apply(mended)
    with pytest.raises(GraphMendError, match="author: this patch"):
        patch.revert(data)
    less = copy.copy(data)
    del less["paper", "cites", "paper"]
    with pytest.raises(GraphMendError, match="paper__cites__paper"):
        patch.apply(less)
