"""The sparse products that everything is made of, against dense float64 algebra."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from graphmend.engine.adjacency import Adjacency
from graphmend.engine.ops import (
    Pattern,
    at_least_single,
    gathered,
    hop,
    inverse_root_degrees,
    relu_gradient,
    row_blocks,
    row_products,
    row_sums,
    sampled_product,
    scaled,
)
from graphmend.engine.tuning import HUB_DEGREE
from support.graphs import dense, rng
from support.sparse_patterns import (
    HUB_NODES,
    HUBS,
    PATTERNS,
    N,
    close,
    devices,
    dtypes,
    features,
    halves,
    patterns,
    values_of,
    weights_of,
)


def pattern_of(edge_index: Tensor, nodes: int = N, device: str = "cpu") -> tuple[Pattern, Tensor]:
    """The pattern, and the order that brings the values of edges into that of its entries."""
    adjacency = Adjacency(edge_index.to(device), nodes)
    return adjacency.pattern, adjacency.order(torch.arange(edge_index.size(1), device=device)).cpu()


AROUND = ["nothing", "loop", "add", "scale", "shift", "relu", "everything"]


@devices
@dtypes
@pytest.mark.parametrize("around", AROUND)
@patterns
def test_a_hop_and_what_a_layer_does_around_it(
    edge_index: Tensor, around: str, dtype: torch.dtype, device: str
) -> None:
    pattern, order = pattern_of(edge_index, device=device)
    values, x = values_of(edge_index), features()
    given = {"loop": features(3)[:, 0], "add": features(4), "scale": features(5)[0], "shift": features(6)[0]}
    given = {name: value for name, value in given.items() if around in (name, "everything")}
    expected = dense(edge_index, N, values) @ x
    if "loop" in given:
        expected = expected + given["loop"].unsqueeze(-1) * x
    expected = (expected + given.get("add", 0.0)) * given.get("scale", 1.0) + given.get("shift", 0.0)
    relu = around in ("relu", "everything")
    out = hop(
        pattern,
        values[order].to(device, dtype),
        x.to(device, dtype),
        **{name: value.to(device, dtype) for name, value in given.items()},
        relu=relu,
    )
    close(out, expected.relu() if relu else expected)


@devices
@dtypes
@pytest.mark.parametrize("width", [1, 33, 130])
@pytest.mark.parametrize("edge_index", HUBS.values(), ids=HUBS)
def test_rows_with_very_many_entries(edge_index: Tensor, width: int, dtype: torch.dtype, device: str) -> None:
    pattern, order = pattern_of(edge_index, HUB_NODES, device)
    values, x, left = values_of(edge_index), *(features(seed, width, HUB_NODES) for seed in (2, 3))
    given = values[order].to(device, dtype)
    matrix = dense(edge_index, HUB_NODES, values)
    close(hop(pattern, given, x.to(device, dtype)) / 20, matrix @ x / 20)
    close(row_sums(pattern, given) / 20, matrix.sum(1) / 20)
    source, target = edge_index[:, order]
    products = sampled_product(pattern, left.to(device, dtype), x.to(device, dtype))
    close(products / width, (left[target] * x[source]).sum(1) / width)


@devices
@dtypes
@patterns
def test_a_sampled_product_is_taken_at_the_entries_alone(edge_index: Tensor, dtype: torch.dtype, device: str) -> None:
    pattern, order = pattern_of(edge_index, device=device)
    left, right = features(), features(3)
    source, target = edge_index[:, order]
    expected = (left[target] * right[source]).sum(1)
    close(sampled_product(pattern, left.to(device, dtype), right.to(device, dtype)), expected)
    turned = left.t().contiguous().t().to(device, dtype)  # a gradient may come in any layout
    close(sampled_product(pattern, turned, right.to(device, dtype)), expected)


@devices
@dtypes
@pytest.mark.parametrize("edges", [5, 300])
def test_there_may_be_more_edges_than_pairs_of_nodes(edges: int, dtype: torch.dtype, device: str) -> None:
    """Repeated edges are kept apart. Torch's own product has room for one value per pair."""
    edge_index = torch.randint(2, (2, edges), generator=rng())
    pattern, order = pattern_of(edge_index, 2, device)
    left, right, values = features(width=3, nodes=2), features(3, 3, 2), values_of(edge_index)
    source, target = edge_index[:, order]
    products = sampled_product(pattern, left.to(device, dtype), right.to(device, dtype))
    close(products, (left[target] * right[source]).sum(1))
    out = hop(pattern, values[order].to(device, dtype), right.to(device, dtype))
    close(out / 10, dense(edge_index, 2, values) @ right / 10)


@devices
@dtypes
@patterns
def test_sums_of_rows(edge_index: Tensor, dtype: torch.dtype, device: str) -> None:
    pattern, order = pattern_of(edge_index, device=device)
    values = torch.stack([values_of(edge_index, seed) for seed in range(6)], dim=1)
    matrices = [dense(edge_index, N, values[:, k]).sum(1) for k in range(6)]
    ordered, expected = values[order].to(device, dtype), torch.stack(matrices, dim=1)
    close(row_sums(pattern, ordered[:, 0]), expected[:, 0])
    close(row_sums(pattern, ordered), expected)
    close(row_sums(pattern, ordered.view(-1, 2, 3)), expected.view(N, 2, 3))


@halves
@devices
def test_sums_in_half_precision_do_not_stall(half: torch.dtype, device: str) -> None:
    """Adding 1 to 256 is 256 in bfloat16, so a thousand of them are summed up in single precision."""
    star = torch.stack([torch.arange(1, 1001), torch.zeros(1000, dtype=torch.long)])
    adjacency, ones = Adjacency(star.to(device), 1001), torch.ones(1000, dtype=half, device=device)
    for values in (ones, ones.view(-1, 1).expand(-1, 2)):
        out = row_sums(adjacency.pattern, values)
        assert out.dtype == half and out[0].tolist() == (1000 * torch.ones(values.shape[1:])).tolist()


@devices
@dtypes
@patterns
def test_entries_times_the_scale_of_both_ends(edge_index: Tensor, dtype: torch.dtype, device: str) -> None:
    pattern, order = pattern_of(edge_index, device=device)
    scale, weight = features()[:, 0], weights_of(edge_index)
    source, target = edge_index[:, order]
    out = scaled(pattern, scale.to(device, dtype), weight[order].to(device, dtype))
    close(out, scale[target] * weight[order] * scale[source])


@devices
@dtypes
@patterns
def test_inverse_roots_of_degrees_with_a_self_loop(edge_index: Tensor, dtype: torch.dtype, device: str) -> None:
    pattern, order = pattern_of(edge_index, device=device)
    weight = weights_of(edge_index)
    weight[edge_index[1] == 0] = -3.0  # such a degree has no root
    degree = 1 + dense(edge_index, N, weight).sum(1)
    expected = degree.clamp(min=1e-30).rsqrt().masked_fill(degree <= 0, 0.0)
    close(inverse_root_degrees(pattern, weight[order].to(device, dtype)), expected)


@devices
@dtypes
@pytest.mark.parametrize("with_scale", [True, False])
def test_the_gradient_before_a_relu(with_scale: bool, dtype: torch.dtype, device: str) -> None:
    x, grad, scale = features().to(device, dtype), features(3).to(device, dtype), features(4)[0].to(device, dtype)
    x[0, 0] = 0.0
    before = x.clone().requires_grad_()
    out = (before * scale if with_scale else before).relu()
    (expected,) = torch.autograd.grad(out, before, grad)
    close(relu_gradient(grad, out.detach(), scale if with_scale else None), expected)


@devices
def test_gathering(device: str) -> None:
    values, index = features().to(device), torch.tensor([3, 3, 0, 8], dtype=torch.int32, device=device)
    for given in (values, values[:, 1], values.float()[:, 0], torch.arange(N, device=device)):
        assert torch.equal(gathered(given, index), given[index.long()])
        assert gathered(given, index[:0]).shape == (0, *given.shape[1:])


@dtypes
def test_products_of_many_rows(dtype: torch.dtype) -> None:
    left, right = (features(seed, 8, 70_000).to(dtype) for seed in (1, 2))
    close(row_products(left, right), (left * right).sum(-1))
    assert row_products(left[:0], right[:0]).shape == (0,)


@pytest.mark.parametrize("shape", [(70_000, 8), (3, 1_000_000), (0, 4), (5, 0)])
def test_blocks_cover_all_rows_once(shape: tuple[int, int]) -> None:
    rows = torch.arange(shape[0])
    blocks = row_blocks(torch.empty(1).expand(shape))
    assert torch.equal(torch.cat([rows[block] for block in blocks]), rows)


@devices
def test_rows_with_very_many_entries_are_listed_where_kernels_want_them(device: str) -> None:
    pattern, _ = pattern_of(HUBS["hubs"], HUB_NODES, device)
    assert HUB_NODES > HUB_DEGREE
    assert pattern.hubs.tolist() == ([] if device == "cpu" else [0, 7])


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        (torch.bfloat16, torch.float32),
        (torch.float16, torch.float32),
        (torch.float32, torch.float32),
        (torch.float64, torch.float64),
    ],
)
def test_the_type_of_sums(dtype: torch.dtype, expected: torch.dtype) -> None:
    assert at_least_single(dtype) == expected


def test_gradients_of_others_are_not_prepared() -> None:
    """These products are called by hand-written functions, whose inputs may want gradients."""
    pattern, _ = pattern_of(PATTERNS["directed"])
    x = torch.randn(N, 3, generator=rng()).requires_grad_()
    assert not hop(pattern, torch.ones(pattern.col.numel()), x).requires_grad
