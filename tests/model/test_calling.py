"""However a model wants to be called, and whatever it returns."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import torch_geometric.nn as pyg
from torch import Tensor, nn
from torch_geometric.data import Data

from graphmend import FrozenGNN, GraphMendError, GTrans, Identity, mend
from graphmend.errors import ModelFailedError
from graphmend.model.comparing import is_close
from graphmend.model.edge_weights import native
from graphmend.surrogates import Supervised
from support.sample_models import (
    HID,
    IN,
    OUT,
    ByAttr,
    ByData,
    ByDataAndMore,
    ByOptionalWeight,
    ByWeight,
    DenseWeights,
    KeywordsOnly,
    N,
    OtherNames,
    OwnEmbed,
    Swapped,
    TakesData,
    TwoConvs,
    Weighted,
    basic,
    edge_values,
    embedding,
    make_graph,
    pyg_sequential,
    seeded,
)

STYLES = [ByWeight, ByOptionalWeight, ByAttr, ByData, ByDataAndMore, Swapped, KeywordsOnly, OtherNames]


@pytest.mark.parametrize("style", STYLES)
def test_the_graphs_own_weights_reach_the_model(style: type[Weighted]) -> None:
    weight = edge_values()
    data = make_graph(edge_attr=weight.view(-1, 1)) if style is ByAttr else make_graph(edge_weight=weight)
    model = seeded(style)
    with torch.no_grad():
        expected = model.both(data.x, data.edge_index, weight)
        assert not torch.allclose(expected, model.both(data.x, data.edge_index, None))
    with FrozenGNN(model, data) as frozen:
        assert is_close(frozen(data.x, data.edge_index), expected)
        assert is_close(frozen.predict(data), expected)
        torch.testing.assert_close(frozen(data.x, data.edge_index, torch.ones_like(weight)), expected)


def test_presence_multiplies_the_weights_a_model_takes_itself() -> None:
    data, model = make_graph(edge_weight=edge_values()), seeded(lambda: DenseWeights(True))
    presence = torch.rand(data.edge_index.size(1), generator=torch.Generator().manual_seed(2))
    with FrozenGNN(model, data) as frozen, torch.no_grad():
        assert frozen.weighting is native
        weight = data.edge_weight * presence
        torch.testing.assert_close(frozen(data.x, data.edge_index, presence), model(data.x, data.edge_index, weight))
        torch.testing.assert_close(
            frozen.embed(data.x, data.edge_index, presence), model.embed(data.x, data.edge_index, weight)
        )


@pytest.mark.parametrize("style", [*STYLES, pyg_sequential])
def test_presence_multiplies_the_graphs_own_weights(style: Callable[[], nn.Module]) -> None:
    """w becomes w (1 - p), not only at 0 and 1."""
    weight, model = edge_values(), seeded(style)
    data = make_graph(edge_attr=weight.view(-1, 1)) if style is ByAttr else make_graph(edge_weight=weight)
    own = torch.ones_like(weight) if style is pyg_sequential else weight
    generator = torch.Generator().manual_seed(2)
    presence = torch.rand(weight.numel(), generator=generator)
    presence[data.edge_index[0] == data.edge_index[1]] = 1.0
    a, b = (model[0], model[2]) if style is pyg_sequential else (model.a, model.b)
    with FrozenGNN(model, data) as frozen, torch.no_grad():
        hidden = a(data.x, data.edge_index, own * presence).relu()
        torch.testing.assert_close(frozen.embed(data.x, data.edge_index, presence), hidden)
        torch.testing.assert_close(
            frozen(data.x, data.edge_index, presence), b(hidden, data.edge_index, own * presence)
        )


def test_a_pyg_sequential_gets_the_arguments_it_declares() -> None:
    random.seed()  # PyG names a file after a random number, and tests in other processes begin with the same ones
    model = seeded(
        lambda: pyg.Sequential(
            "x, edge_index, edge_weight",
            [(pyg.GCNConv(IN, OUT), "x, edge_index, edge_weight -> x"), (lambda x: x, "x -> x")],
        )
    )
    data = make_graph(edge_weight=edge_values())
    with FrozenGNN(model, data) as frozen:
        assert is_close(frozen.predict(data), model(data.x, data.edge_index, data.edge_weight))
    with pytest.raises(GraphMendError, match="forward needs edge_weight"):
        FrozenGNN(model, make_graph()).__enter__()


@pytest.mark.parametrize("name", ["GAT", "GATv2", "PNA", "GCN", "GraphSAGE", "GIN", "EdgeCNN"])
def test_edge_attributes_a_stock_model_cannot_take_are_left_out(name: str) -> None:
    """Stock models have an ``edge_attr`` parameter, but made without ``edge_dim`` some fail when given it."""
    data, model = make_graph(edge_attr=edge_values(4)), seeded(lambda: basic(name, num_layers=2)).eval()
    with torch.no_grad():
        expected = model(data.x, data.edge_index)
    with FrozenGNN(model, data) as frozen:
        assert is_close(frozen.predict(data), expected)
        assert frozen.embed(data.x, data.edge_index).shape == (N, HID)
    result = GTrans(steps=2, edge_steps=0)(model, data)
    assert result.reason is None and torch.equal(result.data.edge_attr, data.edge_attr)


def test_leaving_out_edge_attributes_is_said(caplog: pytest.LogCaptureFixture) -> None:
    model = seeded(lambda: basic("GATv2", num_layers=2))
    with FrozenGNN(model, make_graph(edge_attr=edge_values(4))):
        pass
    assert "called without edge_attr" in caplog.text


def test_edge_attributes_a_stock_model_can_take_are_used() -> None:
    data = make_graph(edge_attr=edge_values(4))
    model = seeded(lambda: pyg.GAT(IN, HID, num_layers=2, out_channels=OUT, v2=True, edge_dim=4)).eval()
    with FrozenGNN(model, data) as frozen:
        assert is_close(frozen.predict(data), model(data.x, data.edge_index, edge_attr=data.edge_attr))
        assert not torch.allclose(
            frozen.predict(data), frozen.predict(make_graph(edge_attr=torch.ones_like(data.edge_attr)))
        )


def test_an_error_of_the_model_itself_is_not_hidden_by_leaving_out_edge_attributes() -> None:
    wide = seeded(lambda: pyg.GAT(IN + 1, HID, num_layers=2, out_channels=OUT, v2=True))
    with pytest.raises(GraphMendError, match=rf"x has shape \({N}, {IN}\).*check feature width"):
        FrozenGNN(wide, make_graph(edge_attr=edge_values(4))).__enter__()


class Output(nn.Module):
    def __init__(self, shape: Callable[[Tensor], Any], classes: int = OUT) -> None:
        super().__init__()
        self.a, self.b, self.shape = pyg.GCNConv(IN, HID), pyg.GCNConv(HID, classes), shape

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        return self.shape(self.b(self.a(x, edge_index).relu(), edge_index))


@pytest.mark.parametrize(
    "shape, classes",
    [(lambda z: z, OUT), (lambda z: z.log_softmax(-1), OUT), (lambda z: z.view(-1), 1), (lambda z: z, 1)],
    ids=["logits", "log-softmax", "binary (N,)", "binary (N, 1)"],
)
def test_outputs(shape: Callable[[Tensor], Any], classes: int) -> None:
    data, model = make_graph(), seeded(lambda: Output(shape, classes))
    with torch.no_grad():
        expected = model(data.x, data.edge_index)
    with FrozenGNN(model, data) as frozen:
        assert is_close(frozen(data.x, data.edge_index), expected)
    result = GTrans(steps=5, budget=2)(model, data)
    assert result.reason is None and result.logits.shape == expected.shape


@pytest.mark.parametrize(
    "shape, got",
    [
        (lambda z: (z, z), rf"tuple with 0: \({N}, {OUT}\), .*output=0"),
        (lambda z: {"logits": z}, rf"dict with 'logits': \({N}, {OUT}\)\); .*output='logits'"),
        (lambda z: z[:2], rf"\(2, {OUT}\)\); wrap it"),
        (lambda z: z.view(N, 1, OUT), rf"\({N}, 1, {OUT}\)\); wrap it"),
        (lambda z: z.sum(), r"\(\)\); wrap it"),
    ],
)
def test_outputs_that_are_not_one_row_per_node(shape: Callable[[Tensor], Any], got: str) -> None:
    with pytest.raises(GraphMendError, match=rf"{N} rows, or per graph, 1 \(got {got}"):
        FrozenGNN(seeded(lambda: Output(shape)), make_graph()).__enter__()


def test_arguments_the_graph_does_not_have() -> None:
    class Needy(Weighted):
        def forward(self, x: Tensor, edge_index: Tensor, pos: Tensor, time: Tensor) -> Any:
            return self.both(x + pos + time, edge_index, None)

    with pytest.raises(GraphMendError, match=r"needs time, which the graph does not have; set data.time or wrap"):
        FrozenGNN(seeded(Needy), make_graph(pos=torch.ones(N, IN))).__enter__()
    data = make_graph(pos=torch.ones(N, IN), time=torch.ones(N, 1))
    assert embedding(seeded(Needy), data).shape == (N, HID)


def test_optional_labels_are_never_passed() -> None:
    class Training(Weighted):
        def forward(self, x: Tensor, edge_index: Tensor, y: Tensor | None = None) -> Any:
            out = self.both(x, edge_index, None)
            return out if y is None else (F.cross_entropy(out, y), out)

    assert embedding(seeded(Training), make_graph(y=torch.zeros(N, dtype=torch.long))).shape == (N, HID)


class Peeking(TakesData):
    """Returns the labels, if it gets hold of them."""

    def forward(self, data: Data) -> Any:
        out = super().forward(data)
        return out if data.y is None else 100.0 * F.one_hot(data.y, OUT).to(out.dtype)


@pytest.mark.parametrize("adapter", [None, GTrans(steps=2), Identity()], ids=["gate", "gtrans", "identity"])
def test_labels_are_kept_from_a_model_that_takes_the_graph(adapter: Any) -> None:
    y = torch.arange(N) % OUT
    data, model = make_graph(y=y), seeded(Peeking)
    result = mend(model, data, adapter)
    assert torch.equal(result.logits, mend(seeded(TakesData), make_graph(), adapter).logits)
    assert data.y is y and torch.equal(result.data.y, y)


def test_a_surrogate_sees_the_labels_that_it_was_allowed() -> None:
    y, mask = torch.arange(N) % OUT, torch.arange(N) < 4
    result = GTrans(Supervised(mask), steps=3, edge_steps=0, lr_feature=0.05)(seeded(Peeking), make_graph(y=y))
    assert result.reason is None and result.history[-1].loss < result.history[0].loss


@pytest.mark.parametrize("takes", ["data", "y"])
def test_a_model_that_cannot_do_without_labels_is_told_so(takes: str) -> None:
    class Reading(TakesData):
        def forward(self, data: Data) -> Any:
            return super().forward(data) + F.one_hot(data.y, OUT)

    class Asking(TwoConvs):
        def forward(self, x: Tensor, edge_index: Tensor, y: Tensor) -> Any:
            return super().forward(x, edge_index) + F.one_hot(y, OUT)

    model = seeded(Reading if takes == "data" else lambda: Asking(pyg.GCNConv))
    with pytest.raises(GraphMendError, match=r"asks for the labels y, which are kept from it .*; wrap the model"):
        mend(model, make_graph(y=torch.arange(N) % OUT))


@pytest.mark.parametrize("model", [None, "gcn", lambda x, edge_index: x])
def test_what_is_no_module(model: Any) -> None:
    with pytest.raises(GraphMendError, match=r"must be a torch.nn.Module \(got "):
        FrozenGNN(model, make_graph())


def test_a_model_that_has_never_run() -> None:
    with pytest.raises(GraphMendError, match=r"has never run: convs.0.lin.weight have no values yet"):
        FrozenGNN(pyg.GCN(-1, HID, num_layers=2, out_channels=OUT), make_graph())


def test_outside_its_block_and_opened_twice() -> None:
    data, frozen = make_graph(), FrozenGNN(seeded(OwnEmbed), make_graph())
    for use in (lambda: frozen(data.x, data.edge_index), lambda: frozen.embed(data.x, data.edge_index)):
        with pytest.raises(GraphMendError, match="inside its with block"):
            use()
    with frozen, pytest.raises(GraphMendError, match="already open"):
        frozen.__enter__()
    with frozen:
        assert frozen.embed(data.x, data.edge_index).shape == (N, HID)


def test_a_compiled_model_is_used_through_its_original() -> None:
    class Compiled(nn.Module):  # what torch.compile returns, as far as we look at it
        def __init__(self, model: nn.Module) -> None:
            super().__init__()
            self._orig_mod = model

        def forward(self, *args: Any, **kwargs: Any) -> Any:
            raise AssertionError("not the compiled one")

    data, model = make_graph(), seeded(OwnEmbed)
    assert torch.equal(embedding(Compiled(model), data), embedding(model, data))


def test_a_model_without_values_is_refused() -> None:
    model = pyg.GCN(IN, HID, num_layers=2, out_channels=OUT).to("meta")
    with pytest.raises(GraphMendError, match=r"on the meta device: .* have no values; load its weights first"):
        FrozenGNN(model, make_graph())


@pytest.mark.parametrize("embedding", [["a"], {}, 3, torch.ones(2)], ids=repr)
def test_an_embedding_is_named_by_a_text(embedding: Any) -> None:
    with pytest.raises(GraphMendError, match="embedding must be a text"):
        FrozenGNN(pyg.GCN(IN, HID, num_layers=2, out_channels=OUT), make_graph(), embedding=embedding)


def test_a_graph_that_is_none_is_refused_before_the_model_runs() -> None:
    data = make_graph()
    data.edge_index = data.edge_index.float()
    with pytest.raises(GraphMendError, match=r"edge_index must be torch\.int64"):
        FrozenGNN(pyg.GCN(IN, HID, num_layers=2, out_channels=OUT), data)


def test_types_that_do_not_go_together_are_named() -> None:
    model, data = pyg.GCN(IN, HID, num_layers=2, out_channels=OUT), make_graph()
    data.x = data.x.double()
    remedy = r"are torch.float32 but x is torch.float64: convert one of them, data.x = data.x.float\(\) or model.double"
    with pytest.raises(GraphMendError, match=remedy):
        mend(model, data)
    assert mend(model.double(), data).logits.dtype == torch.float64


class ReadsMatrix(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = pyg.GCNConv(IN, OUT)

    def forward(self, data: Data) -> Any:
        return self.conv(data.x, data.adj_t)


def test_a_model_that_reads_the_sparse_matrix_is_told_that_it_gets_an_edge_list() -> None:
    data = make_graph()
    data.adj_t = torch.eye(data.x.size(0)).to_sparse()
    with pytest.raises(GraphMendError, match="with edge_index instead of adj_t, so that edges can change"):
        mend(ReadsMatrix(), data)


class SomeOutput(nn.Module):
    """Gives class scores at first and something else later."""

    def __init__(self, later: Callable[[Tensor], Any], good: int) -> None:
        super().__init__()
        self.conv, self._later, self._left = pyg.GCNConv(IN, OUT), later, [good]

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        self._left.append(self._left.pop() - 1)
        out = self.conv(x, edge_index)
        return out if self._left[0] >= 0 else self._later(out)


LATER: dict[str, Callable[[Tensor], Any]] = {
    "no columns": lambda out: out[:, :0],
    "sparse": lambda out: out.to_sparse(),
    "whole numbers": lambda out: out.argmax(1),
    "a dictionary": lambda out: {"out": out},
    "fewer rows": lambda out: out[1:],
}


@pytest.mark.parametrize("good", [0, 1, 2, 3, 5])
@pytest.mark.parametrize("kind", LATER)
def test_an_output_that_is_no_scores_ends_in_a_sentence_whenever_it_comes(kind: str, good: int) -> None:
    for adapter in (Identity(), GTrans(steps=2), None):
        with contextlib.suppress(GraphMendError):
            mend(SomeOutput(LATER[kind], good), make_graph(), adapter, source=make_graph())
    with pytest.raises(GraphMendError, match="the model must return"):
        Identity()(SomeOutput(LATER[kind], 0), make_graph())


def fails(out: Tensor) -> Any:
    raise MemoryError


class Breaks(TwoConvs):
    """Fails before its first layer, once it is broken."""

    def __init__(self) -> None:
        super().__init__(pyg.GCNConv)
        self.broken: list[bool] = []

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        return fails(x) if self.broken else super().forward(x, edge_index)


def test_an_error_of_the_model_is_named_wherever_it_is_run() -> None:
    data, model = make_graph(), Breaks()
    with FrozenGNN(model, data) as frozen:
        for run in (frozen, frozen.embed, frozen.first_layer, lambda *_: frozen.predict(data)):
            run(data.x, data.edge_index)
            model.broken.append(True)
            with pytest.raises(ModelFailedError, match=r"the model cannot run on this graph, .*: MemoryError"):
                run(data.x, data.edge_index)
            model.broken.clear()


def test_a_model_that_fails_on_the_way_leaves_the_graph_as_it_was() -> None:
    data = make_graph()
    for good in range(1, 30):
        with contextlib.suppress(ModelFailedError):  # it has not even begun
            result = GTrans(steps=3)(SomeOutput(fails, good), data)
            assert result.reason is None or "MemoryError" in result.reason
            assert result.reason is None or torch.equal(result.data.x, data.x)


def test_a_model_that_fails_in_a_trial_is_named() -> None:
    data = make_graph()
    for good in range(20):
        with contextlib.suppress(GraphMendError), FrozenGNN(SomeOutput(fails, good), data) as frozen:
            frozen.embed(data.x, data.edge_index)
            frozen.first_layer(data.x, data.edge_index)
            assert frozen.takes_edge_weights or frozen.reads_weights in (True, False)
