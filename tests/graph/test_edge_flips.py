"""Edge flips against dense matrices: A xor p, its gradients, the budget, and the discrete graphs."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv

from graphmend.engine.cache import caching
from graphmend.errors import GraphMendError
from graphmend.graph.edge_flips import EdgeFlips
from graphmend.lab.backbones import GCN
from graphmend.model import FrozenGNN
from support.graphs import dense, dense_norm, directed, rng, undirected

N = 9
GRAPHS: dict[str, tuple[Tensor, dict[str, Any]]] = {
    "undirected": (undirected(N), {}),
    "undirected with self-loops": (undirected(N, 1, loops=True), {}),
    "directed": (directed(N), {}),
    "directed with self-loops": (directed(N, 1, loops=True), {}),
    "reversal": (directed(N, 2, loops=True), {"directed": "reverse"}),
    "undirected block": (undirected(N, 3, loops=True), {"space": "random_block", "block_size": 8}),
    "directed block": (directed(N, 3, loops=True), {"space": "random_block", "block_size": 8}),
    "reversal block": (
        directed(N, 3, loops=True),
        {"directed": "reverse", "space": "random_block", "block_size": 200},
    ),
    "no isolated nodes": (undirected(N, 4, isolated=0), {"space": "random_block", "block_size": 8}),
}
graphs = pytest.mark.parametrize(("edge_index", "options"), GRAPHS.values(), ids=GRAPHS)


def make(edge_index: Tensor, budget: float | int = 0.5, **options: Any) -> EdgeFlips:
    return EdgeFlips.of(edge_index, N, budget=budget, dtype=torch.float64, generator=rng(), **options)


def random_p(flips: EdgeFlips, seed: int = 5) -> Tensor:
    return torch.rand(flips.num_candidates, generator=rng(seed), dtype=torch.float64)


def dense_flips(flips: EdgeFlips, p: Tensor) -> Tensor:
    """``P[target, source]``: the flip probability of every pair that has one."""
    of_entry = p[flips.candidate.clamp(min=0)] * (flips.candidate >= 0)
    return dense(flips.edge_index, N, of_entry)


def xor(a: Tensor, p: Tensor) -> Tensor:
    return a * (1 - p) + (1 - a) * p


def pairs(edge_index: Tensor) -> set[tuple[int, int]]:
    return set(zip(*edge_index.tolist(), strict=True))


@graphs
def test_every_entry_is_there_once_and_the_graph_comes_first(edge_index: Tensor, options: dict[str, Any]) -> None:
    flips = make(edge_index, **options)
    assert torch.equal(flips.edge_index[:, : flips.num_edges], edge_index) and flips.num_edges == edge_index.size(1)
    assert len(pairs(flips.edge_index)) == flips.edge_index.size(1)
    assert torch.equal(flips.candidate.unique()[-flips.num_candidates :], torch.arange(flips.num_candidates))


@graphs
def test_which_entries_share_a_candidate(edge_index: Tensor, options: dict[str, Any]) -> None:
    flips = make(edge_index, **options)
    stored, is_undirected = pairs(edge_index), pairs(edge_index) == pairs(edge_index.flip(0))
    of = dict(zip(zip(*flips.edge_index.tolist(), strict=True), flips.candidate.tolist(), strict=True))
    owners: dict[int, set[tuple[int, int]]] = {}
    for pair, c in of.items():
        owners.setdefault(c, set()).add(pair)
    fixed = owners.pop(-1, set())
    for i, j in stored:
        if i == j or (options.get("directed") == "reverse" and i > j and (j, i) not in stored):
            assert (i, j) in fixed
        else:
            assert (i, j) not in fixed
    for group in owners.values():
        (i, j), *rest = sorted(group)
        if is_undirected or (options.get("directed") == "reverse" and stored & group):
            assert rest == [(j, i)] and i < j
        else:
            assert not rest and i != j


@graphs
def test_presence_and_its_gradient_are_those_of_a_dense_xor(edge_index: Tensor, options: dict[str, Any]) -> None:
    flips = make(edge_index, **options)
    a, seen = dense(edge_index, N), torch.randn(N, N, generator=rng(7), dtype=torch.float64)
    ours, theirs = random_p(flips).requires_grad_(), random_p(flips).requires_grad_()
    relaxed = dense(flips.edge_index, N, flips.presence(ours))
    expected = xor(a, dense_flips(flips, theirs))
    torch.testing.assert_close(relaxed, expected, rtol=0, atol=1e-15)
    (relaxed * seen).sin().sum().backward()
    (expected * seen).sin().sum().backward()
    torch.testing.assert_close(ours.grad, theirs.grad)
    assert torch.autograd.gradcheck(flips.presence, (random_p(flips).requires_grad_(),))


@graphs
@pytest.mark.parametrize("where", ["inside", "zero", "one"])
def test_a_gcn_and_its_gradients_on_the_relaxed_graph(edge_index: Tensor, options: dict[str, Any], where: str) -> None:
    flips = make(edge_index, **options)
    p = {"inside": random_p, "zero": lambda f: random_p(f) * 0, "one": lambda f: random_p(f) * 0 + 1}[where](flips)
    x = torch.randn(N, 3, generator=rng(8), dtype=torch.float64)
    model = gcn()
    first, last = model.convs
    ours, theirs = p.clone().requires_grad_(), p.clone().requires_grad_()
    out = model(x, flips.edge_index, flips.presence(ours))
    hat = dense_norm(xor(dense(edge_index, N), dense_flips(flips, theirs)))
    expected = hat @ torch.relu(hat @ x @ first.weight + first.bias) @ last.weight + last.bias
    torch.testing.assert_close(out, expected)
    out.square().sum().backward()
    expected.square().sum().backward()
    torch.testing.assert_close(ours.grad, theirs.grad)
    assert torch.autograd.gradcheck(lambda p: model(x, flips.edge_index, flips.presence(p)), p.requires_grad_())


def gcn() -> GCN:
    torch.manual_seed(0)
    model = GCN(3, 4, 2).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3)
    return model.requires_grad_(False)


class WithGCNConv(nn.Module):
    """A user's own model that takes edge weights."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = GCNConv(3, 2)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        return self.conv(x, edge_index, edge_weight)


@pytest.mark.parametrize("kind", ["ours", "PyG"])
@pytest.mark.parametrize("name", ["undirected", "directed", "undirected block", "directed block", "reversal"])
def test_user_weights_become_w_times_one_minus_p(name: str, kind: str) -> None:
    edge_index, options = GRAPHS[name]
    edge_index = edge_index[:, edge_index[0] != edge_index[1]]  # what a weighted self-loop is differs between the two
    flips = make(edge_index, **options)
    x = torch.randn(N, 3, generator=rng(8), dtype=torch.float64)
    weight = torch.rand(edge_index.size(1), generator=rng(9), dtype=torch.float64) + 0.5
    ours, theirs = random_p(flips).requires_grad_(), random_p(flips).requires_grad_()
    torch.manual_seed(1)
    model = gcn() if kind == "ours" else WithGCNConv().double()
    data = Data(x=x, edge_index=edge_index, edge_weight=weight)
    with FrozenGNN(model, data) as frozen:
        out = frozen(x, flips.edge_index, flips.presence(ours))
    a, p = dense(edge_index, N), dense_flips(flips, theirs)
    hat = dense_norm(dense(edge_index, N, weight) * (1 - p) + (1 - a) * p)  # new edges have weight 1
    if kind == "ours":
        first, last = model.convs
        expected = hat @ torch.relu(hat @ x @ first.weight + first.bias) @ last.weight + last.bias
    else:
        expected = hat @ x @ model.conv.lin.weight.t() + model.conv.bias
    torch.testing.assert_close(out, expected)
    out.square().sum().backward()
    expected.square().sum().backward()
    torch.testing.assert_close(ours.grad, theirs.grad)


def test_at_the_start_nothing_is_flipped_and_an_existing_edge_has_derivative_minus_one() -> None:
    """The released code compares with 1, strictly: at p = 0 the derivative of an existing edge had the wrong sign."""
    flips = make(GRAPHS["undirected block"][0], **GRAPHS["undirected block"][1])
    p = flips.p.clone().requires_grad_()
    presence = flips.presence(p)
    exists = torch.arange(presence.numel()) < flips.num_edges
    assert torch.equal(presence.detach(), exists.double())
    presence[:10].sum().backward()
    touched = flips.candidate[:10][flips.candidate[:10] >= 0]
    expected = torch.zeros_like(p).index_add(0, touched, torch.full((touched.numel(),), -1.0, dtype=p.dtype))
    assert torch.equal(p.grad, expected)


@pytest.mark.parametrize("options", [{}, {"directed": "reverse"}, {"space": "random_block"}])
def test_repeated_edges_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(GraphMendError, match=r"lists 2 edges more than once, first 1 -> 3; merge .*coalesce"):
        make(torch.tensor([[1, 0, 1, 2, 2], [3, 1, 3, 4, 4]]), **options)


# ---------------------------------------------------------------- budget


@pytest.mark.parametrize(
    ("budget", "expected"), [(0.0, 0), (0.3, 3), (0.35, 3), (1.0, 10), (4, 4), (0, 0), (1, 1), (99, 10), (0.099, 0)]
)
def test_the_budget_counts_undirected_edges_once(budget: float | int, expected: int) -> None:
    """Ten edges in a circle with a chord each way; two self-loops that do not count."""
    ring = torch.tensor([[i, (i + 1) % N] for i in range(N)] + [[0, 4]]).t()
    edge_index = torch.cat([ring, ring.flip(0), torch.tensor([[2, 3], [2, 3]])], dim=1)
    flips = make(edge_index, budget)
    assert flips.num_candidates == 10 and flips.budget == expected


@pytest.mark.parametrize("percent", range(0, 101, 1))
def test_the_budget_is_not_lost_to_rounding(percent: int) -> None:
    """In floats 0.29 * 100 is 28.999999999999996."""
    ring = torch.stack([torch.arange(100), torch.arange(1, 101)])
    assert EdgeFlips.of(ring, 101, budget=percent / 100).budget == percent


@pytest.mark.parametrize(("budget", "expected"), [(0.5, 5), (0.3, 3), (1.0, 10), (7, 7), (1, 1)])
def test_the_budget_counts_directed_edges(budget: float | int, expected: int) -> None:
    ring = torch.tensor([[i, (i + 1) % N] for i in range(N)] + [[0, 4], [1, 1]]).t()
    assert make(ring, budget).budget == expected


@pytest.mark.parametrize("ratio", [0.0, 0.1, 0.3, 0.5, 0.77, 1.0])
@pytest.mark.parametrize("seed", range(4))
def test_the_budget_of_reversal_is_half_of_the_stored_entries(ratio: float, seed: int) -> None:
    edge_index = directed(N, seed, density=0.4, loops=True)
    flips = make(edge_index, ratio, directed="reverse")
    assert flips.budget == min(math.floor(ratio * edge_index.size(1) / 2 + 1e-9), flips.num_candidates)


def test_added_pairs_do_not_raise_the_budget() -> None:
    edge_index = undirected(N, 3)
    assert make(edge_index, 0.5, space="random_block").budget == make(edge_index, 0.5).budget


# ---------------------------------------------------------------- candidates


def test_a_frozen_edge_is_frozen_in_both_directions() -> None:
    edge_index = undirected(N)
    frozen = torch.zeros(edge_index.size(1), dtype=torch.bool)
    frozen[[0, 5]] = True
    flips = make(edge_index, frozen=frozen)
    fixed = pairs(edge_index[:, [0, 5]]) | pairs(edge_index[:, [0, 5]].flip(0))
    assert pairs(flips.edge_index[:, flips.candidate < 0]) == fixed
    assert flips.num_candidates == (edge_index.size(1) - len(fixed)) // 2


def test_a_frozen_directed_edge_is_frozen_alone() -> None:
    edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 3]])
    flips = make(edge_index, frozen=torch.tensor([True, False, False, False]))
    assert flips.candidate.tolist() == [-1, 0, 1, 2]
    flips = make(edge_index, directed="reverse", frozen=torch.tensor([True, False, False, False]))
    assert flips.candidate.tolist() == [-1, -1, 0, 1, 0, 1]


@settings(max_examples=60)
@given(st.integers(0, 1000), st.sampled_from(["existing", "random_block"]), st.sampled_from(["delete", "reverse"]))
def test_frozen_edges_never_flip(seed: int, space: str, mode: str) -> None:
    build = undirected if seed % 2 else directed
    edge_index = build(N, seed, loops=True)
    frozen = torch.rand(edge_index.size(1), generator=rng(seed)) < 0.4
    flips = make(edge_index, 1000, space=space, directed=mode, frozen=frozen)
    removed, _ = flips.changes(torch.ones(flips.num_candidates, dtype=torch.bool))
    assert not frozen[removed].any()


def test_no_candidates_still_is_a_function_of_p() -> None:
    """All edges frozen: features can still be learned, and an edge step is a step of nothing, not an error."""
    edge_index = undirected(N)
    flips = make(edge_index, frozen=torch.ones(edge_index.size(1), dtype=torch.bool))
    p = flips.p.requires_grad_()
    presence = flips.presence(p)
    assert flips.num_candidates == flips.budget == 0 and torch.equal(presence.detach(), torch.ones_like(presence))
    (gradient,) = torch.autograd.grad(presence.sum(), p)
    assert gradient.shape == (0,)
    assert [name for name, _ in flips.discrete(5)] == ["identity"]
    removed, added = flips.changes(torch.zeros(0, dtype=torch.bool))
    assert removed.shape == (0,) and added.shape == (2, 0)


def test_a_random_block_is_made_of_new_pairs() -> None:
    for build, seed in itertools.product((undirected, directed), range(5)):
        edge_index = build(N, seed, loops=True)
        flips = make(edge_index, space="random_block", block_size=10)
        new = flips.edge_index[:, flips.num_edges :]
        assert not pairs(new) & pairs(edge_index) and not any(i == j for i, j in pairs(new))
        assert 1 <= new.size(1) <= (20 if build is undirected else 10)
        others = EdgeFlips.of(edge_index, N, budget=1, space="random_block", block_size=10, generator=rng(1))
        assert pairs(others.edge_index) != pairs(flips.edge_index)


def test_a_large_block_offers_every_missing_pair() -> None:
    edge_index = undirected(N, 3)
    flips = make(edge_index, space="random_block", block_size=10_000)
    assert len(pairs(flips.edge_index)) == N * (N - 1) and flips.num_candidates == N * (N - 1) // 2


def test_an_empty_block() -> None:
    edge_index = undirected(N, 3)
    flips = make(edge_index, space="random_block", block_size=0)
    assert torch.equal(flips.edge_index, edge_index)


# ---------------------------------------------------------------- reversal, PROTOCOL 2.13


def test_reversal_turns_single_edges_and_deletes_pairs() -> None:
    edge_index = torch.tensor([[0, 3, 4, 5, 6, 1], [1, 2, 5, 4, 6, 7]])  # 0->1, 3->2, 4<->5, a loop, 1->7
    flips = make(edge_index, 1.0, directed="reverse")
    assert flips.num_candidates == 3 and flips.budget == 3
    assert flips.candidate.tolist() == [0, -1, 2, 2, -1, 1, 0, 1]
    assert flips.edge_index[:, 6:].tolist() == [[1, 7], [0, 1]]
    p = torch.tensor([0.25, 0.5, 0.125], dtype=torch.float64)
    assert flips.presence(p).tolist() == [0.75, 1.0, 0.875, 0.875, 1.0, 0.5, 0.25, 0.5]
    removed, added = flips.changes(torch.tensor([True, False, True]))
    assert removed.tolist() == [0, 2, 3] and added.tolist() == [[1], [0]]


def test_reversal_of_an_undirected_graph_is_deletion() -> None:
    edge_index = undirected(N)
    a, b = make(edge_index), make(edge_index, directed="reverse")
    assert torch.equal(a.candidate, b.candidate) and torch.equal(a.edge_index, b.edge_index)


# ---------------------------------------------------------------- discrete graphs


@graphs
def test_changes_are_a_dense_xor(edge_index: Tensor, options: dict[str, Any]) -> None:
    flips = make(edge_index, **options)
    for seed in range(5):
        chosen = random_p(flips, seed) < 0.5
        removed, added = flips.changes(chosen)
        keep = torch.ones(edge_index.size(1), dtype=torch.bool)
        keep[removed] = False
        after = torch.cat([edge_index[:, keep], added], dim=1)
        expected = xor(dense(edge_index, N), dense_flips(flips, chosen.double()))
        assert torch.equal(dense(after, N), expected)
        assert torch.equal(removed, removed.sort().values)
        weighted = dense(flips.edge_index, N, flips.presence(chosen.double()))
        assert torch.equal(weighted, expected)  # what was scored is what is returned
        assert torch.equal(flips.presence(chosen), flips.presence(chosen.double()))
        flips.p.copy_(chosen)
        assert torch.equal(flips.presence(), flips.presence(chosen))


def test_identity_and_top_come_first() -> None:
    flips = make(undirected(N), 2)
    flips.p.copy_(torch.linspace(0.1, 0.4, flips.num_candidates)[torch.randperm(flips.num_candidates, generator=rng())])
    (first, none), (second, top), *samples = flips.discrete(3, rng())
    assert (first, second) == ("identity", "top") and not none.any()
    assert int(top.sum()) == 2 and flips.p[top].min() > flips.p[~top].max()
    assert [name for name, _ in samples] == ["sample 1", "sample 2", "sample 3"]


@given(seed=st.integers(0, 1000), budget=st.integers(1, 6), chance=st.floats(0.05, 0.9))
@settings(max_examples=40)
def test_the_papers_candidates_are_whole_samples_within_the_budget(seed: int, budget: int, chance: float) -> None:
    flips = make(undirected(N), budget)
    flips.p.fill_(chance)
    drawn = dict(flips.discrete(20, rng(seed), "paper"))
    assert next(iter(drawn)) == "top" and all(int(chosen.sum()) <= flips.budget for chosen in drawn.values())
    generator = rng(seed)
    whole = [torch.rand(flips.p.numel(), generator=generator, dtype=flips.p.dtype) < flips.p for _ in range(20)]
    kept = {f"sample {k}": chosen for k, chosen in enumerate(whole, 1) if int(chosen.sum()) <= flips.budget}
    assert set(drawn) == {"top", *kept}, "a sample beyond the budget is rejected, not trimmed"
    assert all(torch.equal(drawn[name], chosen) for name, chosen in kept.items())


def test_top_takes_no_edge_that_was_not_wanted() -> None:
    flips = make(undirected(N), 3)
    flips.p[1] = 0.2
    top = dict(flips.discrete(0))["top"]
    assert top.nonzero().view(-1).tolist() == [1]


@pytest.mark.parametrize("budget", [0, 3])
def test_nothing_wanted_or_nothing_allowed_leaves_the_identity(budget: int) -> None:
    flips = make(undirected(N), budget)
    if budget == 0:
        flips.p.fill_(0.7)
    assert [name for name, _ in flips.discrete(5, rng())] == ["identity"]


def test_samples_respect_the_budget_differ_and_repeat_with_the_generator() -> None:
    flips = EdgeFlips.of(undirected(20), 20, budget=3)
    flips.p.fill_(0.9)  # nearly every draw is above the budget and loses flips at random
    draws = [chosen for _, chosen in flips.discrete(40, rng())]
    assert all(int(chosen.sum()) <= 3 for chosen in draws)
    assert len({tuple(chosen.tolist()) for chosen in draws[2:]}) > 20
    again = [chosen for _, chosen in flips.discrete(40, rng())]
    assert all(map(torch.equal, draws, again))
    other = [chosen for _, chosen in flips.discrete(40, rng(1))]
    assert not all(map(torch.equal, draws, other))
    counts = torch.stack(draws[2:]).sum(0)
    assert int((counts > 0).sum()) > flips.num_candidates // 2  # not always the first ones


@settings(max_examples=150)
@given(
    seed=st.integers(0, 10_000),
    is_undirected=st.booleans(),
    loops=st.booleans(),
    space=st.sampled_from(["existing", "random_block"]),
    mode=st.sampled_from(["delete", "reverse"]),
    budget=st.one_of(st.integers(0, 12), st.floats(0, 1)),
)
def test_whatever_is_drawn_is_a_graph(
    seed: int, is_undirected: bool, loops: bool, space: str, mode: str, budget: float | int
) -> None:
    edge_index = (undirected if is_undirected else directed)(N, seed, loops=loops)
    flips = make(edge_index, budget, space=space, block_size=6, directed=mode)
    flips.p.copy_(random_p(flips, seed))
    before = pairs(edge_index)
    for _, chosen in flips.discrete(3, rng(seed)):
        assert int(chosen.sum()) <= flips.budget
        removed, added = flips.changes(chosen)
        gone = pairs(edge_index[:, removed])
        new = pairs(added)
        assert len(new) == added.size(1) and not new & before
        assert not any(i == j for i, j in new | gone)
        after = (before - gone) | new
        if pairs(edge_index) == pairs(edge_index.flip(0)):
            assert after == {(j, i) for i, j in after}
            assert len(gone) + len(new) == 2 * int(chosen.sum())
        elif mode == "delete":
            assert len(gone) + len(new) == int(chosen.sum())


# ---------------------------------------------------------------- the variables


def test_without_an_argument_it_is_the_presence_of_the_variables() -> None:
    flips = make(undirected(N), 2)
    assert torch.equal(flips.presence(), torch.ones(flips.num_edges, dtype=torch.float64))
    flips.p.copy_(random_p(flips))
    assert torch.equal(flips.presence(), flips.presence(flips.p.clone()))


def test_a_presence_is_computed_once_while_the_variables_stand_still() -> None:
    flips, other = make(undirected(N), 2), make(undirected(N, 1), 2)
    with caching():
        first = flips.presence()
        assert flips.presence() is first and other.presence() is not first
        flips.p.fill_(0.5)
        assert torch.equal(flips.presence(), torch.full_like(first, 0.5))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_presences_have_the_type_of_the_variables(dtype: torch.dtype) -> None:
    flips = EdgeFlips.of(undirected(N), N, budget=2, dtype=dtype)
    chosen = torch.arange(flips.num_candidates) == 1
    assert flips.p.dtype == flips.presence().dtype == flips.presence(chosen).dtype == dtype
