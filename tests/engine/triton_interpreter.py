"""Runs every Triton kernel in Triton's interpreter, on a CPU, and compares it with what a CPU does otherwise.

Started by ``test_triton.py`` with ``TRITON_INTERPRET=1``, which must be set before the kernels are imported. Prints the
largest error of every comparison, relative to the largest number, as JSON: ``{kernel: {case: error}}``.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from graphmend.engine import ops
from graphmend.engine.adjacency import Adjacency
from graphmend.engine.cosine import mean_cosines
from graphmend.engine.gat import attend
from graphmend.engine.gatv2 import attend_v2
from graphmend.engine.ops import Pattern
from graphmend.engine.triton import cosine, gat, gatv2, spmm
from graphmend.engine.tuning import HUB_DEGREE
from support.graphs import directed, rng

SPOKES = torch.stack([torch.randint(10, (260,), generator=rng(8)), torch.zeros(260, dtype=torch.long)])
GRAPHS = {
    "small": (directed(9, loops=True), 9),  # the last node is isolated
    "hubs": (torch.cat([SPOKES, SPOKES.flip(0)], dim=1), 12),  # node 0, by edges that are repeated
    "one way": (SPOKES, 12),  # a hub in one direction only; the last nodes are isolated
}
HEADS = {"small": ((1, 5, 1.0), (3, 33, 10.0), (1, 130, 1.0)), "hubs": ((2, 5, 1.0),), "one way": ((1, 3, 10.0),)}
ERRORS: dict[str, dict[str, float]] = defaultdict(dict)


def note(kernel: str, case: str, *pairs: tuple[Tensor, Tensor]) -> None:
    """Keep the error of results beside those expected; two tensors that differ in shape differ by infinity."""
    errors = []
    for actual, expected in pairs:
        same = actual.shape == expected.shape and actual.dtype == expected.dtype
        scale = max(1.0, float(expected.abs().max())) if expected.numel() else 1.0
        difference = float((actual - expected).abs().max()) if same and actual.numel() else 0.0
        errors.append(difference / scale if same else float("inf"))
    ERRORS[kernel][case] = max(errors)


def with_hubs(pattern: Pattern) -> Pattern:
    """The pattern as it is on a GPU, where rows with very many entries are listed."""
    return pattern._replace(hubs=(pattern.crow.diff() > HUB_DEGREE).nonzero().view(-1).to(pattern.crow.dtype))


def graphs() -> Iterator[tuple[str, Adjacency, Pattern, Pattern]]:
    """Each with its pattern and the transpose of it as they are on a GPU."""
    for name, (edge_index, nodes) in GRAPHS.items():
        adjacency = Adjacency(edge_index, nodes)
        pattern, transpose = with_hubs(adjacency.pattern), with_hubs(adjacency.transpose)
        assert (pattern.hubs.numel(), transpose.hubs.numel()) == {"small": (0, 0), "hubs": (1, 1), "one way": (1, 0)}[
            name
        ]
        yield name, adjacency, pattern, transpose


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=rng(seed))


def compare_sparse_products() -> None:
    for name, adjacency, pattern, _ in graphs():
        nodes, entries = adjacency.num_nodes, adjacency.row.numel()
        values, weight = normal(entries, seed=1), torch.rand(entries, generator=rng(2)) - 0.1
        for width in (1, 33, 130):
            x, left = normal(nodes, width), normal(nodes, width, seed=3)
            around: dict[str, Any] = {"loop": normal(nodes, seed=4), "add": left, "relu": True}
            around |= {"scale": normal(width, seed=5), "shift": normal(width, seed=6)}
            for case, extra in (("alone", {}), ("with everything around it", around)):
                expected = ops.hop(adjacency.pattern, values, x, **extra)
                note("spmm.hop", f"{name}, width {width}, {case}", (spmm.hop(pattern, values, x, **extra), expected))
            expected = ops.sampled_product(adjacency.pattern, left, x)
            note("spmm.sampled_product", f"{name}, width {width}", (spmm.sampled_product(pattern, left, x), expected))
        sums = ops.row_sums(adjacency.pattern, values), ops.inverse_root_degrees(adjacency.pattern, weight)
        note("spmm.row_sums", name, (spmm.row_sums(pattern, values), sums[0]))
        note("spmm.row_sums", f"{name}, inverse roots", (spmm.row_sums(pattern, weight, inverse_root=True), sums[1]))
        scale = normal(nodes, seed=7)
        note("spmm.scaled", name, (spmm.scaled(pattern, scale, values), ops.scaled(adjacency.pattern, scale, values)))
        note("spmm.gathered", name, (spmm.gathered(values, adjacency.tperm), values[adjacency.tperm.long()]))
    empty = Adjacency(torch.empty(2, 0, dtype=torch.long), 5)
    note("spmm.hop", "no edges", (spmm.hop(with_hubs(empty.pattern), torch.empty(0), normal(5, 3)), torch.zeros(5, 3)))
    note("spmm.row_sums", "no edges", (spmm.row_sums(with_hubs(empty.pattern), torch.empty(0)), torch.zeros(5)))
    grad, out, scale = normal(70, 33), normal(70, 33, seed=1).relu(), normal(33, seed=2)
    for case, factor in (("scaled", scale), ("not scaled", None)):
        expected = ops.relu_gradient(grad.clone(), out, factor)
        note("spmm.relu_gradient", case, (spmm.relu_gradient(grad, out, factor), expected))
    strided = normal(9, 12)
    small = Adjacency(*GRAPHS["small"])
    values, x = normal(small.row.numel(), 2, seed=1)[:, 0], strided[:, ::3]
    note("spmm.hop", "strided", (spmm.hop(with_hubs(small.pattern), values, x), ops.hop(small.pattern, values, x)))


def scores(*shape: int, far: float, seed: int) -> Tensor:
    return far * normal(*shape, seed=seed)


def compare_gat() -> None:
    for name, adjacency, pattern, transpose in graphs():
        nodes, entries = adjacency.num_nodes, adjacency.row.numel()
        weight = torch.rand(entries, generator=rng(4))
        weight = (weight * (weight > 1 / 3)).masked_fill(adjacency.is_loop, 0.0)
        for heads, width, far in HEADS[name]:
            case = f"{name}, {heads} heads of width {width}"
            h, seen = normal(nodes, heads, width), normal(nodes, heads, width, seed=9)
            source, target = (scores(nodes, heads, far=far, seed=seed) for seed in (2, 3))
            leaves = [t.clone().requires_grad_() for t in (h, source, target, weight)]
            out = attend(adjacency, *leaves)
            wanted = torch.autograd.grad((out * seen).sum(), leaves)
            ours, top, inverse = gat.forward(h, source, target, weight, pattern, 0.2)
            saved = (h, source, target, top, inverse)
            inner, by_target, by_weight = gat.by_row(seen, ours, weight, *saved, pattern, 0.2, True)
            by_h, by_source = gat.by_column(seen, inner, adjacency.transposed(weight), *saved, transpose, 0.2)
            note("gat.forward", case, (ours, out.detach()))
            note("gat.by_row", case, (by_target, wanted[2]), (by_weight, wanted[3]))
            note("gat.by_column", case, (by_h, wanted[0]), (by_source, wanted[1]))
            again = gat.by_row(seen, ours, weight, *saved, pattern, 0.2, False)
            unwanted = again[2] is None
            note("gat.by_row", f"{case}, without weights", (again[1], wanted[2] if unwanted else wanted[3]))


def compare_gatv2() -> None:
    for name, adjacency, pattern, transpose in graphs():
        nodes, entries = adjacency.num_nodes, adjacency.row.numel()
        weight = torch.rand(entries, generator=rng(4))
        weight = (weight * (weight > 1 / 3)).masked_fill(adjacency.is_loop, 0.0)
        for heads, width, far in HEADS[name]:
            case = f"{name}, {heads} heads of width {width}"
            left, right, seen = (normal(nodes, heads, width, seed=seed) for seed in (0, 1, 9))
            vector = scores(heads, width, far=far / width**0.5, seed=3)
            leaves = [t.clone().requires_grad_() for t in (left, right, weight)]
            out = attend_v2(adjacency, leaves[0], leaves[1], vector, leaves[2])
            wanted = torch.autograd.grad((out * seen).sum(), leaves)
            ours, top, inverse = gatv2.forward(left, right, vector, weight, pattern, 0.2)
            saved = (left, right, vector, top, inverse)
            inner, by_right, by_weight = gatv2.by_row(seen, ours, weight, *saved, pattern, 0.2, True, True)
            by_left = gatv2.by_column(seen, inner, adjacency.transposed(weight), *saved, transpose, 0.2)
            note("gatv2.forward", case, (ours, out.detach()))
            note("gatv2.by_row", case, (by_right, wanted[1]), (by_weight, wanted[2]))
            note("gatv2.by_column", case, (by_left, wanted[0]))
            for wants in ((True, False), (False, True), (False, False)) if name == "small" else ():
                dots, *others = gatv2.by_row(seen, ours, weight, *saved, pattern, 0.2, *wants)
                given = [(inner, dots)]
                given += [(a, b) for a, b in zip(others, wanted[1:], strict=True) if a is not None]
                if [a is not None for a in others] != list(wants):
                    given = [(inner, inner.new_empty(0))]
                note("gatv2.by_row", f"{case}, only {wants}", *given)


def compare_cosines() -> None:
    for rows, width, others in ((7, 5, 1), (70, 33, 2), (3, 130, 2), (9, 1, 1)):
        matrices = [normal(rows, width, seed=seed) for seed in range(1 + others)]
        matrices[0][1] = matrices[1][2] = 0.0
        compare_one_cosine(f"{others} others, {rows} rows of width {width}", matrices)
    wide = [normal(6, 9, seed=seed) for seed in range(2)]
    compare_one_cosine("strided rows", [matrix[:, :4] for matrix in wide])
    compare_one_cosine("columns first", [matrix.t().contiguous().t() for matrix in wide])


def compare_one_cosine(case: str, matrices: list[Tensor]) -> None:
    steps = normal(len(matrices) - 1, seed=8)
    leaves = [matrix.clone().requires_grad_() for matrix in matrices]
    means = mean_cosines(*leaves)
    wanted = torch.autograd.grad((means * steps).sum(), leaves)
    inverses, cosines = cosine.cosines(*matrices)
    note("cosine.cosines", case, (cosines.mean(1), means.detach()))
    rows = matrices[0].size(0)
    grads = cosine.cosine_gradients(*matrices, inverses=inverses, cosines=cosines, steps=steps / rows)
    note("cosine.cosine_gradients", case, *zip(grads, wanted, strict=True))


def main() -> None:
    """Compare everything."""
    torch.set_num_threads(1)
    for compare in (compare_sparse_products, compare_gat, compare_gatv2, compare_cosines):
        compare()
    json.dump(ERRORS, sys.stdout)
