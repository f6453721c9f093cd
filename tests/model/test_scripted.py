"""Models from ``torch.jit.script`` and ``torch.jit.trace``."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor, nn

from graphmend import FrozenGNN, GraphMendError, GTrans, card, mend
from graphmend.adapters import Identity, Impute
from support.sample_models import HID, IN, OUT, TwoConvs, make_graph, seeded
from support.untouched import assert_same, generator_states

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning"),
]


class Sums(nn.Module):
    """A model that TorchScript can read, with everything that has a mode."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(IN, HID), nn.Linear(HID, OUT)
        self.norm, self.drop = nn.BatchNorm1d(HID), nn.Dropout(0.5)

    def hidden(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None) -> Tensor:
        h = self.drop(self.norm(self.first(x)).relu())
        messages = h[edge_index[0]] if edge_weight is None else h[edge_index[0]] * edge_weight.unsqueeze(1)
        return h + torch.zeros_like(h).index_add(0, edge_index[1], messages)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        out: Tensor = self.last(self.hidden(x, edge_index, None))
        return out


class Exported(Sums):
    """With an embedding, and edge weights of its own."""

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        out: Tensor = self.last(self.hidden(x, edge_index, edge_weight))
        return out

    @torch.jit.export
    def embed(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        return self.hidden(x, edge_index, edge_weight)


def script(model: nn.Module) -> nn.Module:
    scripted: nn.Module = torch.jit.script(model)
    return scripted


def trace(model: nn.Module) -> nn.Module:
    data = make_graph()
    traced: nn.Module = torch.jit.trace(model.eval(), (data.x, data.edge_index), check_trace=False)
    return traced


def load(model: nn.Module) -> nn.Module:
    """As from a file, where nothing but the schema is left of the signature."""
    file = io.BytesIO()
    torch.jit.save(script(model), file)
    file.seek(0)
    loaded: nn.Module = torch.jit.load(file)
    return loaded


WAYS: dict[str, Callable[[nn.Module], nn.Module]] = {"script": script, "trace": trace, "load": load}


def made(kind: str, make: Callable[[], nn.Module] = Sums) -> nn.Module:
    model = WAYS[kind](seeded(make))
    model.train()
    next(iter(model.children())).eval()
    next(model.parameters()).requires_grad_(False)
    return model


def state(model: nn.Module) -> list[Any]:
    out: list[Any] = [module.training for module in model.modules()]
    for tensor in (*model.parameters(), *model.buffers()):
        out += [tensor.detach().clone(), tensor.requires_grad]
    return [*out, *generator_states()]


def entropy(model: Any, data: Any) -> Tensor:
    logs = model(data.x, data.edge_index).log_softmax(dim=1)
    loss: Tensor = -(logs.exp() * logs).sum(dim=1).mean()
    return loss


@pytest.mark.parametrize("kind", WAYS)
def test_features_are_mended_and_the_model_is_as_it_was(kind: str) -> None:
    model, data = made(kind), make_graph()
    before = state(model)
    result = GTrans(entropy, steps=5, edge_steps=0, lr_feature=0.05)(model, data)
    assert_same(before, state(model))
    assert result.reason is None and result.history[-1].loss < result.history[0].loss
    expected = seeded(Sums).eval()(result.data.x, data.edge_index)
    torch.testing.assert_close(result.logits, expected.detach())


@pytest.mark.parametrize("kind", WAYS)
def test_plain_predictions_are_those_of_evaluation_mode(kind: str) -> None:
    model, data = made(kind), make_graph()
    expected = seeded(Sums).eval()(data.x, data.edge_index).detach()
    for adapter in (Identity(), Impute()):
        torch.testing.assert_close(adapter(model, data).logits, expected)


@pytest.mark.parametrize("kind", WAYS)
def test_what_needs_a_layer_says_so_and_leaves_the_model_as_it_was(kind: str) -> None:
    model, data = made(kind), make_graph()
    before = state(model)
    said = {
        "so its second-last representation cannot be found; .* or give it an embed": GTrans(edge_steps=0),
        "TorchScript hides the layers of the model, so the output of 'first' cannot": GTrans(embedding="first"),
    }
    for message, adapter in said.items():
        with pytest.raises(GraphMendError, match=message):
            mend(model, data, adapter)
        assert_same(before, state(model))
    with pytest.raises(GraphMendError, match="TorchScript hides the layers of the model, so its first layer cannot"):
        card(model, data, task="classes")
    assert_same(before, state(model))


@pytest.mark.parametrize("kind", WAYS)
def test_without_edge_weights_features_are_mended_and_the_reason_is_kept(kind: str) -> None:
    model, data = made(kind), make_graph()
    before = state(model)
    result = GTrans(entropy, steps=5, lr_feature=0.05)(model, data)
    assert_same(before, state(model))
    assert "TorchScript hides its layers, and it has no edge_weight" in result.engine.reasons["edges"]
    assert torch.equal(result.data.edge_index, data.edge_index) and not torch.equal(result.data.x, data.x)


@pytest.mark.parametrize("kind", WAYS)
def test_without_a_card_the_gate_repairs_rows_and_needs_no_layer(kind: str) -> None:
    model, data = made(kind), make_graph()
    data.x[:4] *= 1e4
    result = mend(model, data)
    assert result.verdict is not None and result.verdict.menders == ("impute",)


@pytest.mark.parametrize("kind", ["script", "load"])
def test_an_exported_embedding_and_edge_weights_are_used(kind: str) -> None:
    model, data = made(kind, Exported), make_graph()
    before = state(model)
    with FrozenGNN(model, data) as frozen:
        z = frozen.embed(data.x, data.edge_index)
    plain = seeded(Exported).eval()
    torch.testing.assert_close(z.detach(), plain.embed(data.x, data.edge_index).detach())
    result = GTrans(steps=10, budget=3)(model, data)
    assert_same(before, state(model))
    assert result.reason is None and result.patch.num_rows > 0
    torch.testing.assert_close(result.logits, plain(result.data.x, result.data.edge_index).detach())


def test_a_scripted_layer_inside_a_model_is_looked_past() -> None:
    model = seeded(lambda: TwoConvs(pyg.GCNConv, torch.jit.script(nn.Sequential(nn.ReLU(), nn.Dropout()))))
    modes = [module.training for module in model.train().modules()]
    result = GTrans(steps=5, budget=3)(model, make_graph())
    assert result.reason is None and [module.training for module in model.modules()] == modes


def test_a_model_without_an_evaluation_mode_is_named() -> None:
    class Stubborn(Sums):
        def train(self, mode: bool = True) -> Any:
            if not mode:
                raise NotImplementedError("eval() is not supported")
            return super().train(mode)

    model = seeded(Stubborn)
    before = state(model)
    said = r"Stubborn cannot be switched to evaluation mode \(NotImplementedError: eval\(\) is not supported\); pass"
    with pytest.raises(GraphMendError, match=said):
        mend(model, make_graph())
    assert_same(before, state(model))
