"""A model, a graph and the random number generators are left exactly as they were."""

from __future__ import annotations

import contextlib
import copy
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor, nn
from torch_geometric.data import Data

from graphmend import Adaptation, FrozenGNN, Gate, GraphMendError, GTrans, Identity, Limits
from graphmend.model.edge_weights import patched
from graphmend.model.restore import private
from support.sample_models import HID, IN, OUT, ByWeight, Custom, N, TwoConvs, edge_values, make_graph, seeded
from support.untouched import Boom, assert_same, generator_states, snapshot


class Untidy(nn.Module):
    """Does everything to itself that a forward can do."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(IN)
        self.a, self.drop, self.b = pyg.GCNConv(IN, HID, cached=True), nn.Dropout(0.5), pyg.GCNConv(HID, OUT)
        self.register_buffer("calls", torch.zeros(()))
        self.register_buffer("gone", None)
        self.scale = nn.Parameter(torch.tensor([3.0]))
        self.loose = torch.zeros(2)
        self.seen: list[int] = []
        self.memory: dict[str, int] = {}

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        self.norm.train()
        x = self.norm(x) + 0.0 * (torch.rand(()) + random.random() + float(np.random.rand()))  # noqa: NPY002
        self.norm.eval()
        self.calls += 1
        self.gone = torch.ones(3)
        self.last_x = x
        self.loose.add_(1.0)
        self.seen.append(1)
        self.memory["calls"] = self.memory.get("calls", 0) + 1
        with torch.no_grad():
            self.scale.clamp_(max=1.0)
        self.extra = nn.Linear(1, 1)
        return self.scale * self.b(self.drop(self.a(x, edge_index).relu()), edge_index)


def untidy() -> Untidy:
    model = Untidy()
    seeded(lambda: model)
    with torch.no_grad():
        model.scale.fill_(3.0)
    model.a(make_graph().x, torch.randint(N, (2, 6)))  # a warm cache
    model.train()
    model.b.eval()
    model.norm.eval()
    model.a.lin.weight.requires_grad_(False)
    model.scale.grad = torch.ones(1)
    model.seen.append(7)
    return model


@pytest.mark.parametrize("ends", [None, Boom, KeyboardInterrupt])
def test_everything_is_as_it_was(ends: type[BaseException] | None) -> None:
    data, model = make_graph(), untidy()
    fired: list[str] = []
    model.b.register_forward_hook(lambda *_: fired.append("forward"))
    model.b.register_forward_pre_hook(lambda *_: fired.append("before"))
    model.register_forward_hook(lambda *_: fired.append("root"))
    graph, state, before = [data.x.clone(), data.edge_index.clone()], generator_states(), snapshot(model)
    try:
        with FrozenGNN(model, data) as frozen:
            assert not any(m.training for m in (model, model.norm, model.a, model.a.lin, model.drop, model.b))
            assert not any(parameter.requires_grad for parameter in (model.scale, *model.b.parameters()))
            frozen(data.x, data.edge_index)
            assert fired[-3:] == ["before", "forward", "root"], "the user's hooks fire inside"
            frozen.require_edge_weights()
            frozen.embed(data.x, data.edge_index, torch.ones(data.edge_index.size(1)).requires_grad_())
            torch.rand(3), random.random(), np.random.rand()  # noqa: NPY002
            model.a.register_forward_hook(lambda *_: None)
            if ends is not None:
                raise ends
    except (Boom, KeyboardInterrupt):
        pass
    assert_same(before, snapshot(model))
    assert_same(state, generator_states())
    assert_same(graph, [data.x, data.edge_index])
    fired.clear()
    model(data.x, torch.zeros(2, 0, dtype=torch.long))
    assert fired == ["before", "forward", "root"], "the user's hooks survive"


def test_everything_is_as_it_was_when_the_trial_fails() -> None:
    class Breaks(Untidy):
        def forward(self, x: Tensor, edge_index: Tensor) -> Any:
            super().forward(x, edge_index)
            raise RuntimeError("no\nmore")

    model = Breaks()
    before, state = snapshot(model), generator_states()
    with pytest.raises(GraphMendError, match=r"cannot run on this graph.*RuntimeError: no;"):
        FrozenGNN(model, make_graph()).__enter__()
    assert_same(before, snapshot(model))
    assert_same(state, generator_states())


class Interrupted(TwoConvs):
    """Ctrl-C in the middle of a forward, after some calls."""

    def __init__(self, calls: int) -> None:
        super().__init__(Custom)
        self.calls_left = calls

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        self.calls_left -= 1
        out = super().forward(x, edge_index)
        if self.calls_left < 0:
            raise KeyboardInterrupt
        return out


@pytest.mark.parametrize("calls", [0, 1, 3, 5, 7, 9])
def test_ctrl_c_at_any_moment(calls: int) -> None:
    """Also while the model is patched and hooked; hooks must not stay behind."""
    data, model = make_graph(), seeded(lambda: Interrupted(calls))
    before, state = snapshot(model), generator_states()
    with pytest.raises(KeyboardInterrupt):
        GTrans(steps=50)(model, data)
    assert_same(before, snapshot(model))
    assert_same(state, generator_states())


def test_a_forward_of_the_users_own_survives() -> None:
    model = seeded(lambda: TwoConvs(pyg.GCNConv))
    original = model.a.forward
    model.a.forward = lambda x, edge_index: original(x, edge_index)
    mine = model.a.forward
    data = make_graph()
    with FrozenGNN(model, data) as frozen:
        frozen(data.x, data.edge_index, torch.ones(data.edge_index.size(1)))
        assert frozen.weighting is patched and model.a.forward is mine
    assert model.a.forward is mine


@pytest.mark.parametrize("kind", ["layer", "features", "weights"])
def test_a_model_that_writes_into_its_input_does_not_reach_the_users_graph(kind: str) -> None:
    class InPlace(TwoConvs):
        def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Any:
            if kind == "features":
                x /= 2.0
            if kind == "weights" and edge_weight is not None:
                edge_weight.mul_(2.0)
            if kind == "layer":
                x = self.act(x)
            return self.b(self.a(x, edge_index, edge_weight).relu(), edge_index, edge_weight)

    data = make_graph(edge_weight=edge_values())
    model = seeded(lambda: InPlace(pyg.GCNConv, nn.ReLU(inplace=True)))
    graph = {name: value.clone() for name, value in data.to_dict().items()}
    with FrozenGNN(model, data) as frozen:
        first = frozen.predict(data)
        frozen.require_edge_weights()
        assert frozen.embed(data.x, data.edge_index).shape == (N, HID)
        assert torch.equal(frozen.predict(data), first)
    result = GTrans(steps=5, budget=3, lr_feature=0.1)(model, data)
    assert result.reason is None
    for name, value in graph.items():
        assert torch.equal(data[name], value)
    mended = {name: value.clone() for name, value in result.data.to_dict().items()}
    own = model(mended["x"], mended["edge_index"], mended["edge_weight"])
    torch.testing.assert_close(own.detach(), result.logits)
    assert torch.equal(result.patch.revert(result.data).x, data.x)


def test_a_model_that_writes_into_the_edges_is_refused() -> None:
    class Sorting(TwoConvs):
        def forward(self, x: Tensor, edge_index: Tensor) -> Any:
            edge_index.copy_(edge_index.flip(1))
            return super().forward(x, edge_index)

    data = make_graph()
    before = data.edge_index.clone()
    model = seeded(lambda: Sorting(pyg.GCNConv))
    for _ in range(2):
        with pytest.raises(GraphMendError, match="writes into the edge_index"):
            FrozenGNN(model, data).__enter__()
    assert torch.equal(data.edge_index, before)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("made_inside", [False, True])
@pytest.mark.parametrize("make", [ByWeight, lambda: TwoConvs(Custom)], ids=["known layers", "custom layers"])
def test_under_no_grad_and_inference_mode(
    mode: Callable[[], Any], made_inside: bool, make: Callable[[], nn.Module]
) -> None:
    model = seeded(make)
    data = make_graph(edge_weight=edge_values())
    expected = GTrans(steps=10, budget=3)(model, data)
    with mode():
        if made_inside:
            data = make_graph(edge_weight=edge_values())
        result = GTrans(steps=10, budget=3)(model, data)
        enabled = torch.is_grad_enabled(), torch.is_inference_mode_enabled()
    assert enabled == (False, mode is torch.inference_mode)
    assert torch.is_grad_enabled() and not torch.is_inference_mode_enabled()
    assert result.reason is None
    assert torch.equal(result.data.x, expected.data.x) and torch.equal(result.logits, expected.logits)


def test_frozen_alone_under_inference_mode() -> None:
    model = seeded(ByWeight)
    with torch.inference_mode():
        data = make_graph(edge_weight=edge_values())
        with FrozenGNN(model, data) as frozen:
            presence = torch.ones(data.edge_index.size(1)).requires_grad_()
            frozen(data.x.clone(), data.edge_index, presence).square().mean().backward()
    assert presence.grad is not None and presence.grad.abs().max() > 0


def test_a_graph_that_wants_gradients_itself() -> None:
    limits = Limits(frozen_nodes=torch.arange(N) < 3, minimum=-1.0)
    adapters: list[Callable[[nn.Module, Data], Adaptation]] = [
        lambda m, d: GTrans(steps=5, budget=3)(m, d, limits=limits),
        lambda m, d: GTrans(lambda *_: torch.tensor(1.0))(m, d),  # left as it was
    ]
    for adapter in adapters:
        model, data = seeded(ByWeight), make_graph(edge_weight=edge_values())
        expected = adapter(model, data)
        data.x.requires_grad_()
        data.edge_weight.requires_grad_()
        result = adapter(model, data)
        assert torch.equal(result.data.x, expected.data.x) and torch.equal(result.logits, expected.logits)
        assert not result.data.x.requires_grad and not result.logits.requires_grad
        assert data.x.requires_grad and data.x.grad is None and data.edge_weight.grad is None


class Unruly(nn.Module):
    """Treats its tensors badly while it runs."""

    def __init__(self, deed: str) -> None:
        super().__init__()
        self.linear, self.deed = nn.Linear(IN, 3), deed
        self.register_buffer("first", torch.tensor([1.0, 2.0]))
        self.register_buffer("second", torch.tensor([3.0, 4.0]))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        if self.deed == "swap":
            self.linear.weight.data = torch.zeros_like(self.linear.weight)
        elif self.deed == "shrink":
            self.first.data = torch.tensor([9.0])
        elif self.deed == "grow":
            self.first.resize_(5)
        elif self.deed == "write":
            self.second[0] = 7.0
        out: Tensor = self.linear(x).index_add(0, edge_index[1], self.linear(x)[edge_index[0]])
        if self.deed == "raise":
            self.first += 1
            raise KeyboardInterrupt
        return out


@pytest.mark.parametrize("deed", ["swap", "shrink", "grow", "write", "raise"])
def test_whatever_a_model_does_to_its_tensors_they_are_as_they_were(deed: str) -> None:
    model = Unruly(deed)
    before = copy.deepcopy(model.state_dict())
    data = Data(x=torch.rand(6, IN), edge_index=torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]]))
    with contextlib.suppress(GraphMendError, KeyboardInterrupt), FrozenGNN(model, data) as frozen:
        frozen(data.x, data.edge_index)
    after = model.state_dict()
    for name, value in before.items():
        assert after[name].shape == value.shape, name
        assert torch.equal(after[name], value), name
    assert all(parameter.requires_grad for parameter in model.parameters())


class WritesLater(nn.Module):
    """Writes into its input from its n-th call on, which no trial run shows."""

    def __init__(self, good: int) -> None:
        super().__init__()
        self.conv, self._left = pyg.GCNConv(IN, OUT), [good]

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        self._left.append(self._left.pop() - 1)
        if self._left[0] < 0:
            with torch.no_grad():
                x.mul_(0.5)
        return self.conv(x, edge_index)


@pytest.mark.parametrize("good", [1, 2, 3, 5])
@pytest.mark.parametrize("adapter", [Identity(), Gate()], ids=lambda adapter: type(adapter).__name__)
def test_a_model_that_writes_into_its_input_later_is_named_and_the_graph_stays(adapter: Any, good: int) -> None:
    data, model = make_graph(), seeded(lambda: WritesLater(good))
    before, version = data.x.clone(), data.x._version
    try:
        adapter(model, data)
        assert model._left[0] >= 0, "it has written, and nobody has noticed"
    except GraphMendError as error:
        assert "has begun to write into x of its input, which it did not do when it was tried" in str(error)
    assert torch.equal(data.x, before) and data.x._version == version


def test_a_large_graph_is_not_copied_but_a_write_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphmend.model.restore.COPIED_BYTES", 0)
    data = make_graph()
    with pytest.raises(GraphMendError, match="has begun to write into x"), private(data) as own:
        assert own.x is data.x
        own.x.add_(1)
