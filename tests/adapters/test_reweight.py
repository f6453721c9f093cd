"""Edge weights by class pairs: the formula, what keeps its weight, and predictions that use the weights exactly."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor, nn
from torch_geometric.data import Data

from graphmend import FrozenGNN, GraphMendError, GTrans, Limits, UnsupportedLayerError
from graphmend.adapters import Adapter, Align, Case, Proposal, Reweight
from graphmend.adapters.reweight import pair_ratios
from graphmend.cards import SourceCard, card
from graphmend.cards.edges import pair_counts
from graphmend.lab.backbones import BACKBONES, build
from graphmend.model.call import Caller
from graphmend.outputs import probabilities
from support.adapter_cases import assert_goes_there_and_back
from support.graphs import dense, dense_norm, rng
from support.sample_models import ByAttr, ByData, ByOptionalWeight, TakesData
from support.untouched import assert_same, state_of

N, IN, HID, OUT = 90, 5, 8, 3


def graph(inside: float = 0.15, outside: float = 0.02, seed: int = 0) -> Data:
    """Three classes with edges within and between them, and a self-loop."""
    y = torch.arange(N) % OUT
    x = 2.0 * torch.nn.functional.one_hot(y, IN) + torch.randn(N, IN, generator=rng(seed), dtype=torch.float64)
    chance = torch.where(y[:, None] == y, inside, outside)
    upper = torch.triu(torch.rand(N, N, generator=rng(seed + 1)) < chance, diagonal=1)
    adjacency = upper | upper.t()
    adjacency[4, 4] = True
    return Data(x=x, edge_index=adjacency.nonzero().t().contiguous(), y=y)


def trained(make: Callable[[], nn.Module]) -> nn.Module:
    torch.manual_seed(1)
    model, data = make().double(), graph()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.03)
    for _ in range(40):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(Caller(model)(data), data.y).backward()
        optimizer.step()
    return model


def gcn() -> nn.Module:
    return trained(lambda: build("gcn", IN, HID, OUT))


def sage() -> nn.Module:
    return trained(lambda: pyg.GraphSAGE(IN, HID, num_layers=2, out_channels=OUT))


def bare(data: Data) -> Data:
    out = copy.copy(data)
    if "edge_weight" in out:
        del out.edge_weight
    return out


def with_presence(model: nn.Module, data: Data, weight: Tensor) -> Tensor:
    """The model's output with weights on top of what the graph has."""
    with FrozenGNN(model, data) as frozen:
        return frozen(data.x, data.edge_index, weight).detach()


def slow_weights(model: nn.Module, made: SourceCard, data: Data, largest: float) -> list[float]:
    """The formula, an edge at a time."""
    with FrozenGNN(model, data) as frozen:
        p = probabilities(frozen.predict(data), made.temperature).tolist()
    classes, edges = range(len(p[0])), data.edge_index.t().tolist()
    weights = []
    for j, i in edges:
        a, b = max(classes, key=lambda c: p[j][c]), max(classes, key=lambda c: p[i][c])
        wanted = float(made.soft_pairs[a, b] / made.soft_pairs[:, b].sum())
        together = sum(p[s][a] * p[t][b] for s, t in edges)
        all_b = sum(p[s][c] * p[t][b] for s, t in edges for c in classes)
        found = (together + 10 * wanted) / (all_b + 10)
        weights.append(1.0 if i == j else min(max(wanted / found, 1 / largest), largest))
    return weights


@pytest.mark.parametrize("largest", [4.0, 1.2])
@pytest.mark.parametrize("make", [gcn, sage])
def test_the_weights_equal_a_slow_reference(make: Callable[[], nn.Module], largest: float) -> None:
    model, made, data = make(), card(make(), graph(), task="classes"), graph(0.05, 0.1)
    before = state_of(model, data)
    result = Reweight(largest)(model, data, card=made)
    assert_same(before, state_of(model, data))
    expected = slow_weights(model, made, data, largest)
    assert result.data.edge_weight.tolist() == pytest.approx(expected, rel=1e-9)
    assert min(expected) < 0.9 and max(expected) > 1.1
    assert (result.patch.num_rows, result.patch.num_removed, result.patch.num_added) == (0, 0, 0)
    assert result.patch.num_weights == sum(w != 1 for w in result.data.edge_weight.tolist()) > 0
    assert "edge_weight" not in result.patch.revert(result.data) and "edge_weight" not in data
    assert result.patch.revert(result.data).keys() == data.keys()


def test_weighted_frequencies_are_those_of_the_training_graph() -> None:
    """Where no weight is clipped and predictions are certain."""
    y = torch.arange(N) % OUT
    certain = torch.nn.functional.one_hot(y, OUT).double()
    there, here = graph(), graph(0.1, 0.05)
    source = pair_counts(certain, there.edge_index)
    ratios = pair_ratios(source / source.sum(), pair_counts(certain, here.edge_index))
    from_class, to_class = y[here.edge_index]
    weight, table = ratios[from_class, to_class], torch.zeros(OUT, OUT, dtype=torch.float64)
    table = table.index_put((from_class, to_class), weight, accumulate=True)
    torch.testing.assert_close(table / table.sum(0), source / source.sum(0), rtol=0.05, atol=0.01)


def test_ratios_of_classes_that_are_not_there() -> None:
    source = torch.tensor([[0.5, 0.0, 0.0], [0.5, 0.0, 0.0], [0.0, 0.0, 0.0]])
    counts = torch.tensor([[10.0, 3.0, 0.0], [0.0, 0.0, 0.0], [80.0, 0.0, 0.0]])
    ratios = pair_ratios(source, counts)
    assert bool((ratios[:, 1:] == 1).all()), "no edge led to such a class on the training graph"
    assert float(ratios[2, 0]) == 0.0, "never seen there"
    assert float(ratios[1, 0]) == pytest.approx(0.5 / (5 / 100)), "ten edges of its kind are added"
    same = pair_ratios(source, 1000 * source)
    torch.testing.assert_close(same[:2, 0], torch.ones(2))


@pytest.mark.parametrize("make", [gcn, sage])
def test_on_the_training_graph_nothing_changes(make: Callable[[], nn.Module]) -> None:
    model, data = make(), graph()
    result = Reweight()(model, data, card=card(model, data, task="classes"))
    assert result.reason is None and "edge_weight" not in result.data and result.patch.num_weights == 0


def test_self_loops_and_frozen_edges_keep_their_weight() -> None:
    model, made, data = gcn(), card(gcn(), graph(), task="classes"), graph(0.05, 0.1)
    free = Reweight()(model, data, card=made).data.edge_weight
    source, target = data.edge_index
    assert bool((free[source == target] == 1).all())
    frozen = (free != 1) & (torch.arange(free.numel()) % 5 == 0)
    weight = Reweight()(model, data, card=made, limits=Limits(frozen_edges=frozen)).data.edge_weight
    marked = set(zip(source[frozen].tolist(), target[frozen].tolist(), strict=True))
    for place, (i, j) in enumerate(data.edge_index.t().tolist()):
        is_frozen = (i, j) in marked or (j, i) in marked
        assert float(weight[place]) == (1.0 if is_frozen else float(free[place]))


def test_own_weights_are_multiplied() -> None:
    model, data = gcn(), graph(0.05, 0.1)
    data.edge_weight = (0.5 + torch.rand(data.edge_index.size(1), generator=rng(4))).float()
    made = card(gcn(), graph(), task="classes")
    result = Reweight()(model, data, card=made)
    expected = slow_weights(model, made, data, 4.0)
    ratio = result.data.edge_weight.double() / data.edge_weight.double()
    assert ratio.tolist() == pytest.approx(expected, rel=1e-5) and result.data.edge_weight.dtype == torch.float32
    with torch.no_grad():
        expected_logits = copy.deepcopy(model).eval()(data.x, data.edge_index, result.data.edge_weight)
    torch.testing.assert_close(result.logits, expected_logits)
    assert torch.equal(result.patch.revert(result.data).edge_weight, data.edge_weight)
    assert torch.equal(result.patch.apply(data).edge_weight, result.data.edge_weight)


class Improved(nn.Module):
    """Self-loops that count twice, but only in a graph with edge weights."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = pyg.GCNConv(IN, HID, improved=True), pyg.GCNConv(HID, OUT, improved=True)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Any:
        return self.b(self.a(x, edge_index, edge_weight).relu(), edge_index, edge_weight)


READS: dict[str, tuple[Callable[[], nn.Module], bool]] = {
    **{name: (lambda name=name: build(name, IN, HID, OUT), True) for name in BACKBONES},
    "GCN": (lambda: pyg.GCN(IN, HID, num_layers=2, out_channels=OUT), True),
    "GraphSAGE": (lambda: pyg.GraphSAGE(IN, HID, num_layers=2, out_channels=OUT), False),
    "GAT": (lambda: pyg.GAT(IN, HID, num_layers=2, out_channels=OUT), False),
    "GATv2": (lambda: pyg.GAT(IN, HID, num_layers=2, out_channels=OUT, v2=True), False),
    "GIN": (lambda: pyg.GIN(IN, HID, num_layers=2, out_channels=OUT), False),
    "optional weight": (ByOptionalWeight, True),
    "weights of the data object": (ByData, True),
    "a data object without weights": (TakesData, False),
    "weights as attributes": (ByAttr, False),
    "weights mean something else": (Improved, False),
}


@pytest.mark.parametrize("make, reads", READS.values(), ids=READS.keys())
def test_predictions_use_the_weights_exactly(make: Callable[[], nn.Module], reads: bool) -> None:
    model, data = trained(make), graph(0.05, 0.1)
    result = Reweight()(model, data, card=card(model, graph(), task="classes"))
    weight = result.data.edge_weight
    assert result.patch.num_weights > 0
    torch.testing.assert_close(result.logits, with_presence(model, data, weight), rtol=1e-9, atol=1e-9)
    assert float((result.logits - with_presence(model, data, torch.ones_like(weight))).abs().max()) > 1e-3
    with FrozenGNN(model, data) as frozen:
        assert frozen.reads_weights is reads
        again = frozen.predict(result.data, weights_count=True)
        plain = frozen.predict(result.data)
    torch.testing.assert_close(again, result.logits)
    if reads:
        torch.testing.assert_close(plain, result.logits)
    elif not isinstance(model, Improved):
        torch.testing.assert_close(plain, with_presence(model, data, torch.ones_like(weight)))
        with FrozenGNN(model, result.data) as frozen:  # as the docstring says
            shown = frozen(result.data.x, result.data.edge_index, result.data.edge_weight)
        torch.testing.assert_close(shown.detach(), result.logits)


def test_predictions_equal_dense_matrices() -> None:
    model, data = gcn(), graph(0.05, 0.1)
    result = Reweight()(model, data, card=card(model, graph(), task="classes"))
    hop = dense_norm(dense(data.edge_index, N, result.data.edge_weight))
    first, last = model.convs
    hidden = (hop @ data.x @ first.weight + first.bias).relu()
    torch.testing.assert_close(result.logits, (hop @ hidden @ last.weight + last.bias).detach())


def test_a_model_that_takes_no_weights_is_named() -> None:
    model = trained(lambda: pyg.GraphSAGE(IN, HID, num_layers=2, out_channels=OUT, aggr="max"))
    with pytest.raises(UnsupportedLayerError, match=r"convs.0 \(SAGEConv with aggr='max'.*; leave Reweight out"):
        Reweight()(model, graph(0.05, 0.1), card=card(model, graph(), task="classes"))


def test_weights_that_the_model_ignores_leave_no_place() -> None:
    model, data = sage(), graph(0.05, 0.1)
    data.edge_weight = torch.ones(data.edge_index.size(1), dtype=torch.float64)
    with pytest.raises(GraphMendError, match=r"edge_weight that the model does not read, .* del data.edge_weight"):
        Reweight()(model, data, card=card(model, graph(), task="classes"))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_a_largest_weight_beyond_what_a_type_can_hold_clips_nothing(dtype: torch.dtype) -> None:
    model, data = gcn().to(dtype), graph()
    data.x = data.x.to(dtype)
    result = Reweight(1e300)(model, data, card=card(model, data, task="classes"))
    assert result.reason is None and result.logits.isfinite().all()


# ---------------------------------------------------------------- in a sequence


@dataclass(frozen=True)
class Looking(Adapter):
    """Notes what the frozen model shows, and removes the edges it is told to."""

    removed: tuple[int, ...] = ()
    seen: dict[str, Tensor] = field(default_factory=dict, compare=False)

    def propose(self, case: Case) -> Proposal:
        frozen, x, edge_index = case.require_frozen(), case.data.x, case.data.edge_index
        with torch.no_grad():
            self.seen["logits"] = frozen(x, edge_index)
            self.seen["first"] = frozen.first_layer(x, edge_index)
            self.seen["z"] = frozen.embed(x, edge_index)
            half = x.new_full((edge_index.size(1),), 0.5)
            self.seen["faded"] = frozen(x, edge_index, half)
            views = [Data(x=x, edge_index=edge_index, edge_weight=w) for w in (half, half + 0.5)]
            self.seen["half view"], self.seen["whole view"] = frozen.embed_views(views)
        return Proposal(removed=torch.tensor(self.removed) if self.removed else None)


OTHERS = {"reads": gcn, "sage": sage, "improved": lambda: trained(Improved), "attributes": lambda: trained(ByAttr)}


@pytest.mark.parametrize("make", OTHERS.values(), ids=OTHERS.keys())
def test_members_after_it_see_its_weights(make: Callable[[], nn.Module]) -> None:
    model, data = make(), graph(0.05, 0.1)
    made, look = card(model, graph(), task="classes"), Looking(removed=(3, 4))
    result = (Reweight() >> look)(model, data, card=made)
    alone = Reweight()(model, data, card=made)
    weight, half = alone.data.edge_weight, torch.full_like(alone.data.edge_weight, 0.5)
    with FrozenGNN(model, data) as frozen, torch.no_grad():
        graph_with_weights = data.x, data.edge_index, weight
        expected = {
            "logits": alone.logits,
            "first": frozen.first_layer(*graph_with_weights),
            "z": frozen.embed(*graph_with_weights),
            "faded": frozen(data.x, data.edge_index, half * weight),
            "half view": frozen.embed(data.x, data.edge_index, half * weight),
            "whole view": frozen.embed(*graph_with_weights),
        }
    for name, value in expected.items():
        torch.testing.assert_close(look.seen[name], value, msg=name)
    keep = torch.ones_like(weight, dtype=torch.bool).index_fill(0, torch.tensor(look.removed), False)
    assert torch.equal(result.data.edge_weight, weight[keep])
    fewer = Data(x=data.x, edge_index=data.edge_index[:, keep])
    torch.testing.assert_close(result.logits, with_presence(model, fewer, weight[keep]))
    assert_goes_there_and_back(result, data)


@pytest.mark.parametrize("make", [gcn, sage])
@pytest.mark.parametrize("space", ["existing", "random_block"])
@pytest.mark.parametrize("mode", ["auto", "eager"])
def test_steps_after_it_keep_its_weights(make: Callable[[], nn.Module], space: str, mode: str) -> None:
    model, data = make(), graph(0.05, 0.1)
    made, count = card(model, graph(), task="classes"), data.edge_index.size(1)

    def wants_flips(net: Any, graph: Data) -> Tensor:
        """Edges that are there shall go, others shall come."""
        sign = torch.where(torch.arange(graph.edge_index.size(1)) < count, 1.0, -1.0).to(graph.edge_weight)
        z = net.embed(graph.x, graph.edge_index, graph.edge_weight)
        return z.square().mean() + (sign * graph.edge_weight).mean()

    options = {"steps": 6, "feature_steps": 2, "lr_feature": 0.02, "lr_edge": 0.5, "budget": 6, "block_size": 400}
    result = (Reweight() >> GTrans(wants_flips, space=space, **options))(model, data, card=made, mode=mode)
    assert result.reason is None and len(result.history) == 6
    assert (result.patch.num_added if space == "random_block" else result.patch.num_removed) > 0
    weight = result.data.edge_weight
    torch.testing.assert_close(result.logits, with_presence(model, bare(result.data), weight), rtol=1e-8, atol=1e-8)
    alone = Reweight()(model, data, card=made).data.edge_weight
    keep = torch.ones_like(alone, dtype=torch.bool).index_fill(0, result.patch.removed, False)
    assert torch.equal(weight, torch.cat([alone[keep], torch.ones(result.patch.num_added).double()]))
    assert_goes_there_and_back(result, data)


@pytest.mark.parametrize("make", [gcn, sage])
@pytest.mark.parametrize("has_weights", [False, True])
def test_after_alignment_and_twice(make: Callable[[], nn.Module], has_weights: bool) -> None:
    model, data = make(), graph(0.05, 0.1)
    if has_weights and make is sage:
        pytest.skip("it does not read them")
    if has_weights:
        data.edge_weight = 0.5 + torch.rand(data.edge_index.size(1), generator=rng(4)).double()
    made = card(model, graph(), task="classes")
    result = (Align() >> Reweight() >> Reweight())(model, data, card=made)
    assert result.reason is None and result.patch.num_rows == N and result.patch.num_weights > 0
    torch.testing.assert_close(result.logits, with_presence(model, bare(result.data), result.data.edge_weight))
    once = (Align() >> Reweight())(model, data, card=made)
    assert not torch.equal(once.data.edge_weight, result.data.edge_weight)
    assert_goes_there_and_back(result, data)
