"""Models as they are deployed: compiled, wrapped, averaged, in mixed precision, and returning more than scores."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch_geometric.data import Data

from graphmend import Adaptation, FrozenGNN, GraphMendError, GTrans, SourceCard, card, mend
from graphmend.adapters import FineTune, Tent
from graphmend.wrappers import unwrapped
from support.gate_cases import BAD_ROWS, CLASSES, IN, fitted, planted, with_bad_rows
from support.untouched import assert_same, state_of


class Inside(nn.Module):
    """A model with another one inside, which may be compiled."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        return self.inner(x, edge_index)


class Halves(Inside):
    """Runs under autocast inside, as a server does that knows nothing of the caller."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.inner(x, edge_index)


class InFloat(Halves):
    """The same, with scores in single precision."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        return super().forward(x, edge_index).float()


class OwnAverage(nn.Module):
    """A wrapper of somebody's own that hands everything on."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.ema_model = model

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.ema_model(*args, **kwargs)


def base() -> nn.Module:
    """A trained GCN with batch normalisation, this test's own."""
    return copy.deepcopy(_trained())


@functools.cache
def _trained() -> nn.Module:
    torch.manual_seed(0)
    return fitted(pyg.GCN(IN, 16, num_layers=2, out_channels=CLASSES, norm="batch_norm", dropout=0.2), planted())


def compiled(model: nn.Module) -> nn.Module:
    return torch.compile(model, backend="eager")  # type: ignore[return-value]


def compiled_in_place(model: nn.Module) -> nn.Module:
    model.compile(backend="eager")
    return model


def averaged(model: nn.Module) -> nn.Module:
    out = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    out.update_parameters(model)
    return out


WRAPPERS: dict[str, Callable[[nn.Module], nn.Module]] = {
    "torch.compile": compiled,
    "model.compile": compiled_in_place,
    "DataParallel": nn.DataParallel,
    "averaged": averaged,
    "averaged and compiled": lambda model: compiled(averaged(model)),
    "compiled inside": lambda model: Inside(compiled(model)),
    "a layer compiled in place": lambda model: Inside(compiled_in_place(model)),
    "a wrapper of one's own": OwnAverage,
}


@pytest.fixture(autouse=True)
def no_compiled_code_left() -> Iterator[None]:
    yield
    torch._dynamo.reset()


def plain_logits(model: nn.Module, data: Data) -> Tensor:
    with torch.no_grad():
        out: Tensor = model(data.x, data.edge_index)
    return out


@pytest.mark.parametrize("name", WRAPPERS)
def test_a_wrapped_model_is_mended_for_like_the_model_inside(name: str) -> None:
    inner = base()
    model, train, broken = WRAPPERS[name](inner), planted(), with_bad_rows(planted(1))
    expected = mend(base(), broken, card=card(base(), train))
    model.train()
    before = state_of(model, broken)
    source = card(model, train)
    for result in (mend(model, broken, card=source), mend(model, broken, GTrans(steps=3), card=source)):
        assert result.model is model
        assert_same(before, state_of(model, broken))
        torch.testing.assert_close(
            result.logits, plain_logits(unwrapped(inner).eval(), result.data), rtol=1e-4, atol=1e-5
        )
        model.train()
        if result.verdict is not None:
            assert torch.equal((result.data.x != broken.x).any(1), BAD_ROWS)
            assert torch.equal(result.predictions, expected.predictions)


@pytest.mark.parametrize("name", ["torch.compile", "model.compile", "DataParallel", "averaged"])
def test_a_card_of_the_bare_model_goes_with_the_wrapped_one(name: str) -> None:
    broken = with_bad_rows(planted(1))
    bare = card(base(), planted())
    result = mend(WRAPPERS[name](base()), broken, card=bare)
    assert torch.equal(result.logits, mend(base(), broken, card=bare).logits)


def test_what_was_compiled_is_still_compiled_afterwards() -> None:
    model, data = compiled_in_place(base()), planted(1)
    runs: list[int] = []

    def backend(graph: Any, example: Any) -> Any:
        runs.append(1)
        return graph.forward

    model.compile(backend=backend)
    mend(model, data)
    assert runs == []
    plain_logits(model.eval(), data)
    assert runs


@pytest.mark.parametrize("adapter", [Tent(steps=2), FineTune("entropy", steps=2)], ids=lambda a: type(a).__name__)
@pytest.mark.parametrize("name", ["torch.compile", "model.compile", "DataParallel", "averaged"])
def test_adapters_that_change_the_model_change_a_copy(name: str, adapter: Any) -> None:
    model, data = WRAPPERS[name](base()), planted(1)
    before = state_of(model, data)
    result = adapter(model, data)
    assert result.reason is None and result.model is not model and type(result.model) is type(model)
    assert not torch.equal(result.logits, mend(base(), data).logits)
    assert_same(before, state_of(model, data))


@pytest.mark.parametrize("make", [Halves, InFloat])
def test_a_model_that_computes_in_half_precision_inside(make: Callable[[nn.Module], nn.Module]) -> None:
    model, data = make(base()), planted(1)
    source = card(model, planted())
    assert mend(model, data, card=source).verdict.decision == "left alone"
    result = mend(model, with_bad_rows(data), card=source)
    assert torch.equal((result.data.x != with_bad_rows(data).x).any(1), BAD_ROWS)
    torch.testing.assert_close(result.logits.float(), plain_logits(model, result.data).float(), rtol=0.05, atol=0.1)
    moved = GTrans(steps=3)(model, data)
    assert moved.reason is None


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_weights(dtype: torch.dtype) -> None:
    model, data, train = base().to(dtype), with_bad_rows(planted(1)), planted()
    data.x, train.x = data.x.to(dtype), train.x.to(dtype)
    result = mend(model, data, card=card(model, train))
    assert result.data.x.dtype == dtype and torch.equal((result.data.x != data.x).any(1), BAD_ROWS)
    with pytest.raises(GraphMendError, match=r"data\.x\.float\(\)|data\.x\.(half|bfloat16)\(\)"):
        mend(model, planted(1))


class Named(NamedTuple):
    loss: Tensor | None
    logits: Tensor


@dataclass
class Record:
    logits: Tensor
    hidden: Tensor


SHAPES: dict[str, tuple[Callable[[Tensor], Any], str | int]] = {
    "dictionary": (lambda out: {"hidden": out * 2, "logits": out}, "logits"),
    "tuple": (lambda out: (out, out * 2), 0),
    "tuple from the end": (lambda out: (out * 2, None, out), -1),
    "list": (lambda out: [None, out], 1),
    "named tuple by name": (lambda out: Named(None, out), "logits"),
    "named tuple by position": (lambda out: Named(None, out), 1),
    "dataclass": (lambda out: Record(out, out * 2), "logits"),
}


class Returning(Inside):
    def __init__(self, inner: nn.Module, shape: Callable[[Tensor], Any]) -> None:
        super().__init__(inner)
        self.shape = shape

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        return self.shape(self.inner(x, edge_index))


@pytest.mark.parametrize("name", SHAPES)
def test_a_part_of_the_output_is_chosen_by_name_or_position(name: str, tmp_path: Path) -> None:
    shape, output = SHAPES[name]
    model, broken = Returning(base(), shape), with_bad_rows(planted(1))
    before = state_of(model, broken)
    source = card(model, planted(), output=output)
    source.save(tmp_path / "card.safetensors")
    expected = plain_like(model, mend(model, broken, card=source).data)
    results: list[Adaptation] = [
        mend(model, broken, card=source),
        mend(model, broken, card=SourceCard.load(tmp_path / "card.safetensors"), output=output),
        mend(model, broken, source=planted(), output=output),
    ]
    for result in results:
        torch.testing.assert_close(result.logits, expected, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(result.before, plain_like(model, broken), rtol=1e-4, atol=1e-5)
    moved = mend(model, broken, GTrans(steps=2), output=output)
    assert moved.reason is None and moved.logits.shape == expected.shape
    assert torch.equal(mend(model, broken, output=output).logits.isfinite(), expected.isfinite())
    assert_same(before, state_of(model, broken))


def plain_like(model: Returning, data: Data) -> Tensor:
    """The scores as the model inside gives them, in evaluation mode; the model's mode is as before afterwards."""
    inner = copy.deepcopy(model.inner).eval()
    return plain_logits(inner, data)


@pytest.mark.parametrize(
    ("output", "words"),
    [
        (None, r"dict with 'hidden': \(400, 4\), 'logits': \(400, 4\)\).*output='logits'"),
        ("scores", "'scores'.*'hidden'"),
        (3, "part 3"),
        (True, "True"),
        (1.5, r"1\.5"),
    ],
)
def test_outputs_that_are_not_there_are_named_with_those_that_are(output: Any, words: str) -> None:
    model, data = Returning(base(), SHAPES["dictionary"][0]), planted(1)
    for call in (lambda: mend(model, data, output=output), lambda: card(model, planted(), output=output)):
        with pytest.raises(GraphMendError, match=words):
            call()


def test_a_card_and_a_call_that_name_different_parts_contradict_each_other() -> None:
    model, data = Returning(base(), SHAPES["dictionary"][0]), planted(1)
    source = card(model, planted(), output="logits")
    with pytest.raises(GraphMendError, match=r"'logits'.*'hidden'"):
        mend(model, data, card=source, output="hidden")


def lightning_module() -> Any:
    lightning = pytest.importorskip("lightning")

    class Classifier(lightning.LightningModule):  # type: ignore[name-defined,misc]
        def __init__(self) -> None:
            super().__init__()
            self.save_hyperparameters()
            self.model = pyg.GCN(IN, 16, num_layers=2, out_channels=CLASSES, norm="batch_norm")

        def forward(self, x: Tensor, edge_index: Tensor) -> Any:
            return self.model(x, edge_index)

        def training_step(self, data: Data, _: int) -> Any:
            out = self(data.x, data.edge_index)[data.train_mask]
            return nn.functional.cross_entropy(out, data.y[data.train_mask])

        def configure_optimizers(self) -> Any:
            return torch.optim.Adam(self.parameters(), lr=0.02)

    return Classifier()


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("wrap", [lambda model: model, compiled, averaged], ids=["plain", "compiled", "averaged"])
def test_a_lightning_module(wrap: Callable[[nn.Module], nn.Module]) -> None:
    torch.manual_seed(0)
    module = fitted(lightning_module(), planted())
    model, broken = wrap(module), with_bad_rows(planted(1))
    before = state_of(model, broken)
    source = card(model, planted())
    assert mend(model, planted(1), card=source).verdict.decision == "left alone"
    result = mend(model, broken, card=source)
    assert torch.equal((result.data.x != broken.x).any(1), BAD_ROWS)
    torch.testing.assert_close(result.logits, plain_logits(module, result.data), rtol=1e-4, atol=1e-5)
    assert Tent(steps=2)(model, broken).reason is None
    assert_same(before, state_of(model, broken))


def test_features_of_several_steps_are_refused_with_the_remedy() -> None:
    data = planted(1)
    data.x = data.x.view(-1, IN // 4, 4)
    with pytest.raises(GraphMendError, match=r"x\.flatten\(1\).*unflatten\(1, \(4, 4\)\)"):
        mend(base(), data)


def test_the_remedy_for_features_of_several_steps_works() -> None:
    class Unflattening(Inside):
        def forward(self, x: Tensor, edge_index: Tensor) -> Any:
            return super().forward(x.unflatten(1, (4, 4)).flatten(1), edge_index)

    model, broken = Unflattening(base()), with_bad_rows(planted(1))
    result = mend(model, broken, card=card(model, planted()))
    assert torch.equal((result.data.x != broken.x).any(1), BAD_ROWS)


def test_edges_fade_in_a_compiled_model() -> None:
    data = planted(1)
    for make in (compiled, compiled_in_place):
        with FrozenGNN(make(base()), data) as frozen:
            assert frozen.takes_edge_weights
