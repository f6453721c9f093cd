"""A small graph and models for adapters, losses that fail, and what two results have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor, nn
from torch_geometric.data import Data

from graphmend.results.adaptation import Adaptation
from graphmend.results.history import Step
from graphmend.surrogates import Backbone, Contrastive

N, IN, HID, OUT = 16, 5, 8, 3


def make_graph(dtype: torch.dtype = torch.float64, directed: bool = False, **extra: Tensor) -> Data:
    """Two communities with features of their own, shifted; one self-loop, one isolated node."""
    generator = torch.Generator().manual_seed(4)
    side = torch.arange(N) % 2
    chance = torch.where(side[:, None] == side, 0.45, 0.12)
    dense = torch.triu(torch.rand(N, N, generator=generator) < chance, diagonal=1)
    dense[:, -1] = False
    if directed:  # some one way, some the other
        dense = dense & (torch.arange(N)[:, None] % 3 > 0) | (dense & (torch.arange(N)[:, None] % 3 == 0)).t()
    else:
        dense = dense | dense.t()
    dense[3, 3] = True
    edge_index = dense.nonzero().t()
    edge_index = edge_index[:, torch.randperm(edge_index.size(1), generator=generator)].contiguous()
    x = torch.randn(N, IN, generator=generator, dtype=torch.float64) * 0.5 + 0.7 * side[:, None] + 0.3
    return Data(x=x.to(dtype), edge_index=edge_index, y=side.clone(), **extra)


class TwoLayer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = pyg.GCNConv(IN, HID), pyg.GCNConv(HID, OUT)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Any:
        return self.b(self.a(x, edge_index, edge_weight).relu(), edge_index, edge_weight)


def make_model(dtype: torch.dtype = torch.float64, make: Callable[[], nn.Module] = TwoLayer) -> nn.Module:
    torch.manual_seed(1)
    model = make().to(dtype)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.6)
    return model


def pairs_of(edge_index: Tensor) -> set[tuple[int, int]]:
    return {(int(i), int(j)) for i, j in edge_index.t()}


def num_pairs(data: Data) -> int:
    return len({(min(i, j), max(i, j)) for i, j in pairs_of(data.edge_index) if i != j})


def assert_same_result(a: Adaptation, b: Adaptation) -> None:
    assert a.reason == b.reason
    for name, value in a.data.to_dict().items():
        assert torch.equal(value, b.data[name]) or name == "y"
    assert torch.equal(a.logits, b.logits)
    assert a.candidates == b.candidates
    assert [(s.kind, s.loss, s.terms, s.gradient_norm, s.flipped) for s in a.history] == [
        (s.kind, s.loss, s.terms, s.gradient_norm, s.flipped) for s in b.history
    ]


def assert_close_results(a: Adaptation, b: Adaptation, tolerance: float = 1e-6) -> None:
    """Equal but for rounding, the choice of edges included."""
    assert (a.reason, len(a.history), len(a.candidates)) == (b.reason, len(b.history), len(b.candidates))
    for one, other in zip([*a.history, *a.candidates], [*b.history, *b.candidates], strict=True):
        assert one.loss == pytest.approx(other.loss, rel=tolerance, abs=tolerance)
    torch.testing.assert_close(a.data.x, b.data.x, rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(a.logits, b.logits, rtol=tolerance, atol=tolerance)
    assert torch.equal(a.data.edge_index, b.data.edge_index)


def assert_goes_there_and_back(result: Adaptation, data: Data) -> None:
    """The one patch leads from the caller's graph to the result and back, bit for bit."""
    applied, reverted = result.patch.apply(data), result.patch.revert(result.data)
    assert list(applied.keys()) == list(result.data.keys()) and list(reverted.keys()) == list(data.keys())
    for name, value in data.to_dict().items():
        assert torch.equal(applied[name], result.data[name]), name
        assert torch.equal(reverted[name], value), name


class PerStep:
    """What a loss noted last, once per step when used as the callback; trial runs of the loss do not count."""

    def __init__(self) -> None:
        self.latest: Any = None
        self.steps: list[Any] = []

    def note(self, value: Any) -> None:
        self.latest = value

    def __call__(self, step: Step) -> None:
        self.steps.append(self.latest)


def gone(data: Data) -> Tensor:
    """How much of each edge entry is missing."""
    return 1.0 - data.edge_weight


def failing(error: BaseException, after: int) -> Callable[[Backbone, Data], Tensor]:
    """A loss that raises after so many evaluations; with ``mode="eager"`` there are none before the first step."""
    calls: list[int] = []

    def surrogate(model: Backbone, data: Data) -> Tensor:
        calls.append(1)
        if len(calls) > after:
            raise error
        return Contrastive()(model, data, torch.Generator().manual_seed(0))

    return surrogate


def sage_with_batch_norm() -> nn.Module:
    made: nn.Module = pyg.GraphSAGE(IN, HID, num_layers=3, out_channels=OUT, norm="BatchNorm", dropout=0.5)
    return made


def loss_of_logits(model: Backbone, data: Data) -> Tensor:
    return model(data.x, data.edge_index, data.get("edge_weight")).square().mean()


def basic(name: str) -> nn.Module:
    kwargs: dict[str, Any] = {}
    if name == "PNA":
        kwargs = {"aggregators": ["mean", "max"], "scalers": ["identity"], "deg": torch.ones(12)}
    made: nn.Module = getattr(pyg, name)(IN, HID, num_layers=2, out_channels=OUT, norm="BatchNorm", **kwargs)
    return made
