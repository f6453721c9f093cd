"""One contract for the gate and every adapter of the registry: a new member is covered by its name there."""

from __future__ import annotations

import copy
import logging
import math
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor, nn
from torch_geometric.data import Data

from graphmend import Adaptation, FrozenGNN, Gate, GraphMendError, Identity, Limits, mend
from graphmend.adapters import ADAPTERS as REGISTERED
from graphmend.adapters import Case, Proposal
from graphmend.adapters.case import Needs
from graphmend.cards import SourceCard, card
from graphmend.contracts import Adapter as AdapterContract
from graphmend.files.digest import model_digest
from graphmend.lab.backbones import GCN, AirGNN
from graphmend.results.history import Step
from support.adapter_cases import (
    HID,
    IN,
    OUT,
    N,
    assert_close_results,
    assert_same_result,
    loss_of_logits,
    make_model,
    sage_with_batch_norm,
)
from support.adapter_cases import make_graph as make_plain_graph
from support.untouched import Boom, assert_same, generator_states, state_of


class TheirOwn:
    """An adapter with nothing but what the contract asks for."""

    def propose(self, case: Case) -> Proposal:
        return Proposal(case.within_limits(case.data.x * 2))


BLIND = "gate without a card"
ADAPTERS: dict[str, type[AdapterContract]] = {**REGISTERED, BLIND: Gate, "their own": TheirOwn}
adapters = pytest.mark.parametrize("name", ADAPTERS)
MODELS: dict[str, Callable[[], nn.Module]] = {
    "stock": sage_with_batch_norm,
    "our own": lambda: GCN(IN, HID, OUT, batch_norm=True, dropout=0.5),
}
models = pytest.mark.parametrize("kind", MODELS)

NEED_A_MODEL: dict[str, Callable[[], nn.Module]] = {"airgnn_tune": lambda: AirGNN(IN, HID, OUT, batch_norm=True)}
OPTIONS: dict[str, dict[str, Any]] = {"jaccard": {"threshold": 0.9}}  # otherwise labels choose it


def make_adapter(name: str, **options: Any) -> AdapterContract:
    return ADAPTERS[name](**OPTIONS.get(name, {}), **options)


def make_graph(dtype: torch.dtype = torch.float64) -> Data:
    """With masks, for adapters that choose by labels."""
    train, val = torch.arange(N) % 3 == 0, torch.arange(N) % 3 == 1
    return make_plain_graph(dtype, train_mask=train, val_mask=val)


def in_use(name: str = "", kind: str = "stock") -> nn.Module:
    """A model as it may be in a running training: some parts in train mode, one parameter without a gradient."""
    model = make_model(make=NEED_A_MODEL.get(name, MODELS[kind])).train()
    next(model.children()).eval()
    next(model.parameters()).requires_grad_(False)
    list(model.parameters())[1].grad = torch.ones_like(list(model.parameters())[1])
    for module in model.modules():
        if isinstance(module, nn.BatchNorm1d):
            module.running_mean.uniform_(-0.5, 0.5)
            module.running_var.uniform_(0.5, 1.5)
    return model


_CARDS: dict[str, SourceCard] = {}


def card_of(model: nn.Module, columns: int = IN) -> SourceCard:
    """A card of a model from a graph in which the ends of every edge are much alike, made once."""
    key = f"{model_digest(model)} {columns}"
    if key not in _CARDS:
        data = make_graph(next(model.parameters()).dtype)
        alike = data.y[data.edge_index[0]] == data.y[data.edge_index[1]]
        means = torch.stack([data.x[data.y == side].mean(0) for side in (0, 1)])
        x = 0.8 * (0.7 * data.x + 0.3 * means[data.y]).flip(0) - 0.2
        _CARDS[key] = card(model, Data(x=x, edge_index=data.edge_index[:, alike]), task="classes")
    return _CARDS[key]


def adapt(name: str, model: nn.Module, data: Data, **call: Any) -> Adaptation:
    """The adapter of this name, with its defaults and a card."""
    return mend(model, data, make_adapter(name), card=None if name == BLIND else card_of(model), **call)


UNCHANGING = (
    "airgnn_tune",
    "fine_tune",
    "identity",
    "impute",
    "tent",
    "gate",
    BLIND,
)  # on this graph; tests/gate has graphs that the gate changes


def output(model: nn.Module, data: Data) -> Tensor:
    """What a copy of the model, in evaluation mode, says about a graph and its weights."""
    if "edge_weight" not in data:
        with torch.no_grad():
            out: Tensor = copy.deepcopy(model).eval()(data.x, data.edge_index)
        return out
    bare = copy.copy(data)
    del bare.edge_weight
    with FrozenGNN(copy.deepcopy(model), bare) as frozen:
        return frozen(data.x, data.edge_index, data.edge_weight).detach()


@adapters
@models
@pytest.mark.parametrize("mode", ["auto", "eager"])
def test_the_result_fits_together_and_nothing_is_touched(name: str, kind: str, mode: str) -> None:
    model, data = in_use(name, kind), make_graph()
    original, before = data.clone(), state_of(model, data)
    result = adapt(name, model, data, mode=mode)
    assert_same(before, state_of(model, data))
    assert isinstance(result, Adaptation) and result.reason is None
    has_changed = result.patch.num_rows + result.patch.num_removed + result.patch.num_weights > 0
    assert has_changed is (name not in UNCHANGING), "otherwise nothing is tested"
    assert result.data is not data and result.data.x.data_ptr() != data.x.data_ptr()
    assert (result.model is model) is not getattr(ADAPTERS[name], "changes_model", False)
    torch.testing.assert_close(result.logits, output(result.model, result.data))
    assert not result.logits.requires_grad and not result.data.x.requires_grad
    applied, reverted = result.patch.apply(data), result.patch.revert(result.data)
    assert applied.keys() == result.data.keys() and reverted.keys() == original.keys()
    for key, value in result.data.to_dict().items():
        assert torch.equal(applied[key], value), key
    for key, value in original.to_dict().items():
        assert torch.equal(reverted[key], value) and torch.equal(data[key], value), key
    summary = result.summary()
    assert summary["steps"] == len(result.history) and summary["reason"] is None and summary["seconds"] >= 0


@adapters
def test_the_seed_decides(name: str) -> None:
    model, data = in_use(name), make_graph()
    first = adapt(name, model, data, seed=3)
    for seed_all in (torch.manual_seed, random.seed, np.random.seed):  # what others draw does not matter
        seed_all(77)
    assert_same_result(first, adapt(name, model, data, seed=3))
    assert_same_result(first, adapt(name, copy.deepcopy(model), copy.deepcopy(data), seed=3))


@adapters
@models
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_plain_way_agrees_with_the_fast_one(name: str, kind: str, dtype: torch.dtype) -> None:
    model, data = in_use(name, kind).to(dtype), make_graph(dtype)
    fast, plain = (adapt(name, model, data, mode=mode) for mode in ("auto", "eager"))
    assert_close_results(fast, plain, 1e-4 if dtype == torch.float32 else 1e-9)
    assert not (plain.engine.shared_features or plain.engine.stacked_views or plain.engine.recorded)


@adapters
def test_steps_are_told(name: str) -> None:
    steps: list[Step] = []
    result = adapt(name, in_use(name), make_graph(), callback=steps.append)
    assert steps == result.history and [step.index for step in steps] == list(range(len(steps)))


@adapters
def test_limits_are_respected(name: str) -> None:
    data = make_graph()
    data.x[:, 0] = (data.x[:, 0] > 1).double()
    rows, columns = torch.arange(N) % 4 == 0, torch.arange(IN) == 1
    limits = Limits(
        frozen_nodes=rows,
        frozen_columns=columns,
        frozen_edges=torch.ones(data.edge_index.size(1), dtype=torch.bool),
        binary=torch.arange(IN) == 0,
    )
    result = adapt(name, in_use(name), data, limits=limits)
    assert result.reason is None
    assert torch.equal(result.data.x[rows], data.x[rows])
    assert torch.equal(result.data.x[:, columns], data.x[:, columns])
    assert set(result.data.x[:, 0].tolist()) <= {0.0, 1.0}
    assert result.patch.num_removed == result.patch.num_weights == 0


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "no model": ({"model": None}, r"must be a torch.nn.Module \(got NoneType\)"),
    "no graph": ({"data": None}, r"must be a torch_geometric.data.Data \(got NoneType\)"),
    "model of another width": ({"model": pyg.GCN(IN + 2, HID, 2, OUT).double()}, "cannot run on this graph"),
    "no number": (
        {"data": Data(x=torch.full((2, 3), math.nan), edge_index=torch.ones(2, 1).long())},
        "nothing but missing",
    ),
    "seed": ({"seed": -1}, r"seed must be a whole number .* \(got -1\)"),
    "mode": ({"mode": "fast"}, "unknown mode 'fast'; choose one of auto, eager"),
    "limits": ({"limits": 3}, r"limits must be a graphmend.Limits \(got int\)"),
    "a mask that does not fit": (
        {"limits": Limits(frozen_nodes=torch.ones(3).bool())},
        f"one entry per node, {N} in all",
    ),
}


@adapters
@pytest.mark.parametrize("call, said", BAD.values(), ids=BAD.keys())
def test_bad_input_is_named(name: str, call: dict[str, Any], said: str) -> None:
    arguments = {"model": in_use(name), "data": make_graph(), **call}
    before = generator_states()
    with pytest.raises(GraphMendError, match=said):
        mend(arguments.pop("model"), arguments.pop("data"), make_adapter(name), **arguments)
    assert_same(before, generator_states())


@adapters
def test_a_card_that_does_not_fit_is_named(name: str) -> None:
    model, data, adapter = in_use(name), make_graph(), make_adapter(name)
    made = card_of(model)
    wider = Data(x=torch.cat([data.x, data.x[:, :2]], dim=1), edge_index=data.edge_index)
    with pytest.raises(GraphMendError, match=r"card must be a graphmend.SourceCard or its file \(got int\)"):
        mend(model, data, adapter, card=3)  # type: ignore[arg-type]
    with pytest.raises(GraphMendError, match=r"there is no file nowhere\.card"):
        mend(model, data, adapter, card="nowhere.card")
    with pytest.raises(GraphMendError, match=r"must be a torch.nn.Module \(got NoneType\)"):
        mend(None, data, adapter, card=made)  # type: ignore[arg-type]
    with pytest.raises(GraphMendError, match=f"of a graph with {IN} feature columns, this graph has {IN + 2}"):
        mend(make_model(make=lambda: pyg.GCN(IN + 2, HID, 2, OUT)), wider, adapter, card=made)
    with pytest.raises(GraphMendError, match="the source card belongs to another model"):
        mend(make_model(), data, adapter, card=made)


NEED_A_CARD = ("purify", "reweight")


@adapters
def test_without_a_card_it_works_or_says_that_it_needs_one(name: str) -> None:
    model, data = in_use(name), make_graph()
    if name in NEED_A_CARD:
        with pytest.raises(GraphMendError, match=r"needs a source card; make one with graphmend.card\("):
            mend(model, data, make_adapter(name), task="classes")
    else:
        assert mend(model, data, make_adapter(name), task="classes").reason is None


def with_surrogate(name: str, surrogate: Any) -> AdapterContract:
    """The adapter with another loss, if it has one."""
    if not hasattr(make_adapter(name), "surrogate"):
        pytest.skip(f"{name} has no surrogate")
    return make_adapter(name, surrogate=surrogate)


def raising(model: Any, data: Data) -> Tensor:
    raise Boom("no idea")


@adapters
@pytest.mark.parametrize("mode", ["auto", "eager"])
@pytest.mark.parametrize(
    "surrogate, said",
    [
        (raising, "the surrogate failed with Boom: no idea"),
        (lambda m, d: math.nan * loss_of_logits(m, d), "the surrogate loss is not finite"),
        (lambda m, d: torch.ones(()), "does not depend on the"),
    ],
    ids=["raises", "not finite", "constant"],
)
def test_a_failing_surrogate_changes_nothing(
    name: str, mode: str, surrogate: Any, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    model, data = in_use(name), make_graph()
    before = state_of(model, data)
    result = with_surrogate(name, surrogate)(model, data, mode=mode)
    assert_same(before, state_of(model, data))
    assert result.reason is not None and said in result.reason and result.reason in caplog.text
    assert result.model is model and result.patch.num_rows == result.patch.num_removed == result.patch.num_added == 0
    assert torch.equal(result.data.x, data.x) and torch.equal(result.data.edge_index, data.edge_index)
    assert torch.equal(result.logits, Identity()(model, data).logits)


@adapters
def test_the_log_says_what_is_decided_and_why(name: str, caplog: pytest.LogCaptureFixture) -> None:
    """One sentence at INFO; at DEBUG what the adapter was given, and something that it found out itself."""
    model, data = in_use(name), make_graph()
    with caplog.at_level(logging.DEBUG, "graphmend"):
        result = adapt(name, model, data)
    decided = [record.getMessage() for record in caplog.records if record.levelno == logging.INFO]
    label = Needs.of(make_adapter(name)).name
    assert decided == [f"{label}: {result.decision}: {result.sentence}"]
    reasons = [record.getMessage() for record in caplog.records if record.levelno == logging.DEBUG]
    assert sum(reason.startswith(f"{label}: {N} nodes, ") for reason in reasons) == 1
    own = {"gate": "edges per node", BLIND: "rows", "their own": ""}.get(name, f"{type(make_adapter(name)).__name__}: ")
    assert any(own in reason for reason in reasons)


@adapters
def test_whether_somebody_reads_the_log_changes_nothing(name: str, caplog: pytest.LogCaptureFixture) -> None:
    model, data = in_use(name), make_graph()
    with caplog.at_level(logging.DEBUG, "graphmend"):
        told = adapt(name, model, data)
    with caplog.at_level(logging.ERROR, "graphmend"):
        assert_same_result(told, adapt(name, model, data))


class Counter:
    """Counts calls, and raises after so many; copies of a model share it."""

    def __init__(self, error: type[BaseException] | None = None, at: int = -1) -> None:
        self.calls, self.error, self.at = 0, error, at

    def __deepcopy__(self, memo: Any) -> Counter:
        return self

    def __call__(self) -> None:
        self.calls += 1
        if self.error is not None and self.calls > self.at:
            raise self.error


class Stopping(nn.Module):
    """A model that counts its calls, and raises at one of them."""

    def __init__(self, name: str, counter: Counter) -> None:
        super().__init__()
        self.inner, self.count = NEED_A_MODEL.get(name, sage_with_batch_norm)(), counter

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        self.count()
        out: Tensor = self.inner(x, edge_index)
        return out


@adapters
@pytest.mark.parametrize("error", [KeyboardInterrupt, Boom])
@pytest.mark.parametrize("share", [0.0, 0.2, 0.5, 0.9, 1.0])
def test_whenever_it_is_interrupted_nothing_is_touched(name: str, error: type[BaseException], share: float) -> None:
    """Ctrl-C, or an error of the model itself, at the first call of the model, at the last, and between."""
    counter = Counter()
    made = None if name in (BLIND, *NEED_A_MODEL) else card_of(make_model(make=lambda: Stopping(name, Counter())))
    mend(make_model(make=lambda: Stopping(name, counter)), make_graph(), make_adapter(name), card=made, task="classes")
    stopping = Counter(error, at=int(share * (counter.calls - 1)))
    model, data = make_model(make=lambda: Stopping(name, stopping)).train(), make_graph()
    before = state_of(model, data)
    if error is KeyboardInterrupt:
        with pytest.raises(KeyboardInterrupt):
            mend(model, data, make_adapter(name), card=made, task="classes")
    else:
        with pytest.raises(GraphMendError, match=r"cannot run on this graph, .*: Boom: no message"):
            mend(model, data, make_adapter(name), card=made, task="classes")
    assert_same(before, state_of(model, data))


@adapters
def test_an_error_in_the_callback_is_the_callers_own(name: str) -> None:
    def complain(step: Step) -> None:
        raise Boom

    model, data = in_use(name), make_graph()
    before = state_of(model, data)
    has_steps = bool(adapt(name, model, data).history)
    if has_steps:
        with pytest.raises(Boom):
            adapt(name, model, data, callback=complain)
    else:
        adapt(name, model, data, callback=complain)
    assert_same(before, state_of(model, data))
