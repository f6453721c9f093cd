"""Trials run once per model: the next graph pays nothing, and whatever could change the findings leads to new ones."""

from __future__ import annotations

import contextlib
import copy
import functools
import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor, nn
from torch_geometric.data import Data

from graphmend import FrozenGNN, GraphMendError, GTrans
from graphmend.lab.backbones import BACKBONES, build
from graphmend.surrogates import Contrastive
from graphmend.transforms import DropEdge, DropNode
from support.graphs import rng, undirected
from support.sample_models import HID, IN, OUT, SEES_ALL_NODES, ByWeight, Custom, TakesData, TwoConvs, basic, seeded

STEPS, SAMPLES = 10, 5
ADAPTER = GTrans(steps=STEPS, num_samples=SAMPLES, lr_edge=0.5, budget=0.2)


def graph(nodes: int, seed: int = 0, **extra: Any) -> Data:
    edge_index = undirected(nodes, seed, density=4 / nodes)
    return Data(x=torch.randn(nodes, IN, generator=rng(seed)), edge_index=edge_index, **extra)


def counted(model: nn.Module) -> list[int]:
    """A list that grows with every run of the model, by the number of nodes it is run on.

    The count stands outside of the model, which is given back as it was, attributes included.
    """
    runs: list[int] = []
    inner = type(model)

    class Counted(inner):  # type: ignore[misc, valid-type]
        @functools.wraps(inner.forward)  # so that its arguments are those of the model
        def forward(self, *args: Any, **kwargs: Any) -> Any:
            runs.append((args[0] if args else kwargs["x"]).size(0))
            return super().forward(*args, **kwargs)

        if hasattr(inner, "embed"):

            @functools.wraps(inner.embed)
            def embed(self, *args: Any, **kwargs: Any) -> Any:
                runs.append(args[0].size(0))
                return super().embed(*args, **kwargs)

    model.__class__ = Counted
    return runs


def runs_of(runs: list[int], call: Callable[[], Any]) -> list[int]:
    """Those that a call adds."""
    runs.clear()
    call()
    return list(runs)


def needed(nodes: int, together: bool = True) -> list[int]:
    """One loss per step and discrete graph (unchanged, top, samples), each of three views, and the prediction."""
    losses = STEPS + 2 + SAMPLES
    return [*([3 * nodes] * losses if together else [nodes] * 3 * losses), nodes]


MODELS: dict[str, Callable[[], nn.Module]] = {
    **{name: lambda name=name: build(name, IN, HID, OUT) for name in BACKBONES if name not in SEES_ALL_NODES},
    **{name: lambda name=name: basic(name, num_layers=2) for name in ("GCN", "GraphSAGE", "GAT", "GATv2", "GIN")},
    "handwritten": lambda: TwoConvs(pyg.GCNConv),
    "custom layers": lambda: TwoConvs(Custom),
}


@pytest.mark.parametrize("name", MODELS)
def test_the_second_graph_pays_nothing(name: str) -> None:
    model = seeded(MODELS[name])
    runs = counted(model)
    first = runs_of(runs, lambda: ADAPTER(model, graph(120)))
    assert len(first) > len(needed(120)) and first[-len(needed(120)) :] == needed(120)
    for nodes in (120, 90, 31):
        assert runs_of(runs, lambda nodes=nodes: ADAPTER(model, graph(nodes, seed=nodes))) == needed(nodes)
    assert runs_of(runs, lambda: ADAPTER(model, graph(31, 31), mode="eager")) == needed(31, together=False)


@pytest.mark.parametrize("value", [0.0, 0.5])
@pytest.mark.parametrize("name", [*MODELS, "GCN of three layers", "SAGE with batch norm"])
def test_a_graph_whose_features_say_nothing_leaves_nothing_behind(name: str, value: float) -> None:
    more: dict[str, Callable[[], nn.Module]] = {
        "GCN of three layers": lambda: basic("GCN", num_layers=3),
        "SAGE with batch norm": lambda: basic("GraphSAGE", num_layers=2, norm="BatchNorm"),
    }
    model, data, empty = seeded({**MODELS, **more}[name]), graph(60), graph(60)
    empty.x = torch.full_like(empty.x, value)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.normal_(generator=rng(4))  # biases that react to edges where features are 0
    fresh = copy.deepcopy(model)
    looks: tuple[Callable[[FrozenGNN], Any], ...] = (
        lambda frozen: frozen.first_layer(empty.x, empty.edge_index),
        lambda frozen: frozen.embed(empty.x, empty.edge_index),
        lambda frozen: frozen.reads_weights,
        lambda frozen: frozen.weighting,
    )
    with FrozenGNN(model, empty) as frozen:
        for look in looks:
            with contextlib.suppress(GraphMendError):
                look(frozen)
    with FrozenGNN(model, data) as frozen, FrozenGNN(fresh, data) as other:
        for method in ("first_layer", "embed"):
            now, expected = (getattr(f, method)(data.x, data.edge_index) for f in (frozen, other))
            assert torch.equal(now, expected), method
        assert frozen.first_norm is None or other.first_norm is not None
        assert (frozen.weighting, frozen.reads_weights) == (other.weighting, other.reads_weights)


def test_trials_run_on_a_few_nodes() -> None:
    nodes, model = 3000, seeded(lambda: TwoConvs(pyg.GCNConv))
    data, runs = graph(nodes), counted(model)
    assert data.edge_index.size(1) > 5000
    first = runs_of(runs, lambda: ADAPTER(model, data))
    trials = first[: -len(needed(nodes))]
    assert 0 < len(trials) < 20 and max(trials) < nodes


def change_setting(model: nn.Module) -> None:
    model.a.improved = True


def add_hook(model: nn.Module) -> None:
    model.a.register_forward_hook(lambda *_: None)


def add_hook_before(model: nn.Module) -> None:
    model.b.register_forward_pre_hook(lambda *_: None)


def replace_layer(model: nn.Module) -> None:
    model.act = nn.Tanh()


def replace_forward(model: nn.Module) -> None:
    own = model.forward
    model.forward = lambda x, edge_index: own(x, edge_index) + 1.0  # type: ignore[method-assign]


def replace_function(model: nn.Module) -> None:
    model.between = torch.relu


@pytest.mark.parametrize(
    "change", [change_setting, add_hook, add_hook_before, replace_layer, replace_forward, replace_function]
)
def test_another_setting_layer_or_hook_leads_to_new_trials(change: Callable[[nn.Module], None]) -> None:
    model, data = seeded(lambda: TwoConvs(pyg.GCNConv)), graph(40)
    model.between = torch.tanh  # a function as an attribute
    runs = counted(model)
    ADAPTER(model, data)
    assert runs_of(runs, lambda: ADAPTER(model, data)) == needed(40)
    change(model)
    assert len(runs_of(runs, lambda: ADAPTER(model, data))) > len(needed(40))
    assert runs_of(runs, lambda: ADAPTER(model, data)) == needed(40)


@pytest.mark.parametrize(
    "other",
    [
        lambda: graph(40, pos=torch.ones(40, 3)),
        lambda: graph(40, pos=torch.ones(40, 2, dtype=torch.float64)),
        lambda: graph(40),
        lambda: graph(40, pos=torch.ones(40, 2), edge_weight=torch.ones(graph(40).edge_index.size(1))),
    ],
    ids=["width", "dtype", "without", "one more"],
)
def test_another_kind_of_graph_leads_to_new_trials(other: Callable[[], Data]) -> None:
    model = seeded(lambda: TwoConvs(pyg.GCNConv))
    runs = counted(model)
    ADAPTER(model, graph(40, pos=torch.ones(40, 2)))
    assert runs_of(runs, lambda: ADAPTER(model, graph(30, pos=torch.zeros(30, 2)))) == needed(30)
    assert len(runs_of(runs, lambda: ADAPTER(model, other()))) > len(needed(40))


def test_another_loss_is_tried_for_itself() -> None:
    model, data = seeded(lambda: TwoConvs(pyg.GCNConv)), graph(40)
    runs = counted(model)

    def first(m: Any, d: Data) -> Tensor:
        return m(d.x, d.edge_index, d.edge_weight).square().mean()

    def second(m: Any, d: Data) -> Tensor:
        return m(d.x, d.edge_index, d.edge_weight).exp().mean()

    def wrapped(loss: Callable[[Any, Data], Tensor]) -> Callable[[Any, Data], Tensor]:
        return lambda m, d: loss(m, d)

    def trials(surrogate: Any) -> int:
        adapter = GTrans(surrogate, steps=2, edge_steps=0)
        own = 3  # two losses, whose views go together, and the prediction
        return len(runs_of(runs, lambda: adapter(model, data))) - own

    for surrogate in (first, second, wrapped(first), wrapped(second), Contrastive(), Contrastive(DropNode())):
        assert trials(surrogate) > 0
        assert trials(surrogate) == 0
    assert trials(Contrastive(DropEdge(0.1))) == 0, "a number does not matter"
    assert trials(wrapped(first)) == 0, "nor does it matter that a function is made anew"


def test_the_fast_way_of_one_loss_is_not_taken_for_another() -> None:
    """Two losses of the same code that differ in the function they close over; one of them needs real features."""
    model, data = seeded(lambda: TwoConvs(pyg.GCNConv)), graph(40)

    def simple(m: Any, d: Data) -> Tensor:
        return m.embed(d.x, d.edge_index, d.get("edge_weight")).square().mean()

    def differentiating(m: Any, d: Data) -> Tensor:
        z = m.embed(d.x, d.edge_index, d.get("edge_weight")).square().sum()
        return z + 0.0 * torch.autograd.grad(z, d.x, retain_graph=True)[0].sum()

    def through(loss: Callable[[Any, Data], Tensor]) -> Callable[[Any, Data], Tensor]:
        return lambda m, d: loss(m, d)

    assert GTrans(through(simple), steps=2, edge_steps=0)(model, data).engine.shared_features
    result = GTrans(through(differentiating), steps=2, edge_steps=0)(model, data)
    assert result.reason is None and not result.engine.shared_features
    assert "RuntimeError" in result.engine.reasons["shared_features"]


def test_a_trial_that_was_interrupted_is_made_again() -> None:
    model, data, calls = seeded(lambda: TwoConvs(pyg.GCNConv)), graph(40), []

    def differentiating(m: Any, d: Data) -> Tensor:
        calls.append(1)
        if len(calls) == 2:  # in the midst of the trial
            raise KeyboardInterrupt
        z = m.embed(d.x, d.edge_index, d.get("edge_weight")).square().sum()
        return z + 0.0 * torch.autograd.grad(z, d.x, retain_graph=True)[0].sum()

    adapter = GTrans(differentiating, steps=2, edge_steps=0)
    with pytest.raises(KeyboardInterrupt):
        adapter(model, data)
    result = adapter(model, data)
    assert result.reason is None and not result.engine.shared_features


@pytest.mark.parametrize("make", [lambda: build("gcn", IN, HID, OUT), ByWeight, lambda: TwoConvs(Custom), TakesData])
def test_findings_do_not_keep_a_model_alive(make: Callable[[], nn.Module]) -> None:
    model = seeded(make)
    if isinstance(model, ByWeight):
        data = graph(40, edge_weight=torch.ones(graph(40).edge_index.size(1)))
    else:
        data = graph(40)
    assert ADAPTER(model, data).reason is None
    alive = weakref.ref(model)
    del model
    gc.collect()
    assert alive() is None


class OneRowPerNode(nn.Module):
    """A transductive model: it has learned something about each node of its graph."""

    def __init__(self, nodes: int) -> None:
        super().__init__()
        self.of_node = nn.Embedding(nodes, IN)
        self.inner = TwoConvs(pyg.GCNConv)

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        return self.inner(x + self.of_node.weight, edge_index)


def test_a_model_of_its_own_number_of_nodes_is_tried_on_the_whole_graph() -> None:
    nodes = 600
    data, model = graph(nodes), seeded(lambda: OneRowPerNode(nodes))
    assert data.edge_index.size(1) > 1000, "large enough for a sample"
    runs = counted(model)
    first = ADAPTER(model, data)
    assert first.reason is None and not first.engine.stacked_views
    assert max(runs) >= nodes and sum(n == nodes for n in runs) > len(needed(nodes, together=False))
    assert runs_of(runs, lambda: ADAPTER(model, data)) == needed(nodes, together=False)
    plain = ADAPTER(model, data, mode="eager")
    torch.testing.assert_close(first.logits, plain.logits, rtol=1e-4, atol=1e-4)
    with pytest.raises(GraphMendError, match=r"cannot run on this graph, whose x has shape \(601, 5\)"):
        ADAPTER(model, graph(nodes + 1))


def test_a_new_model_in_the_place_of_an_old_one_is_tried() -> None:
    """The address of a freed model may be used again."""
    for _ in range(5):
        with FrozenGNN(seeded(lambda: TwoConvs(pyg.GCNConv)), graph(30)) as frozen:
            assert frozen.takes_edge_weights
        with FrozenGNN(seeded(lambda: TwoConvs(lambda i, o: pyg.SAGEConv(i, o, aggr="max"))), graph(30)) as frozen:
            assert not frozen.takes_edge_weights
