"""A model on a graph in shards gives what it gives in memory: outputs, cards and verdicts, for any graph and layer."""

from __future__ import annotations

import copy
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
import torch_geometric.nn as pyg
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch_geometric.data import Data

from graphmend import FrozenGNN, GraphMendError, card, mend
from graphmend.adapters import Align, Impute, Purify
from graphmend.graph.mapped import MappedGraph
from graphmend.graph.shards import cut, plan, reached
from graphmend.model.reach import reach_of
from graphmend.model.sharded import ShardRun
from graphmend.shards import open_graph, pack
from graphmend.workers.local import Local

COLUMNS, CLASSES = 4, 3


class Own(nn.Module):
    """A model written by hand: means over neighbours of neighbours, and a product of both."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(COLUMNS, 8), nn.Linear(8, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        source, target = edge_index
        h = torch.tanh(self.first(x))
        for _ in range(2):
            around = torch.zeros_like(h).index_add_(0, target, h[source])
            degree = torch.bincount(target, minlength=x.size(0)).clamp(min=1).unsqueeze(1)
            h = h + around / degree
        return self.second(h)


class Propagated(nn.Module):
    """APPNP behind a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.propagate = nn.Linear(COLUMNS, CLASSES), pyg.APPNP(K=4, alpha=0.1)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.propagate(self.linear(x), edge_index)  # type: ignore[no-any-return]


class Pooled(nn.Module):
    """A model whose output depends on all nodes."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = pyg.GCNConv(COLUMNS, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        out = self.conv(x, edge_index)
        return out - out.mean(0)  # type: ignore[no-any-return]


def stacked(conv: Callable[[int, int], nn.Module]) -> nn.Module:
    arguments = "x, edge_index"
    first, second = (f"{arguments} -> x",) * 2
    return pyg.Sequential(arguments, [(conv(COLUMNS, 8), first), nn.ReLU(), (conv(8, CLASSES), second)])


MODELS: dict[str, tuple[Callable[[], nn.Module], int | None]] = {
    "GCN": (lambda: pyg.GCN(COLUMNS, 8, 2, CLASSES), 3),
    "SAGE": (lambda: pyg.GraphSAGE(COLUMNS, 8, 2, CLASSES), 2),
    "GAT": (lambda: pyg.GAT(COLUMNS, 8, 2, CLASSES), 2),
    "GATv2": (lambda: pyg.GAT(COLUMNS, 8, 2, CLASSES, v2=True), 2),
    "GIN": (lambda: pyg.GIN(COLUMNS, 8, 2, CLASSES), 2),
    "GraphConv": (lambda: stacked(pyg.GraphConv), 2),
    "APPNP": (Propagated, 5),
    "by hand": (Own, 2),
}
KINDS = ["random", "star in", "star out", "path", "power law", "loops", "isolated"]


def edges_of(kind: str, nodes: int, generator: torch.Generator) -> Tensor:
    numbers = torch.arange(nodes)
    if kind == "star in":
        return torch.stack([numbers, torch.zeros_like(numbers)])[:, 1:]
    if kind == "star out":
        return torch.stack([torch.zeros_like(numbers), numbers])[:, 1:]
    if kind == "path":
        return torch.stack([numbers[1:], numbers[:-1]])
    if kind == "loops":
        return torch.stack([numbers, numbers.roll(1)]).repeat(1, 2).where(torch.rand(2 * nodes) < 2, numbers[:1])
    far = torch.rand(3 * nodes, generator=generator)
    target = (far.square() * nodes).long() if kind == "power law" else (far * nodes).long()
    source = torch.randint(max(1, nodes // 2 if kind == "isolated" else nodes), (3 * nodes,), generator=generator)
    return torch.stack([source, target.clamp(max=nodes // 2 if kind == "isolated" else nodes - 1)])


def graph(kind: str, nodes: int, seed: int, both: bool) -> Data:
    generator = torch.Generator().manual_seed(seed)
    edges = edges_of(kind, nodes, generator)
    edges = torch.cat([edges, edges.flip(0)], dim=1) if both else edges
    if kind == "loops":
        edges = torch.cat([edges, torch.arange(nodes).expand(2, -1)], dim=1)
    edges = edges[:, (edges[1] * nodes + edges[0]).argsort()]
    return Data(x=torch.rand(nodes, COLUMNS, generator=generator), edge_index=edges, y=torch.arange(nodes) % CLASSES)


def in_shards(data: Data, shards: int | None) -> MappedGraph:
    """The same graph as it would be mapped from a folder."""
    out = MappedGraph(**data.to_dict())
    offsets = torch.searchsorted(data.edge_index[1].contiguous(), torch.arange(data.num_nodes + 1))
    source, target = data.edge_index
    forth, back = (target * data.num_nodes + source).sort().values, (source * data.num_nodes + target).sort().values
    out.mapped_from(Path("nowhere"), offsets, symmetric=torch.equal(forth, back), shards=shards)
    return out


def model_of(name: str, seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return MODELS[name][0]().eval()


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("both", [False, True], ids=["directed", "both directions"])
def test_the_reach_is_measured(name: str, both: bool) -> None:
    data = graph("random", 60, 0, both)
    assert reach_of(model_of(name), data, both, 0, frozenset(), None) == MODELS[name][1]


def test_a_model_that_looks_at_all_nodes_has_no_reach() -> None:
    assert reach_of(Pooled().eval(), graph("random", 60, 0, True), True, 0, frozenset(), None) is None


@settings(max_examples=50, deadline=None)
@given(
    name=st.sampled_from(list(MODELS)),
    kind=st.sampled_from(KINDS),
    nodes=st.integers(2, 40),
    shards=st.integers(1, 9),
    seed=st.integers(0, 99),
    both=st.booleans(),
)
def test_outputs_are_those_in_memory(name: str, kind: str, nodes: int, shards: int, seed: int, both: bool) -> None:
    data, model = graph(kind, nodes, seed, both), model_of(name, seed)
    with FrozenGNN(model, data) as frozen:
        expected = frozen.predict(data)
    mapped = in_shards(data, shards)
    with FrozenGNN(model, mapped) as frozen:
        assert (frozen._shards(mapped.x, mapped.edge_index, None) is None) == (shards == 1), "it should run in shards"
        found = frozen.predict(mapped)
        seen, whole = frozen.observe(mapped), frozen.embed(mapped.x, mapped.edge_index)
    assert torch.allclose(found, expected, rtol=1e-4, atol=1e-5)
    assert torch.allclose(seen.logits, expected, rtol=1e-4, atol=1e-5)
    assert torch.allclose(seen.z, whole, rtol=1e-4, atol=1e-5)


@settings(max_examples=50, deadline=None)
@given(
    name=st.sampled_from(list(MODELS)),
    kind=st.sampled_from(KINDS),
    nodes=st.integers(20, 60),
    shards=st.integers(1, 9),
    seed=st.integers(0, 99),
    both=st.booleans(),
    mender=st.sampled_from([Impute(), Align(), Purify()]),
)
def test_menders_make_the_changes_that_they_make_in_memory(
    name: str, kind: str, nodes: int, shards: int, seed: int, both: bool, mender: Impute | Align | Purify
) -> None:
    train, test, model = graph(kind, nodes, seed, both), graph(kind, nodes, seed + 1, both), model_of(name, seed)
    test.x[:3] *= 1000 if isinstance(mender, Impute) else 1.5
    made = card(model, train)
    expected, found = mender(model, test, card=made), mender(model, in_shards(test, shards), card=made)
    assert (found.reason is None) == (expected.reason is None)
    assert torch.equal(found.patch.rows, expected.patch.rows) or not isinstance(mender, Impute)
    assert torch.equal(found.patch.removed, expected.patch.removed)
    scale = float(expected.data.x.abs().max())
    assert torch.allclose(found.data.x, expected.data.x, rtol=1e-2, atol=1e-3 * scale)


@settings(max_examples=60, deadline=None)
@given(kind=st.sampled_from(KINDS), nodes=st.integers(2, 30), hops=st.integers(0, 4), seed=st.integers(0, 99))
def test_a_halo_is_what_reaches_the_owned_nodes(kind: str, nodes: int, hops: int, seed: int) -> None:
    """Compared with powers of the adjacency matrix."""
    data = graph(kind, nodes, seed, False)
    offsets = in_shards(data, 2).offsets()
    assert offsets is not None
    start, end = nodes // 3, nodes // 3 + 1 + nodes // 4
    steps, near = torch.zeros(nodes, nodes), torch.zeros(nodes)
    steps[data.edge_index[0], data.edge_index[1]] = 1
    near[start:end] = 1
    for _ in range(hops):
        near = ((near + steps @ near) > 0).float()
    inside, _ = reached(data, offsets, start, end, hops)
    assert sorted(inside.tolist()) == near.nonzero().view(-1).tolist()
    shard = next(cut(data, offsets, [(start, end)], hops))
    assert torch.equal(shard.data.x[: end - start], data.x[start:end])
    assert (shard.start, shard.owned) == (start, end - start)


@pytest.mark.parametrize("shards", [1, 2, 5, 9])
@pytest.mark.parametrize("name", ["GCN", "SAGE", "by hand"])
@pytest.mark.parametrize("fault", ["none", "rows", "shift", "missing"])
def test_card_and_verdict_are_those_in_memory(name: str, shards: int, fault: str) -> None:
    train, test, model = graph("random", 200, 1, True), graph("random", 200, 2, True), model_of(name)
    if fault == "rows":
        test.x[:9] *= 1000
    if fault == "shift":
        test.x = test.x * 0.3 + 2
    if fault == "missing":
        test.x[torch.rand(200, COLUMNS, generator=torch.Generator().manual_seed(0)) < 0.1] = torch.nan
    own, expected_card = card(model, in_shards(train, shards)), card(model, train)
    tensors, numbers = own.parts()
    expected_tensors, expected_numbers = expected_card.parts()
    for part, value in expected_tensors.items():
        assert torch.allclose(tensors[part], value, rtol=1e-3, atol=1e-4, equal_nan=True), part
    assert {k: v for k, v in numbers.items() if not isinstance(v, float)} == {
        k: v for k, v in expected_numbers.items() if not isinstance(v, float)
    }
    found, expected = mend(model, in_shards(test, shards), card=own), mend(model, test, card=expected_card)
    assert found.verdict is not None and expected.verdict is not None
    assert (found.decision, found.verdict.menders) == (expected.decision, expected.verdict.menders)
    assert [e.holds for e in found.verdict.evidence] == [e.holds for e in expected.verdict.evidence]
    assert found.patch.summary().split(" (")[0] == expected.patch.summary().split(" (")[0]
    assert torch.allclose(found.logits, expected.logits, rtol=1e-3, atol=1e-3)
    reverted = found.patch.revert(found.data)
    assert torch.equal(reverted.x.nan_to_num(nan=7.0), test.x.nan_to_num(nan=7.0))


def elsewhere(function: Any, items: Any) -> Any:
    """Workers that share nothing with this process, and finish in another order."""
    for item in reversed(list(items)):
        yield pickle.loads(pickle.dumps(function))(pickle.loads(pickle.dumps(item)))


@pytest.mark.parametrize(("name", "workers"), [*((name, elsewhere) for name in MODELS), ("GCN", Local(2))])
def test_others_can_run_the_shards(name: str, workers: Any, tmp_path: Path) -> None:
    data, model = graph("random", 60, 1, True), model_of(name)
    data.x[:4] *= 1000
    own = card(model, graph("random", 60, 2, True))
    pack(tmp_path / "g", data)
    expected = mend(model, data, card=own)
    found = mend(model, open_graph(tmp_path / "g", shards=3, workers=workers), card=own)
    assert found.decision == expected.decision == "applied"
    assert torch.allclose(found.logits, expected.logits, rtol=1e-3, atol=1e-3)


KILLED = """
import os, signal, sys
import torch_geometric.nn as pyg
import torch
from graphmend import FrozenGNN
from graphmend.model.sharded import ShardRun
from graphmend.shards import open_graph
run, left = ShardRun.__call__, [3]
def counted(self, bounds):
    left[0] -= 1
    if left[0] == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return run(self, bounds)
ShardRun.__call__ = counted
torch.manual_seed(0)
model = pyg.GCN(4, 8, 2, 3).eval()
graph = open_graph(sys.argv[1], shards=5, keep=sys.argv[2])
with FrozenGNN(model, graph) as frozen:
    frozen.predict(graph)
"""


def test_a_killed_run_is_resumed_with_the_shards_that_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, keep = graph("random", 60, 1, True), tmp_path / "kept"
    pack(tmp_path / "g", data)
    call = [sys.executable, "-c", KILLED, str(tmp_path / "g"), str(keep)]
    assert subprocess.run(call, check=False).returncode == -signal.SIGKILL
    assert len(list(keep.iterdir())) == 2
    runs: list[tuple[int, int]] = []
    run = ShardRun.__call__
    monkeypatch.setattr(ShardRun, "__call__", lambda self, bounds: (runs.append(bounds), run(self, bounds))[1])
    model = model_of("GCN")
    with FrozenGNN(model, data) as frozen:
        expected = frozen.predict(data)
    mapped = open_graph(tmp_path / "g", shards=5, keep=keep)

    def predicted() -> Tensor:
        runs.clear()
        with FrozenGNN(model, mapped) as frozen:
            return frozen.predict(mapped)

    assert torch.allclose(predicted(), expected, atol=1e-5) and len(runs) == 3
    assert torch.allclose(predicted(), expected, atol=1e-5) and len(runs) == 0
    next(keep.iterdir()).write_bytes(b"cut off")
    assert torch.allclose(predicted(), expected, atol=1e-5) and len(runs) == 1
    mapped.x = mapped.x + 1
    assert not torch.allclose(predicted(), expected) and len(runs) == 5, "of other features"


def test_a_mapped_graph_takes_its_changes_along(tmp_path: Path) -> None:
    data = graph("random", 30, 1, True)
    pack(tmp_path / "g", data)
    opened = open_graph(tmp_path / "g", shards=3)
    opened.x, opened.name = opened.x + 1, "monday"
    del opened.y
    content = pickle.dumps(opened)
    again = pickle.loads(content)
    assert torch.equal(again.x, data.x + 1) and again.name == "monday" and "y" not in again
    assert torch.equal(again.edge_index, data.edge_index) and again.shards == 3
    assert len(content) < 3000  # the edges are in the folder


def test_edge_weights_and_further_attributes_go_along() -> None:
    class Weighted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = pyg.GraphConv(COLUMNS, CLASSES)

        def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor, pe: Tensor) -> Tensor:
            return self.conv(x + pe, edge_index, edge_weight)  # type: ignore[no-any-return]

    data = graph("random", 50, 3, False)
    data.edge_weight, data.pe = torch.rand(data.num_edges), torch.rand(50, COLUMNS)
    torch.manual_seed(0)
    model = Weighted().eval()
    mapped = in_shards(data, 4)
    with FrozenGNN(model, mapped) as frozen:
        found = frozen.predict(mapped)
    expected = model(data.x, data.edge_index, data.edge_weight, data.pe)
    assert torch.allclose(found, expected, atol=1e-5)


def test_a_model_that_looks_at_all_nodes_says_so() -> None:
    mapped = in_shards(graph("random", 60, 0, True), 3)
    with pytest.raises(GraphMendError, match="cannot run in shards: its output depends on nodes at any distance"):
        mend(Pooled().eval(), mapped)


def test_halves_that_do_not_fit_are_halved_and_a_hub_says_what_it_costs() -> None:
    path = in_shards(graph("path", 400, 0, True), None)
    ranges = plan(path, 2, 8, budget=20_000, available=10**9)
    assert len(ranges) > 4
    assert ranges[0][0] == 0 and ranges[-1][1] == 400
    assert all(first[1] == second[0] for first, second in pairwise(ranges))
    star = in_shards(graph("star in", 4000, 0, True), None)
    with pytest.raises(GraphMendError, match=r"within 2 hops of them takes about .* GiB are free"):
        plan(star, 2, 8, budget=20_000, available=100_000)
    assert plan(star, 2, 8, budget=20_000, available=10**9)[-1][1] == 4000


def test_changed_edges_are_noticed() -> None:
    mapped = in_shards(graph("random", 30, 0, True), 3)
    other = copy.copy(mapped)
    other.edge_index = mapped.edge_index[:, ::2].contiguous()
    offsets: Any = other.offsets()
    assert offsets[-1] == other.edge_index.size(1) and not other.is_symmetric and mapped.is_symmetric
    other.edge_index = mapped.edge_index.flip(1).contiguous()
    assert other.offsets() is None
