"""A patch for the graph as its owner keeps it, after mending in the type of the model."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.data import Data

import graphmend
from graphmend import GTrans, mend
from graphmend.errors import GraphMendError
from graphmend.lab.backbones import GCN
from graphmend.results.fingerprint import fingerprint_of
from graphmend.results.patch import Patch, rebase
from support.graphs import labelled, rng

pytestmark = pytest.mark.usefixtures("one_thread")


def wide(n: int = 40) -> Data:
    """Features of which float32 keeps none exactly."""
    data = labelled(n)
    data.x = data.x.double() + torch.rand(n, 5, generator=rng(3), dtype=torch.float64) * 1e-9 + 1 / 3
    data.edge_weight = torch.rand(data.num_edges, generator=rng(4), dtype=torch.float64)
    return data


def cast_of(data: Data, dtype: torch.dtype = torch.float32) -> Data:
    out = copy.copy(data)
    out.x = data.x.to(dtype)
    return out


def bits(x: torch.Tensor) -> list[list[int]]:
    return x.view(torch.int64).tolist()  # type: ignore[no-any-return]


@settings(max_examples=50, deadline=None)
@given(st.sets(st.tuples(st.integers(0, 39), st.integers(0, 4))), st.sets(st.integers(0, 30)), st.booleans())
def test_what_did_not_change_keeps_its_bits(places: set[tuple[int, int]], removed: set[int], reweight: bool) -> None:
    original = wide()
    before, cast = copy.deepcopy(original), cast_of(original)
    x = cast.x.clone()
    for row, column in places:
        x[row, column] += 0.5
    gone = torch.tensor(sorted(removed), dtype=torch.long)
    keep = torch.ones(original.num_edges, dtype=torch.bool)
    keep[gone] = False
    weight = None
    if reweight:
        weight = original.edge_weight[keep].clone()
        weight[::2] *= 0.5
    patch, mended_cast = Patch.make(cast, x, gone, cast.edge_index[:, :0], weight)
    rebased, mended = rebase(patch, cast, original)
    for row in range(40):
        for column in range(5):
            own = (x[row, column].double() if (row, column) in places else original.x[row, column]).item()
            assert mended.x[row, column].item() == own
    assert torch.equal(mended.x.float(), mended_cast.x), "the model would see the very same numbers"
    assert torch.equal(mended.edge_index, mended_cast.edge_index)
    assert torch.equal(mended.edge_weight, original.edge_weight[keep] if weight is None else weight)
    assert rebased.before == fingerprint_of(original) and rebased.rows.tolist() == sorted({row for row, _ in places})
    assert bits(rebased.revert(mended).x) == bits(before.x) and bits(original.x) == bits(before.x)
    assert bits(rebased.apply(original).x) == bits(mended.x)
    assert torch.equal(rebased.revert(mended).edge_weight, before.edge_weight)


def test_the_whole_result_for_a_file_of_doubles(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, original = GCN(5, 8, 3), wide()
    del original.edge_weight
    cast = cast_of(original)
    found = GTrans(steps=10, lr_feature=0.1, edge_steps=3, lr_edge=0.9)(model, cast)
    result = found.rebase(original)
    assert result.data.x.dtype == torch.float64 and torch.equal(result.data.x.float(), found.data.x)
    assert torch.equal(result.logits, found.logits) and result.history is found.history
    torch.testing.assert_close(result.before, found.before)
    assert torch.equal(result.changed, found.changed)
    result.patch.save(tmp_path / "p")
    loaded = Patch.load(tmp_path / "p")
    assert bits(loaded.apply(original).x) == bits(result.data.x) and bits(loaded.revert(result.data).x) == bits(
        original.x
    )


def test_labels_still_decide_afterwards() -> None:
    torch.manual_seed(0)
    model, original = GCN(5, 8, 3), wide()
    del original.edge_weight
    card = graphmend.card(model, cast_of(original), task="classes")
    original.x = original.x + 2.0
    result = mend(model, cast_of(original), card=card).rebase(original)
    assert result.alternative is not None
    against = {int(node): int(result.before.argmax(1)[node]) for node in result.questions(40)}
    settled = result.decide(against)
    assert settled.patch.is_empty and bits(settled.data.x) == bits(original.x)


def test_the_same_type_changes_nothing() -> None:
    data = labelled(20)
    patch, mended = Patch.make(data, data.x + 1, torch.tensor([0]), torch.tensor([[0], [5]]))
    again, same = rebase(patch, data, data)
    assert again.summary() == patch.summary() and torch.equal(same.x, mended.x)
    assert torch.equal(same.edge_index, mended.edge_index)


def test_a_narrower_type_rounds_what_changed_and_says_what_does_not_fit() -> None:
    original = labelled(20)
    original.x = original.x.half()
    cast = cast_of(original)
    patch, _ = Patch.make(cast, cast.x + 1 / 3, torch.tensor([], dtype=torch.long), cast.edge_index[:, :0])
    _, mended = rebase(patch, cast, original)
    assert torch.equal(mended.x, (cast.x + 1 / 3).half())
    patch, _ = Patch.make(cast, cast.x + 1e6, torch.tensor([], dtype=torch.long), cast.edge_index[:, :0])
    with pytest.raises(GraphMendError, match=r"do not fit into torch.float16"):
        rebase(patch, cast, original)


def test_another_original_is_refused() -> None:
    original = wide()
    cast = cast_of(original)
    patch, _ = Patch.make(cast, cast.x + 1, torch.tensor([0]), cast.edge_index[:, :0])
    others = [copy.copy(original) for _ in range(3)]
    others[0].x = original.x + 1e-3
    others[1].x = original.x[:-1]
    others[2].edge_index = original.edge_index.flip(0)
    for other in others:
        with pytest.raises(GraphMendError, match="the graph whose features were converted"):
            rebase(patch, cast, other)
    with pytest.raises(GraphMendError, match="made for another graph"):
        rebase(patch, cast_of(original, torch.float64), original)
