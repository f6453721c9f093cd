"""Patches of graphs with lists and NumPy arrays of edges, and of PyG batches: whole pieces there and back."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch_geometric.data import Batch, Data

from graphmend import GTrans
from graphmend.errors import GraphMendError
from graphmend.lab.backbones import GCN
from graphmend.results.patch import Patch
from support.graphs import rng, undirected

pytestmark = pytest.mark.usefixtures("one_thread")


def plain(value: Any) -> Any:
    """Something that can be compared, with its type."""
    if isinstance(value, (list, tuple)):
        return type(value).__name__, [plain(item) for item in value]
    if isinstance(value, (Tensor, np.ndarray)):
        return type(value).__name__, str(value.dtype), tuple(value.shape), value.tolist()
    return value


def contents(data: Data) -> dict[str, Any]:
    return {name: plain(value) for name, value in data.to_dict().items()}


def pieces(batch: Batch) -> list[dict[str, Any]]:
    return [contents(piece) for piece in batch.to_data_list()]


@st.composite
def graphs(draw: st.DrawFn, with_edges: bool = False) -> Data:
    n = draw(st.integers(1, 5))
    ends = st.tuples(st.integers(0, n - 1), st.integers(0, n - 1))
    edges = draw(st.lists(ends, min_size=int(with_edges), max_size=7))
    m = len(edges)
    x = torch.arange(2.0 * n).view(n, 2) + draw(st.integers(0, 100))
    return Data(
        x=x,
        edge_index=torch.tensor(edges, dtype=torch.long).view(-1, 2).t(),
        y=torch.arange(n),
        edge_attr=torch.arange(3 * m).view(m, 3) + 10 * n,
        edge_names=[f"{n}/{i}" for i in range(m)],
        edge_times=tuple(float(i) for i in range(m)),
        edge_codes=np.arange(2 * m, dtype=np.int16).reshape(m, 2) * n,
        edge_words=np.array([f"w{i}" for i in range(m)], dtype="<U4"),
        node_names=[f"node {i}" for i in range(n)],
        title="a graph",
    )


@st.composite
def changes(draw: st.DrawFn, data: Data) -> tuple[Tensor, Tensor]:
    edges = data.edge_index.size(1)
    removed = sorted(draw(st.sets(st.integers(0, edges - 1)))) if edges else []
    return data.x + draw(st.integers(0, 1)), torch.tensor(removed, dtype=torch.long)


def without(piece: Data, removed: set[int], x: Tensor) -> Data:
    """The piece by hand."""
    keep = [e for e in range(piece.edge_index.size(1)) if e not in removed]
    out = copy.copy(piece)
    out.x, out.edge_index, out.edge_attr = x, piece.edge_index[:, keep], piece.edge_attr[keep]
    out.edge_names, out.edge_times = ([piece.edge_names[e] for e in keep], tuple(piece.edge_times[e] for e in keep))
    out.edge_codes, out.edge_words = piece.edge_codes[keep], piece.edge_words[keep]
    return out


def check_there_and_back(patch: Patch, data: Data, mended: Data) -> None:
    assert contents(patch.apply(data)) == contents(mended)
    assert contents(patch.revert(mended)) == contents(data)


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_lists_and_arrays_are_shortened_and_come_back(
    tmp_path_factory: pytest.TempPathFactory, draws: st.DataObject
) -> None:
    data = draws.draw(graphs(with_edges=True))
    x, removed = draws.draw(changes(data))
    before = contents(data)
    patch, mended = Patch.make(data, x, removed, data.edge_index[:, :0])
    assert contents(mended) == contents(without(data, set(removed.tolist()), x)) and contents(data) == before
    check_there_and_back(patch, data, mended)
    path = tmp_path_factory.mktemp("lists") / "p"
    patch.save(path)
    check_there_and_back(Patch.load(path), data, mended)


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_the_pieces_of_a_mended_batch_are_the_mended_pieces(
    tmp_path_factory: pytest.TempPathFactory, draws: st.DataObject
) -> None:
    parts = draws.draw(st.lists(graphs(), min_size=1, max_size=4))
    batch = Batch.from_data_list(parts)
    x, removed = draws.draw(changes(batch))
    before = pieces(batch)
    patch, mended = Patch.make(batch, x, removed, batch.edge_index[:, :0])
    expected, node, edge = [], 0, 0
    for part in parts:
        n, m = part.x.size(0), part.edge_index.size(1)
        gone = {e - edge for e in removed.tolist() if edge <= e < edge + m}
        expected.append(contents(without(part, gone, x[node : node + n])))
        node, edge = node + n, edge + m
    assert pieces(mended) == expected and contents(mended[0]) == expected[0]
    assert pieces(patch.apply(batch)) == expected and pieces(batch) == before
    path = tmp_path_factory.mktemp("batches") / "p"
    patch.save(path)
    for own in (patch, Patch.load(path)):
        reverted = own.revert(mended)
        assert pieces(reverted) == before and contents(reverted) == contents(batch)
        assert pieces(mended) == expected
        assert {k: v.tolist() for k, v in reverted._slice_dict.items()} == {
            k: v.tolist() for k, v in batch._slice_dict.items()
        }


def batch_of(*sizes: int) -> Batch:
    parts = []
    for seed, n in enumerate(sizes):
        edge_index = undirected(n, seed, density=0.3)
        m = edge_index.size(1)
        parts.append(
            Data(
                x=torch.rand(n, 3, generator=rng(seed)),
                edge_index=edge_index,
                edge_names=[f"{seed}.{i}" for i in range(m)],
            )
        )
    return Batch.from_data_list(parts)


def test_new_weights_of_a_batch_reach_its_pieces() -> None:
    batch = batch_of(6, 7)
    weight = torch.rand(batch.num_edges - 1, generator=rng())
    patch, mended = Patch.make(batch, batch.x, torch.tensor([3]), batch.edge_index[:, :0], weight)
    assert torch.equal(torch.cat([piece.edge_weight for piece in mended.to_data_list()]), weight)
    reverted = patch.revert(mended)
    assert pieces(reverted) == pieces(batch) and "edge_weight" not in reverted._slice_dict
    assert "edge_weight" not in batch._slice_dict and "edge_weight" not in batch._inc_dict


def test_a_batch_with_edges_between_its_graphs_cannot_be_taken_apart_until_they_are_gone() -> None:
    batch = batch_of(6, 7)
    patch, mended = Patch.make(batch, batch.x + 1, torch.tensor([0]), torch.tensor([[0], [12]]))
    for own in (mended, patch.apply(batch)):
        with pytest.raises(RuntimeError, match="Cannot reconstruct"):
            own.to_data_list()
        assert pieces(patch.revert(own)) == pieces(batch)


def test_an_added_edge_at_the_end_of_the_last_graph_belongs_to_it() -> None:
    batch = batch_of(6, 7)
    del batch.edge_names
    _, mended = Patch.make(batch, batch.x, torch.tensor([0]), torch.tensor([[6], [12]]))
    first, last = mended.to_data_list()
    assert first.edge_index.size(1) == batch[0].num_edges - 1
    assert last.edge_index[:, -1].tolist() == [0, 6]


def test_a_batch_through_an_adapter() -> None:
    torch.manual_seed(0)
    batch = batch_of(12, 15, 11)
    result = GTrans(steps=12, edge_steps=3, lr_edge=0.9, budget=0.3)(GCN(3, 8, 3), batch)
    assert result.patch.num_removed > 0
    names = [name for piece in result.data.to_data_list() for name in piece.edge_names]
    gone = set(result.patch.removed.tolist())
    everything = [name for piece in batch.to_data_list() for name in piece.edge_names]
    assert names == [name for e, name in enumerate(everything) if e not in gone]
    for piece, part in zip(result.data.to_data_list(), batch.to_data_list(), strict=True):
        assert len(piece.edge_names) == piece.num_edges and piece.num_nodes == part.num_nodes
        old = set(map(tuple, part.edge_index.t().tolist()))
        assert set(map(tuple, piece.edge_index.t().tolist())) <= old
    assert pieces(result.patch.revert(result.data)) == pieces(batch)


# ---------------------------------------------------------------- lists and arrays


def graph(**more: Any) -> Data:
    return Data(x=torch.rand(3, 2, generator=rng()), edge_index=torch.tensor([[0, 1, 2, 0], [1, 2, 0, 2]]), **more)


def test_edges_that_come_are_none_in_lists_and_1_in_arrays_of_numbers() -> None:
    data = graph(edge_names=list("abcd"), edge_pair=tuple("abcd"), edge_counts=np.arange(4, dtype=np.uint8))
    patch, mended = Patch.make(data, data.x, torch.tensor([1]), torch.tensor([[1], [0]]))
    assert mended.edge_names == ["a", "c", "d", None] and mended.edge_pair == ("a", "c", "d", None)
    assert mended.edge_counts.tolist() == [0, 2, 3, 1] and mended.edge_counts.dtype == np.uint8
    check_there_and_back(patch, data, mended)


@pytest.mark.parametrize("value", [np.array(list("abcd")), np.zeros((4, 2))], ids=["words", "two numbers each"])
def test_nobody_knows_the_array_entries_of_edges_that_come(value: Any) -> None:
    data = graph(edge_codes=value)
    with pytest.raises(GraphMendError, match="there are no values for their edge_codes"):
        Patch.make(data, data.x, torch.tensor([1]), torch.tensor([[1], [0]]))


def test_where_there_are_as_many_nodes_as_edges_the_name_tells() -> None:
    data = Data(
        x=torch.rand(3, 2), edge_index=torch.tensor([[0, 1, 2], [1, 2, 0]]), names=list("abc"), edge_ids=[7, 8, 9]
    )
    _, mended = Patch.make(data, data.x, torch.tensor([1]), data.edge_index[:, :0])
    assert mended.names == list("abc") and mended.edge_ids == [7, 9]


def test_a_graph_with_other_lists_is_another_graph() -> None:
    data = graph(edge_names=list("abcd"))
    patch, mended = Patch.make(data, data.x, torch.tensor([1]), data.edge_index[:, :0])
    with pytest.raises(GraphMendError, match="made for another graph"):
        patch.apply(graph())
    for names in (["a"], None, "acd", 3):
        other = copy.copy(mended)
        other.edge_names = names
        with pytest.raises(GraphMendError, match=r"did not make this graph.*'edge_names'"):
            patch.revert(other)


def test_what_a_file_cannot_keep_is_named(tmp_path: Path) -> None:
    data = graph(edge_things=[{1}, {2}, {3}, {4}])
    patch, mended = Patch.make(data, data.x, torch.tensor([1]), data.edge_index[:, :0])
    assert mended.edge_things == [{1}, {3}, {4}]
    with pytest.raises(GraphMendError, match=r"cannot keep the edge_things of the removed edges, of type set"):
        patch.save(tmp_path / "p")
    assert list(tmp_path.iterdir()) == []
