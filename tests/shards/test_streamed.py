"""A large mapped graph is worked on some edges and rows at a time, with large arrays on the disk: same cards, verdicts
and patches as in memory."""

from __future__ import annotations

import importlib
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch_geometric.nn as pyg
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch_geometric.data import Data

from graphmend import FrozenGNN, GraphMendError, card, mend
from graphmend.adapters import Align, Impute, Purify
from graphmend.cards.sums import Groups, RowSums
from graphmend.engine.streaming import StreamedAdjacency, StreamedHops
from graphmend.scratch import large_empty, row_ranges, scratch_in
from graphmend.shards import open_graph, pack

COLUMNS, CLASSES = 4, 3
SMALL = {
    "scratch": {"LEAST": 1, "ROWS": 64},
    "cards.rows": {"BLOCK": 80},
    "cards.edges": {"BLOCK": 80},
    "cards.moments": {"BLOCK": 80},
    "adapters.missing": {"BLOCK": 80, "EDGES": 50},
    "adapters.impute": {"BLOCK": 80},
    "adapters.purify": {"EDGES": 50},
    "adapters.alignment": {"ROWS": 64},
    "engine.linear_maps": {"ROWS": 64},
    "engine.streaming": {"ROWS": 64},
    "graph.canonical": {"EDGES": 50},
    "graph.edits": {"EDGES": 50, "ROWS": 64},
    "graph.mapped": {"LARGE": 1},
    "model.sharded": {"MOST": 1},
    "results.patch": {"ROWS": 64},
    "outputs": {"ROWS": 64},
}
"""What counts as many, made small."""


@pytest.fixture
def streams(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Everything goes in small blocks, and every array is large."""
    for module, names in SMALL.items():
        for name, value in names.items():
            monkeypatch.setattr(importlib.import_module(f"graphmend.{module}"), name, value)
    yield


def stacked(conv: type) -> nn.Module:
    first, second = ("x, edge_index -> x",) * 2
    return pyg.Sequential("x, edge_index", [(conv(COLUMNS, 8), first), nn.ReLU(), (conv(8, CLASSES), second)])


MODELS = {
    "GCN": lambda: pyg.GCN(COLUMNS, 8, 2, CLASSES, norm="batch_norm"),
    "SAGE": lambda: pyg.GraphSAGE(COLUMNS, 8, 2, CLASSES),
    "GIN": lambda: pyg.GIN(COLUMNS, 8, 2, CLASSES),
    "GraphConv": lambda: stacked(pyg.GraphConv),
    "TAG": lambda: stacked(pyg.TAGConv),
    "SG": lambda: stacked(pyg.SGConv),
}


def model_of(name: str) -> nn.Module:
    torch.manual_seed(0)
    return MODELS[name]().eval()


def graph(seed: int, both: bool = True, nodes: int = 150) -> Data:
    generator = torch.Generator().manual_seed(seed)
    edges = torch.randint(nodes, (2, 4 * nodes), generator=generator)
    edges = torch.cat([edges, edges.flip(0)], dim=1) if both else edges
    edges = torch.cat([edges, torch.arange(5).expand(2, -1)], dim=1)
    edges = edges[:, (edges[1] * nodes + edges[0]).argsort(stable=True)]
    return Data(x=torch.rand(nodes, COLUMNS, generator=generator), edge_index=edges, y=torch.arange(nodes) % CLASSES)


def broken(data: Data, fault: str) -> Data:
    if fault == "rows":
        data.x[:9] *= 1000
    if fault == "shift":
        data.x = data.x * 0.3 + 2
    if fault == "missing":
        data.x[torch.rand(data.x.shape, generator=torch.Generator().manual_seed(0)) < 0.1] = torch.nan
    return data


@pytest.mark.parametrize("both", [True, False], ids=["both directions", "directed"])
@pytest.mark.parametrize("name", MODELS)
def test_representations_are_those_in_memory(name: str, both: bool, tmp_path: Path, streams: None) -> None:
    data, model = graph(1, both), model_of(name)
    with FrozenGNN(model, data) as frozen:
        expected = frozen.observe(data)
    mapped = open_graph(pack(tmp_path / "g", data))
    with FrozenGNN(model, mapped) as frozen:
        assert frozen.sharding.streams(mapped, mapped.x)
        found = frozen.observe(mapped)
    for part in ("first", "z", "logits"):
        assert torch.allclose(getattr(found, part), getattr(expected, part), rtol=1e-4, atol=1e-5), part


@pytest.mark.parametrize("both", [True, False], ids=["both directions", "directed"])
@pytest.mark.parametrize("fault", ["none", "rows", "shift", "missing"])
@pytest.mark.parametrize("name", ["GCN", "SAGE"])
def test_card_and_verdict_are_those_in_memory(name: str, fault: str, both: bool, tmp_path: Path, streams: None) -> None:
    train, test, model = graph(1, both), broken(graph(2, both), fault), model_of(name)
    expected_card = card(model, train)
    own = card(model, open_graph(pack(tmp_path / "train", train)))
    tensors, numbers = own.parts()
    expected_tensors, expected_numbers = expected_card.parts()
    for part, value in expected_tensors.items():
        assert torch.allclose(tensors[part], value, rtol=1e-3, atol=1e-4, equal_nan=True), part
    for part, number in expected_numbers.items():
        assert numbers[part] == (pytest.approx(number, rel=1e-3, abs=1e-5) if isinstance(number, float) else number)
    found = mend(model, open_graph(pack(tmp_path / "test", test)), card=own)
    expected = mend(model, test, card=expected_card)
    assert found.verdict is not None and expected.verdict is not None
    assert (found.decision, found.verdict.menders) == (expected.decision, expected.verdict.menders)
    assert [e.value for e in found.verdict.evidence] == pytest.approx(
        [e.value for e in expected.verdict.evidence], rel=2e-3, abs=1e-4
    )
    assert found.patch.summary() == expected.patch.summary()
    assert torch.allclose(found.logits, expected.logits, rtol=1e-3, atol=1e-3)
    assert torch.equal(found.patch.revert(found.data).x.nan_to_num(nan=7.0), test.x.nan_to_num(nan=7.0))


@pytest.mark.parametrize("mender", [Impute(), Align(), Purify()], ids=lambda mender: type(mender).__name__)
@pytest.mark.parametrize("name", ["GCN", "SAGE"])
def test_menders_make_the_changes_that_they_make_in_memory(
    name: str, mender: Impute | Align | Purify, tmp_path: Path, streams: None
) -> None:
    train, test, model = graph(1), broken(graph(2), "rows" if isinstance(mender, Impute) else "shift"), model_of(name)
    if isinstance(mender, Purify):
        for data in (train, test):
            source, target = data.edge_index
            near = data.edge_index[:, source % CLASSES == target % CLASSES]
            data.x = torch.eye(COLUMNS)[data.y] + 0.1 * graph(7).x
            data.edge_index = near
        extra = torch.randint(150, (2, 100), generator=torch.Generator().manual_seed(5))
        edges = torch.cat([test.edge_index, extra, extra.flip(0)], dim=1)
        test.edge_index = edges[:, (edges[1] * 150 + edges[0]).argsort(stable=True)]
    made = card(model, train)
    expected = mender(model, test, card=made)
    found = mender(model, open_graph(pack(tmp_path / "test", test)), card=made)
    assert torch.equal(found.patch.removed, expected.patch.removed)
    assert torch.equal(found.data.edge_index, expected.data.edge_index)
    assert torch.allclose(found.data.x, expected.data.x, rtol=1e-3, atol=1e-3)
    assert expected.patch.num_rows + expected.patch.num_removed > 0
    assert torch.allclose(found.logits, expected.logits, rtol=1e-2, atol=1e-3)
    assert torch.equal(found.patch.revert(found.data).edge_index, test.edge_index)


@settings(max_examples=40, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 30), min_size=1, max_size=9),
    groups=st.integers(1, 32),
    offset=st.sampled_from([0.0, 1e3, -1e4]),
    seed=st.integers(0, 999),
)
def test_sums_of_rows_are_the_same_in_parts_of_any_size_and_order(
    sizes: list[int], groups: int, offset: float, seed: int
) -> None:
    rows = sum(sizes)
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, 3, generator=generator, dtype=torch.float64) + offset
    members = torch.rand(groups, rows, generator=generator) < 0.5
    bits = Groups(rows, x.device)
    for member in members:
        bits.add(member.nonzero().view(-1))
    centre = x[:1].mean(0) if rows else x.new_zeros(3)
    parts = [RowSums(centre, groups) for _ in sizes]
    blocks = torch.split(members.double(), sizes, dim=1)
    for part, block, own in zip(parts, torch.split(x, sizes), blocks, strict=True):
        part.add(block, own)
    random.Random(seed).shuffle(parts)
    total = RowSums(centre, groups)
    for part in parts:
        total.merge(part)
    mean, deviation = total.moments()
    again = list(bits.blocks(max(1, rows), torch.float64)) if rows else []
    assert not again or torch.equal(torch.cat(again, dim=1), members.double())
    for k, member in enumerate(members):
        if bool(member.any()):
            assert mean[k].tolist() == pytest.approx(x[member].mean(0).tolist(), rel=1e-9, abs=1e-9)
            expected = x[member].std(0, correction=0).tolist()
            assert deviation[k].tolist() == pytest.approx(expected, rel=1e-5, abs=1e-6)


@settings(max_examples=30, deadline=None)
@given(nodes=st.integers(1, 20), seed=st.integers(0, 99), both=st.booleans())
def test_hops_and_their_gradients_are_those_of_a_dense_matrix(nodes: int, seed: int, both: bool) -> None:
    data = graph(seed, both, max(5, nodes))
    number, generator = data.num_nodes, torch.Generator().manual_seed(seed)
    mapped = _mapped(data)
    left, right, loop = (torch.rand(number, generator=generator) for _ in range(3))
    a = StreamedAdjacency(mapped, number, mapped.is_symmetric)
    x = torch.rand(number, 3, generator=generator, requires_grad=True)
    dense = torch.zeros(number, number)
    dense.index_put_((data.edge_index[1], data.edge_index[0]), torch.ones(data.num_edges), accumulate=True)
    matrix = left.unsqueeze(1) * dense * right + torch.diag(loop)
    weights = torch.rand(number, 3, generator=generator)
    found, expected = StreamedHops(a, left, right, loop)(x), matrix @ x
    assert torch.allclose(found, expected, atol=1e-5)
    (gradient,) = torch.autograd.grad((found * weights).sum(), x)
    assert torch.allclose(gradient, matrix.t() @ weights, atol=1e-5)


def _mapped(data: Data) -> Data:
    from graphmend.graph.mapped import MappedGraph

    out = MappedGraph(**data.to_dict())
    out.mapped_from(Path("nowhere"), _offsets(data), symmetric=False, shards=None)
    out.__dict__["_symmetric"] = None
    return out


def _offsets(data: Data) -> Tensor:
    return torch.searchsorted(data.edge_index[1].contiguous(), torch.arange(data.num_nodes + 1))


def test_large_arrays_lie_on_the_disk_without_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphmend.scratch.LEAST", 100)
    like = torch.zeros(1)
    with scratch_in(tmp_path):
        made = large_empty((50, 2), like).fill_(3.0)
        assert not list(tmp_path.iterdir()) and float(made.sum()) == 300
    assert float(made[49, 1]) == 3.0, "it lives as long as somebody has it"
    with scratch_in(tmp_path / "missing"), pytest.raises(GraphMendError, match=r"cannot be written into .*; make room"):
        large_empty((50, 2), like)
    assert [part.stop for part in row_ranges(10, 10**9)] == list(range(1, 11))
