"""What must not change does not change, to the bit; what may change stays within its range."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data

from graphmend import GTrans
from graphmend.errors import GraphMendError
from graphmend.graph.limits import MASKS, Limits
from graphmend.lab.backbones import GCN
from support.graphs import DEVICES, rng, undirected

N, COLUMNS = 9, 4


def graph(dtype: torch.dtype = torch.float32) -> Data:
    x = torch.randn(N, COLUMNS, generator=rng()).to(dtype)
    x[0, 0] = -0.0
    return Data(x=x, edge_index=undirected(N))


def mask(size: int, *marked: int) -> Tensor:
    return torch.zeros(size, dtype=torch.bool).index_fill(0, torch.tensor(marked, dtype=torch.long), True)


def bits(x: Tensor) -> Tensor:
    return x.view({4: torch.int32, 8: torch.int64}[x.element_size()])


def moved(data: Data, limits: Limits, *, finish: bool = False) -> Tensor:
    x = data.x + torch.randn(N, COLUMNS, generator=rng(1)).to(data.x.dtype)
    place = x.data_ptr()
    if finish:
        assert limits.finish(x, data.x) == (limits.binary is not None)
    else:
        limits.project(x, data.x)
    assert x.data_ptr() == place  # in place: the optimiser's own tensor
    return x


def test_no_limits_change_nothing() -> None:
    data = graph()
    assert torch.equal(moved(data, Limits()), data.x + torch.randn(N, COLUMNS, generator=rng(1)))
    assert torch.equal(moved(data, Limits(), finish=True), moved(data, Limits()))


def test_frozen_nodes_and_columns_keep_their_bits() -> None:
    data = graph()
    x = moved(data, Limits(frozen_nodes=mask(N, 0, 3), frozen_columns=mask(COLUMNS, 1)))
    same = bits(x) == bits(data.x)
    expected = torch.zeros(N, COLUMNS, dtype=torch.bool)
    expected[[0, 3]] = True
    expected[:, 1] = True
    assert torch.equal(same, expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_ranges(dtype: torch.dtype) -> None:
    data = graph(dtype)
    free = moved(data, Limits())
    per_column = torch.tensor([-1.0, 0.0, 0.5, -torch.inf], dtype=torch.float64)
    assert torch.equal(moved(data, Limits(minimum=-0.5, maximum=0.25)), free.clamp(-0.5, 0.25))
    assert torch.equal(moved(data, Limits(minimum=per_column)), torch.maximum(free, per_column.to(dtype)))
    assert torch.equal(moved(data, Limits(maximum=-per_column)), torch.minimum(free, -per_column.to(dtype)))
    assert torch.equal(moved(data, Limits(minimum=torch.tensor(0), maximum=1)), free.clamp(0, 1))
    signs = moved(data, Limits(non_negative=mask(COLUMNS, 0, 3)))
    assert torch.equal(signs[:, [0, 3]], free[:, [0, 3]].clamp(min=0)) and torch.equal(signs[:, 1:3], free[:, 1:3])


def test_a_projection_is_there_only_where_features_are_limited() -> None:
    data = graph()
    for limits in (Limits(), Limits(frozen_edges=torch.ones(data.num_edges, dtype=torch.bool))):
        assert limits.projection(data.x) is None
    project = Limits(maximum=0.25).projection(data.x)
    assert project is not None
    x = data.x.clone()
    project(x)
    assert torch.equal(x, data.x.clamp(max=0.25))


@pytest.mark.parametrize("device", DEVICES)
def test_limits_go_where_the_graph_is(device: str) -> None:
    limits = Limits(frozen_nodes=mask(N, 1), minimum=torch.zeros(COLUMNS), maximum=2.0).to(torch.device(device))
    assert limits.frozen_nodes.device.type == limits.minimum.device.type == device
    assert limits.maximum == 2.0 and limits.binary is None


def test_binary_columns_are_relaxed_then_rounded() -> None:
    data = graph()
    free, limits = moved(data, Limits()), Limits(binary=mask(COLUMNS, 2))
    relaxed = moved(data, limits)
    assert torch.equal(relaxed[:, 2], free[:, 2].clamp(0, 1)) and not set(relaxed[:, 2].tolist()) <= {0.0, 1.0}
    rounded = moved(data, limits, finish=True)
    assert torch.equal(rounded[:, 2], (free[:, 2] >= 0.5).float())
    assert torch.equal(rounded[:, [0, 1, 3]], free[:, [0, 1, 3]])


def test_what_is_frozen_is_frozen_also_outside_its_range() -> None:
    data = graph()
    limits = Limits(frozen_nodes=mask(N, 4), frozen_columns=mask(COLUMNS, 0), binary=mask(COLUMNS, 0, 1), maximum=1.0)
    x = moved(data, limits, finish=True)
    assert torch.equal(bits(x[4]), bits(data.x[4])) and torch.equal(bits(x[:, 0]), bits(data.x[:, 0]))
    others = [i for i in range(N) if i != 4]
    assert set(x[others, 1].tolist()) <= {0.0, 1.0}


BAD = {
    "too short": (
        {"frozen_nodes": mask(N - 1)},
        r"limits.frozen_nodes must have one entry per node, 9 in all \(got torch.bool",
    ),
    "indices": ({"frozen_nodes": torch.tensor([0, 3])}, r"0 and 1 only \(got limits.frozen_nodes\[1\] = 3\)"),
    "columns": ({"frozen_columns": np.arange(COLUMNS)}, r"0 and 1 only \(got limits.frozen_columns\[2\] = 2\)"),
    "edges": ({"frozen_edges": mask(3)}, "limits.frozen_edges must have one entry per edge"),
    "binary floats": ({"binary": torch.ones(COLUMNS)}, "limits.binary must be boolean, or 0 and 1 as integers"),
    "signs": ({"non_negative": mask(COLUMNS + 1)}, "limits.non_negative must have one entry per column, 4 in all"),
    "minimum per row": ({"minimum": torch.zeros(N)}, "minimum must be a number or one per column, 4"),
    "maximum as text": ({"maximum": "1"}, "maximum must be a number or a tensor of one per column"),
    "maximum as list": ({"maximum": [1.0] * COLUMNS}, "maximum must be a number or a tensor of one per column"),
    "complex": ({"maximum": torch.tensor(1j)}, "maximum must be a number or one per column"),
    "crossed": ({"minimum": 2.0, "maximum": 1.0}, "minimum lies above limits.maximum"),
    "crossed column": ({"minimum": torch.tensor([0.0, 0, 2, 0]), "maximum": 1.0}, "minimum lies above"),
    "NaN": ({"minimum": float("nan")}, "must be a number or"),
    "NaN column": ({"maximum": torch.tensor([0.0, 0, torch.nan, 0])}, "must be numbers"),
    "infinite the wrong way": ({"minimum": float("inf")}, "must be numbers"),
    "binary without 1": ({"binary": mask(COLUMNS, 1), "maximum": 0.5}, "leave a binary column"),
    "binary without 0": ({"binary": mask(COLUMNS, 1), "minimum": torch.tensor([0, 0.1, 0, 0])}, "leave a binary"),
    "sign against maximum": ({"non_negative": mask(COLUMNS, 1), "maximum": -1.0}, "maximum lies below 0"),
}


@pytest.mark.parametrize(("arguments", "message"), BAD.values(), ids=BAD)
def test_bad_limits(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(GraphMendError, match=message):
        Limits(**arguments).check(graph())
    with pytest.raises(GraphMendError, match=message):
        GTrans(steps=1)(GCN(COLUMNS, 8, 2), graph(), limits=Limits(**arguments))


@pytest.mark.parametrize("kind", [torch.uint8, torch.int64, np.bool_, np.uint8, np.int64])
@pytest.mark.parametrize("name", MASKS)
def test_masks_of_zeros_and_ones_limit_like_booleans(name: str, kind: Any) -> None:
    data = graph()
    size = {"node": N, "column": COLUMNS, "edge": data.num_edges}[MASKS[name]]
    marked = mask(size, 1, 2)
    given = marked.to(kind) if isinstance(kind, torch.dtype) else marked.numpy().astype(kind)
    limits, expected = Limits(**{name: given}), Limits(**{name: marked})
    limits.check(data)
    assert torch.equal(getattr(limits, name), marked) and getattr(limits, name).dtype == torch.bool
    assert torch.equal(moved(data, limits, finish=True), moved(data, expected, finish=True))
    assert torch.equal(limits.free_edges(data.edge_index, N), expected.free_edges(data.edge_index, N))


@pytest.mark.parametrize("name", MASKS)
def test_a_mask_that_marks_nothing_limits_nothing(name: str) -> None:
    data = graph()
    size = {"node": N, "column": COLUMNS, "edge": data.num_edges}[MASKS[name]]
    limits = Limits(**{name: mask(size)})
    limits.check(data)
    assert torch.equal(moved(data, limits, finish=True), moved(data, Limits(), finish=True))


def test_good_limits() -> None:
    data = graph()
    Limits().check(data)
    Limits(minimum=-1, maximum=torch.full((COLUMNS,), torch.inf), binary=mask(COLUMNS, 0)).check(data)
    Limits(binary=mask(COLUMNS), minimum=0.5, non_negative=mask(COLUMNS), maximum=-0.0 + 0.5).check(data)


def test_which_edges_may_change() -> None:
    """A self-loop never; an undirected edge is frozen by a mark on either direction."""
    edge_index = torch.tensor([[0, 1, 1, 2, 3, 2, 4], [1, 0, 2, 1, 3, 4, 0]])
    assert Limits().free_edges(edge_index, N).tolist() == [True, True, True, True, False, True, True]
    frozen = Limits(frozen_edges=torch.tensor([False, True, False, False, False, False, True]))
    assert frozen.free_edges(edge_index, N).tolist() == [False, False, True, True, False, True, False]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
def test_a_bound_beyond_what_the_features_can_hold_limits_nothing(dtype: torch.dtype) -> None:
    x = torch.tensor([[-1.0, 2.0]], dtype=dtype)
    moved = x.clone()
    Limits(minimum=-1e300, maximum=1e300).project(moved, x)
    assert torch.equal(moved, x)
