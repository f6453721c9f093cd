"""Models of many kinds for graphs of five columns and three classes, some of which misbehave."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch
import torch_geometric.nn as pyg
from torch import Tensor, nn

from fuzz.graph_defects import CLASSES, IN
from graphmend.lab.backbones import BACKBONES, build
from support import sample_models as sample

HIDDEN = 6


class Plain(nn.Module):
    """Two linear maps with a sum over neighbours between them, in operations that can be scripted."""

    def __init__(self, out: int = CLASSES) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(IN, HIDDEN), nn.Linear(HIDDEN, out)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h = self.a(x)
        return self.b((h + torch.zeros_like(h).index_add(0, edge_index[1], h[edge_index[0]])).relu())


class PlainWeighted(Plain):
    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:  # type: ignore[override]
        h = self.a(x)
        messages = h[edge_index[0]]
        if edge_weight is not None:
            messages = messages * edge_weight.unsqueeze(1)
        return self.b((h + torch.zeros_like(h).index_add(0, edge_index[1], messages)).relu())


class Odd(Plain):
    """Does one thing that a model should not do, from its n-th call on."""

    def __init__(self, deed: Callable[[Odd, Tensor, Tensor], Any], after: int = 0) -> None:
        super().__init__()
        self._deed, self._calls_left = deed, [after]

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        self._calls_left.append(self._calls_left.pop() - 1)
        if self._calls_left[0] >= 0:
            return super().forward(x, edge_index)
        return self._deed(self, x, edge_index)


def _raising(error: BaseException) -> Callable[[Odd, Tensor, Tensor], Any]:
    def deed(model: Odd, x: Tensor, edge_index: Tensor) -> Any:
        raise type(error)(*error.args)  # a new one, since errors keep the frames they went through

    return deed


def _with(change: Callable[[Tensor], Any]) -> Callable[[Odd, Tensor, Tensor], Any]:
    return lambda model, x, edge_index: change(Plain.forward(model, x, edge_index))


def _writes_into_input(model: Odd, x: Tensor, edge_index: Tensor) -> Any:
    with torch.no_grad():
        x.mul_(0.5)
    return Plain.forward(model, x, edge_index)


def _writes_into_weights(model: Odd, x: Tensor, edge_index: Tensor) -> Any:
    with torch.no_grad():
        model.a.bias.add_(1.0)
    return Plain.forward(model, x, edge_index)


DEEDS: dict[str, Callable[[Odd, Tensor, Tensor], Any]] = {
    "an error": _raising(RuntimeError("the model failed")),
    "an error of many lines": _raising(ValueError("one\ntwo\x1b[31m\nthree")),
    "an error without a message": _raising(AssertionError()),
    "no memory": _raising(MemoryError()),
    "Ctrl-C": _raising(KeyboardInterrupt()),
    "NaN": _with(lambda out: out * torch.nan),
    "one row less": _with(lambda out: out[1:]),
    "a tuple": _with(lambda out: (out, out)),
    "a dictionary": _with(lambda out: {"logits": out}),
    "None": _with(lambda out: None),
    "whole numbers": _with(lambda out: out.argmax(1)),
    "one number": _with(lambda out: out.sum()),
    "no columns": _with(lambda out: out[:, :0]),
    "three dimensions": _with(lambda out: out.unsqueeze(0)),
    "a sparse output": _with(lambda out: out.to_sparse()),
    "half precision": _with(lambda out: out.half()),
    "a detached output": _with(lambda out: out.detach()),
    "noise": _with(lambda out: out + torch.randn_like(out)),
    "a changed input": _writes_into_input,
    "changed weights": _writes_into_weights,
}


def _gcn(**options: Any) -> nn.Module:
    made: nn.Module = pyg.GCN(IN, HIDDEN, num_layers=2, out_channels=CLASSES, **options)
    return made


def _unfinished() -> nn.Module:
    made: nn.Module = pyg.GCN(-1, HIDDEN, num_layers=2, out_channels=CLASSES)
    return made


def _traced() -> nn.Module:
    traced: nn.Module = torch.jit.trace(Plain().eval(), (torch.ones(4, IN), torch.tensor([[0, 1], [1, 2]])))
    return traced


def _with_gradients() -> nn.Module:
    model = Plain()
    model(torch.ones(2, IN), torch.tensor([[0], [1]])).sum().backward()
    return model


class NoParameters(nn.Module):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return x.new_zeros(x.size(0), CLASSES).index_add(0, edge_index[1], x[edge_index[0], :CLASSES])


class SeveralArguments(nn.Module):
    def forward(self, x: Tensor, edge_index: Tensor, temperature: Tensor) -> Tensor:
        return x * temperature


MODELS: dict[str, Callable[[], nn.Module]] = {
    **{name: lambda name=name: build(name, IN, HIDDEN, CLASSES) for name in BACKBONES},  # type: ignore[misc]
    "gcn with batch norm": lambda: build("gcn", IN, HIDDEN, CLASSES, batch_norm=True),
    "stock GCN": _gcn,
    "stock GCN with batch norm and dropout": lambda: _gcn(norm="BatchNorm", dropout=0.5),
    "stock GAT": lambda: pyg.GAT(IN, HIDDEN, num_layers=2, out_channels=CLASSES, heads=2),
    "stock GraphSAGE": lambda: pyg.GraphSAGE(IN, HIDDEN, num_layers=2, out_channels=CLASSES),
    "stock GIN": lambda: pyg.GIN(IN, HIDDEN, num_layers=2, out_channels=CLASSES),
    "stock GCN, not initialised": _unfinished,
    "plain": Plain,
    "plain with weights": PlainWeighted,
    "single logit": lambda: Plain(1),
    "scripted": lambda: torch.jit.script(Plain()),
    "scripted with weights": lambda: torch.jit.script(PlainWeighted()),
    "traced": _traced,
    "half precision": lambda: _gcn().half(),
    "bfloat16": lambda: _gcn().bfloat16(),
    "double precision": lambda: build("gcn", IN, HIDDEN, CLASSES).double(),
    "types mixed": lambda: nn.Sequential(Plain(), nn.Linear(2, 2).half())[0],
    "takes a Data": sample.TakesData,
    "takes a Data with weights": sample.ByData,
    "takes edge attributes": sample.ByAttr,
    "takes weights": sample.ByWeight,
    "arguments swapped": sample.Swapped,
    "keywords only": sample.KeywordsOnly,
    "other names": sample.OtherNames,
    "one layer used thrice": sample.Shared,
    "residual": sample.Residual,
    "no graph": lambda: nn.Linear(IN, CLASSES),
    "without parameters": NoParameters,
    "needs more arguments": SeveralArguments,
    "with gradients": _with_gradients,
    "frozen": lambda: Plain().requires_grad_(False),
    "NaN in its weights": lambda: _filled(Plain(), torch.nan),
    "zeros for weights": lambda: _filled(Plain(), 0.0),
    "without values": lambda: Plain().to("meta"),
}
NO_MODELS: dict[str, Any] = {"None": None, "a function": len, "text": "gcn", "the class": Plain, "weights": {}}


def _filled(model: nn.Module, value: float) -> nn.Module:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(value)
    return model


def good_model(rng: random.Random) -> nn.Module:
    """A model that does what it should."""
    return MODELS[rng.choice((*BACKBONES, "stock GCN", "stock GraphSAGE", "plain with weights"))]().eval()


def any_model(rng: random.Random) -> tuple[str, Any]:
    """A model of any kind in any mode, now and then one that misbehaves, seldom something that is no model."""
    chance = rng.random()
    if chance < 0.02:
        name = rng.choice(list(NO_MODELS))
        return f"no model but {name}", NO_MODELS[name]
    if chance < 0.15:
        name, after = rng.choice(list(DEEDS)), rng.choice((0, 0, 1, 2, 3, 5, 10))
        return f"a model with {name} after {after} calls", Odd(DEEDS[name], after).train(rng.random() < 0.5)
    if chance < 0.45:
        model = good_model(rng)
        return type(model).__name__, model
    name = rng.choice(list(MODELS))
    model = MODELS[name]()
    return name, model.train(rng.random() < 0.5)


def may_interrupt(model: Any) -> bool:
    """Whether Ctrl-C is the answer to be expected."""
    return isinstance(model, Odd) and model._deed is DEEDS["Ctrl-C"]
