"""The same graph gets the same answer, however its nodes are numbered and its edges are listed, for all layer types."""

from __future__ import annotations

import copy
import dataclasses
import functools
import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor, nn
from torch_geometric.data import Data

import graphmend
from graphmend import Adaptation, FrozenGNN, SourceCard
from graphmend.adapters import Align, Impute, Purify, Reweight
from graphmend.cards.moments import moments
from graphmend.graph.canonical import node_keys
from graphmend.graph.edits import subgraph
from graphmend.lab.backbones import BACKBONES, build
from support.gate_cases import CLASSES, IN, fitted, moved, planted, with_bad_rows, with_features, with_other_classes
from support.graphs import rng
from support.sample_models import TwoConvs

HIDDEN = 8
CLOSE = 1e-6  # float64, in which sums in another order differ by 1e-15 and an alignment by somewhat more
HALF = 1e-3  # what is kept in half precision may be rounded to the other side


def two(make: Callable[[int, int], nn.Module]) -> nn.Module:
    """Two convolutions of the width of the planted graph, with a ReLU between them."""
    model = TwoConvs(lambda a, b: make(a, b))
    model.a, model.b = make(IN, HIDDEN), make(HIDDEN, CLASSES)
    return model


def stock(name: str, **options: Any) -> nn.Module:
    made: nn.Module = getattr(pyg, name)(IN, HIDDEN, num_layers=2, out_channels=CLASSES, **options)
    return made


class Propagated(nn.Module):
    """A perceptron whose class scores are propagated."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.propagate = nn.Linear(IN, HIDDEN), nn.Linear(HIDDEN, CLASSES), pyg.APPNP(3, 0.1)

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        return self.propagate(self.second(self.first(x).relu()), edge_index)


PNA = {
    "aggregators": ["mean", "max"],
    "scalers": ["identity", "amplification"],
    "deg": torch.ones(12, dtype=torch.long),
}
MODELS: dict[str, Callable[[], nn.Module]] = {
    **{name: functools.partial(stock, name) for name in ("GCN", "GraphSAGE", "GIN", "EdgeCNN")},
    "GAT": lambda: stock("GAT", heads=2),
    "GATv2": lambda: stock("GAT", heads=2, v2=True),
    "PNA": lambda: stock("PNA", **PNA),
    "GCN with batch norm and dropout": lambda: stock("GCN", norm="batch", dropout=0.5),
    "GAT with batch norm and dropout": lambda: stock("GAT", heads=2, norm="batch", dropout=0.5),
    "GraphConv": lambda: two(pyg.GraphConv),
    "TAG": lambda: two(pyg.TAGConv),
    "SG": lambda: two(lambda a, b: pyg.SGConv(a, b, K=2)),
    "Cheb": lambda: two(lambda a, b: pyg.ChebConv(a, b, K=3)),
    "ARMA": lambda: two(lambda a, b: pyg.ARMAConv(a, b, num_stacks=2)),
    "Transformer": lambda: two(lambda a, b: pyg.TransformerConv(a, b, heads=2, concat=False)),
    "LEConv": lambda: two(pyg.LEConv),
    "max SAGE": lambda: two(lambda a, b: pyg.SAGEConv(a, b, aggr="max")),
    "APPNP": Propagated,
    **{  # DualGCN draws walks by position, and SimPGCN takes the first of equally similar nodes
        f"own {name}": functools.partial(build, name, IN, HIDDEN, CLASSES, batch_norm=True, dropout=0.3)
        for name in BACKBONES
        if name not in ("dual_gcn", "simp_gcn")
    },
}


def doubled(data: Data) -> Data:
    return with_features(data, data.x.double())


def binary(data: Data) -> Data:
    """Features of 0 and 1, so that many nodes and cosines are alike."""
    return with_features(data, (data.x > 0.8).to(data.x))


def training_graph(is_binary: bool) -> Data:
    return binary(doubled(planted())) if is_binary else doubled(planted())


@functools.cache
def trained(name: str, is_binary: bool) -> nn.Module:
    torch.manual_seed(0)
    return fitted(MODELS[name]().double(), training_graph(is_binary))


@functools.cache
def card_of(name: str, is_binary: bool) -> SourceCard:
    return graphmend.card(copy.deepcopy(trained(name, is_binary)), training_graph(is_binary), task="classes")


def with_edges(data: Data, more: Tensor) -> Data:
    out = data.clone()
    out.edge_index = torch.cat([data.edge_index, more], dim=1)
    return out


def strangers(data: Data, seed: int) -> Data:
    """One edge in five leads to just any node."""
    more = torch.randint(data.x.size(0), (2, data.edge_index.size(1) // 8), generator=rng(seed))
    more = more[:, more[0] != more[1]]
    return with_edges(data, torch.cat([more, more.flip(0)], dim=1))


def some(data: Data, seed: int, share: float = 0.2) -> Tensor:
    """A few edges."""
    edges = data.edge_index
    return edges[:, torch.rand(edges.size(1), generator=rng(seed)) < share]


def directed(data: Data, seed: int) -> Data:
    out = data.clone()
    out.edge_index = some(data, seed, 0.6)
    return out


def half(data: Data, seed: int) -> Data:
    return subgraph(data, torch.rand(data.x.size(0), generator=rng(seed)) < 0.5)


def loops(data: Data, seed: int) -> Data:
    nodes = torch.randperm(data.x.size(0), generator=rng(seed))[:40]
    return with_edges(data, nodes.repeat(2, 1))


def isolated(data: Data, seed: int) -> Data:
    alone = torch.rand(data.x.size(0), generator=rng(seed)) < 0.2
    out = data.clone()
    out.edge_index = data.edge_index[:, ~alone[data.edge_index].any(0)]
    return out


GRAPHS: dict[str, Callable[[int], Data]] = {
    "fresh": lambda seed: planted(1 + seed % 5),
    "moved": lambda seed: moved(planted(1 + seed % 5)),
    "broken rows": lambda seed: with_bad_rows(planted(1 + seed % 5)),
    "broken rows, moved": lambda seed: with_bad_rows(moved(planted(1 + seed % 5), 1.2, 1.0)),
    "other classes": lambda seed: with_other_classes(1 + seed % 5),
    "strangers": lambda seed: strangers(planted(seed % 5), seed),
    "strangers and broken rows": lambda seed: with_bad_rows(strangers(planted(seed % 5), seed)),
    "directed": lambda seed: directed(planted(seed % 5), seed),
    "duplicates": lambda seed: with_edges(planted(seed % 5), some(planted(seed % 5), seed)),
    "loops": lambda seed: loops(planted(seed % 5), seed),
    "isolated": lambda seed: isolated(planted(seed % 5), seed),
    "half": lambda seed: half(planted(seed % 5), seed),
    "half, moved": lambda seed: half(moved(planted(seed % 5)), seed),
}
MENDERS = (Impute(), Align(), Purify(), Purify(strength=6.0), Reweight(), Impute() >> Align())


class Relabelled:
    """A graph with its nodes renumbered and its edges in another order, and the way back."""

    def __init__(self, data: Data, seed: int) -> None:
        self.order = torch.randperm(data.x.size(0), generator=rng(seed))
        edges = torch.randperm(data.edge_index.size(1), generator=rng(seed + 1))
        self.data = Data(x=data.x[self.order], edge_index=self.order.argsort()[data.edge_index[:, edges]])
        for name in ("y", "train_mask", "val_mask"):
            if name in data:
                self.data[name] = data[name][self.order]


def assert_same(first: Adaptation, second: Adaptation, order: Tensor) -> None:
    """Two results of one graph, of which the second has the first one's nodes in this order."""
    assert (first.reason is None) == (second.reason is None)
    if first.verdict is not None:
        one, two = first.verdict, second.verdict
        assert two is not None
        assert (one.decision, one.menders, one.regime) == (two.decision, two.menders, two.regime)
        assert words(one.sentence) == words(two.sentence) and one.next_step == two.next_step
        assert [item.name for item in one.evidence] == [item.name for item in two.evidence]
        for mine, other in zip(one.evidence, two.evidence, strict=True):
            assert mine.value == pytest.approx(other.value, rel=CLOSE, abs=CLOSE), mine.name
            assert mine.threshold == pytest.approx(other.threshold, rel=CLOSE, abs=CLOSE), mine.name
    assert close(first.logits[order], second.logits) and close(first.data.x[order], second.data.x)
    assert counted(first.data.edge_index) == counted(order[second.data.edge_index])
    assert (first.alternative is None) == (second.alternative is None)
    if first.alternative is not None and second.alternative is not None:
        assert close(first.alternative.logits[order], second.alternative.logits)
        # nodes that nothing tells apart may stand for each other
        graph, asked, others = first.graph_before(), first.questions(10), order[second.questions(10)]
        keys = node_keys(graph.x, graph.edge_index)
        assert keys[asked].tolist() == keys[others].tolist()


def words(sentence: str) -> str:
    return re.sub(r"[\d.]+", "#", sentence)


def close(one: Tensor, other: Tensor) -> bool:
    size = float(one.abs().max())
    return one.shape == other.shape and float((one - other).abs().max()) <= CLOSE * max(1.0, size)


def counted(edge_index: Tensor) -> Counter[tuple[int, int]]:
    return Counter(map(tuple, edge_index.t().tolist()))


def assert_same_card(one: SourceCard, other: SourceCard) -> None:
    for field in dataclasses.fields(SourceCard):
        mine, its = getattr(one, field.name), getattr(other, field.name)
        near = HALF if "centres" in field.name or "reach" in field.name else CLOSE
        if isinstance(mine, Tensor):
            torch.testing.assert_close(mine, its, rtol=near, atol=near, equal_nan=True, msg=field.name)
        else:
            assert mine == (pytest.approx(its, rel=near, abs=near) if isinstance(mine, float) else its), field.name


def check(case: int) -> None:
    """One random model on one random graph with another numbering, before the gate and one of the menders."""
    generator = rng(case)

    def drawn(number: int) -> int:
        return int(torch.randint(number, (), generator=generator))

    name = list(MODELS)[case % len(MODELS)]
    is_binary = drawn(3) == 0
    data = doubled(GRAPHS[list(GRAPHS)[drawn(len(GRAPHS))]](drawn(1000)))
    other = Relabelled(binary(data) if is_binary else data, case)
    data = binary(data) if is_binary else data
    model, made = copy.deepcopy(trained(name, is_binary)), card_of(name, is_binary)
    fresh = copy.deepcopy(model)  # which remembers nothing of the first graph
    mender = MENDERS[drawn(len(MENDERS))]
    calls: list[Callable[[nn.Module, Data], Adaptation]] = [
        lambda m, d: graphmend.mend(m, d, card=made),
        lambda m, d: mender(m, d, card=made),
    ]
    if drawn(3) == 0:
        calls.append(graphmend.mend)
    if drawn(5) == 0:
        train = Relabelled(training_graph(is_binary), case)
        assert_same_card(made, graphmend.card(fresh, train.data, task="classes"))
    for call in calls:
        try:
            first = call(model, data)
        except graphmend.GraphMendError as error:  # no edge weights, say
            with pytest.raises(type(error), match=re.escape(str(error))):
                call(fresh, other.data)
            continue
        assert_same(first, call(fresh, other.data), other.order)


@pytest.mark.parametrize("case", range(len(MODELS)))
def test_the_same_graph_gets_the_same_answer(case: int) -> None:
    check(case)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(20))
def test_the_same_graph_gets_the_same_answer_in_a_thousand_cases(part: int) -> None:
    for case in range(1000 + part, 2000, 20):
        check(case)


@pytest.mark.parametrize("name", ["GCN", "GAT", "TAG"])
def test_a_card_does_not_depend_on_the_numbering(name: str) -> None:
    assert_same_card(
        card_of(name, True),
        graphmend.card(trained(name, True), Relabelled(training_graph(True), 5).data, task="classes"),
    )


@pytest.mark.parametrize("name", ["GAT", "GraphConv", "APPNP"])
def test_graphs_that_came_before_change_nothing(name: str) -> None:
    data, made = doubled(moved(planted(1))), card_of(name, False)
    model, fresh = copy.deepcopy(trained(name, False)), copy.deepcopy(trained(name, False))
    for kind in ("half", "directed", "isolated"):
        for given in (None, made):
            graphmend.mend(model, doubled(GRAPHS[kind](0)), card=given)
    for given in (None, made):
        first, second = (graphmend.mend(m, data, card=given) for m in (fresh, model))
        assert first.verdict == second.verdict and torch.equal(first.logits, second.logits)
    assert_same_card(
        graphmend.card(fresh, training_graph(False), task="classes"),
        graphmend.card(model, training_graph(False), task="classes"),
    )


class Counts(nn.Module):
    """Takes counts only. Where one of two words prevails, its ReLU is on everywhere and might as well not be there."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = pyg.GCNConv(2, HIDDEN), pyg.GCNConv(HIDDEN, CLASSES)
        with torch.no_grad():
            self.first.lin.weight.copy_(torch.tensor([1.0, -1.0]) * torch.linspace(0.5, 1.5, HIDDEN)[:, None])

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        if bool((x < 0).any()):
            raise ValueError("a count cannot be negative")
        return self.second(self.first(x, edge_index).relu(), edge_index)


def test_the_first_layer_is_that_of_the_card_on_every_graph() -> None:
    train, model = doubled(planted()), Counts().double().eval()
    counts = torch.poisson(torch.tensor([2.0, 2.0]).double().expand(train.x.size(0), 2), generator=rng(1))
    train = with_features(train, counts)
    data = half(with_features(train, counts * torch.tensor([1.0, 0.0]).double() + torch.tensor([1.0, 0.1])), 0)
    made = graphmend.card(model, train, task="classes")
    with FrozenGNN(model, data) as frozen:
        assert frozen.taps.first_layer.tap.layer.name == "second", "the graph alone does not show the ReLU"
    assert made.first_layer == "first" and made.first_mean.numel() == HIDDEN
    with FrozenGNN(model, data, taps=made.taps) as frozen:
        assert made.first.distance(moments(frozen.observe(data).first)) > 0
    assert Purify()(model, data, card=made).reason is None
    assert_same_card(made, graphmend.card(model, train, task="classes"))
