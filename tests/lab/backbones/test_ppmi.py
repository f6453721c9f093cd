from __future__ import annotations

import pytest
import torch
from torch import Tensor

from graphmend.lab.backbones import DualGCN
from graphmend.lab.backbones.dual_gcn import ppmi_graph
from support.graphs import dense, directed, rng, undirected
from support.untouched import assert_same, generator_states

N = 8


def expected(edge_index: Tensor, weight: Tensor | None, length: int) -> Tensor:
    """What infinitely many walks find: powers of the transition matrix, times how many walks get that far."""
    a = dense(edge_index, N, weight)
    a = a + a.t()
    step = a / a.sum(1, keepdim=True).clamp(min=1e-300)
    visits = sum((length - k + 1) / length * torch.linalg.matrix_power(step, k) for k in range(1, length + 1))
    assert isinstance(visits, Tensor)
    share = visits / visits.sum(1, keepdim=True).clamp(min=1e-300)
    return (share / (share.sum(0) / N).clamp(min=1e-300)).clamp(min=1e-300).log().clamp(min=0)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kind", ["undirected", "directed"])
@pytest.mark.parametrize("length", [1, 3, 10])
def test_many_walks_find_what_powers_of_the_transitions_say(kind: str, weighted: bool, length: int) -> None:
    edge_index = undirected(N, 2) if kind == "undirected" else directed(N, 2)
    weight = torch.rand(edge_index.size(1), generator=rng(1)) + 0.1 if weighted else None
    edges, values = ppmi_graph(edge_index, weight, N, walks=20000, length=length)
    assert values.dtype == torch.float64 and (values > 0).all()
    found = dense(edges, N, values)  # row: where a walk starts, column: whom it visits
    assert (found - expected(edge_index, weight, length)).abs().max() < 0.05
    assert not found[N - 1].any() and not found[:, N - 1].any()  # a node without edges


def test_it_is_a_function_of_the_graph() -> None:
    edge_index = undirected(N, 3)
    shuffled = edge_index[:, torch.randperm(edge_index.size(1), generator=rng(5))]
    before = generator_states()
    one = ppmi_graph(edge_index, None, N)
    torch.rand(3)
    assert all(map(torch.equal, one, ppmi_graph(shuffled, None, N)))
    torch.set_rng_state(before[0])
    ppmi_graph(edge_index, None, N)
    assert_same(before, generator_states())


def test_no_walk_takes_an_edge_of_weight_zero() -> None:
    edge_index = undirected(N, 4)
    keep = torch.arange(edge_index.size(1)) % 3 > 0
    zeroed, removed = ppmi_graph(edge_index, keep.float(), N), ppmi_graph(edge_index[:, keep], None, N)
    assert all(map(torch.equal, zeroed, removed))
    edges, values = ppmi_graph(edge_index, keep.float() * 0, N)
    assert edges.shape == (2, 0) and values.numel() == 0


def test_the_graph_is_computed_once_per_edge_list(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def counting(*args: Tensor, **kwargs: int) -> tuple[Tensor, Tensor]:
        calls.append(1)
        return ppmi_graph(*args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr("graphmend.lab.backbones.dual_gcn.ppmi_graph", counting)
    model, x, edge_index = DualGCN(3, 4, 2), torch.rand(N, 3), undirected(N, 3)
    for _ in range(3):
        model(x, edge_index)
    assert len(calls) == 1
    edge_index[0, 0] = (edge_index[0, 0] + 1) % N
    model(x, edge_index)
    assert len(calls) == 2
