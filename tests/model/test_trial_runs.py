"""Models that would slip through a careless trial: each gives the same results in both modes, or is refused."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import torch_geometric.nn as pyg
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.utils import coalesce, remove_self_loops

from graphmend import FrozenGNN, GTrans, Limits
from graphmend.lab.backbones import GCN
from graphmend.model.edge_weights import filtered, patched, patched_plainly
from support.graphs import rng, undirected

N, WIDTH = 30, 12


def graph(seed: int = 0, **options: Any) -> Data:
    x = torch.rand(N, WIDTH, generator=rng(seed))
    return Data(x=x, edge_index=undirected(N, seed, density=0.1, isolated=0, **options))


class TwoLayers(nn.Module):
    """A stock model whose edges and features can be changed on their way in."""

    def __init__(self, first: nn.Module | None = None, width: int = WIDTH) -> None:
        super().__init__()
        self.a = pyg.GCNConv(width, 8) if first is None else first
        self.b = pyg.GCNConv(8, 3)

    def features(self, x: Tensor) -> Tensor:
        return x

    def edges(self, edge_index: Tensor) -> Tensor:
        return edge_index

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        edge_index = self.edges(edge_index)
        out: Tensor = self.b(self.a(self.features(x), edge_index).relu(), edge_index)
        return out


class Concatenating(TwoLayers):
    def __init__(self) -> None:
        super().__init__(width=WIDTH + 4)

    def features(self, x: Tensor) -> Tensor:
        return torch.cat([x, x.new_ones(x.size(0), 4)], dim=1)


class Looking(nn.Module):
    """Reads its input without a gradient before it maps it."""

    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(WIDTH, 8)

    def forward(self, h: Tensor) -> Tensor:
        with torch.no_grad():
            scale = h.abs().mean() + 1.0
        return self.lin(h / scale)


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, h: Tensor) -> Tensor:
        ctx.save_for_backward(h)
        return h * h

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (h,) = ctx.saved_tensors
        return 2.0 * h * grad


class Squaring(nn.Module):
    """Its first operation is a custom autograd function."""

    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(WIDTH, 8)

    def forward(self, h: Tensor) -> Tensor:
        return self.lin(Square.apply(h))  # type: ignore[no-untyped-call]


def gradient(model: nn.Module, data: Data, presence: Tensor | None) -> Tensor:
    x = data.x.clone().requires_grad_()
    with FrozenGNN(model, data) as frozen:
        return torch.autograd.grad(frozen(x, data.edge_index, presence).square().sum(), x)[0]


@pytest.mark.parametrize("inner", [Looking, Squaring])
def test_a_sum_that_is_looked_at_before_it_is_mapped_keeps_its_gradient(inner: type[nn.Module]) -> None:
    torch.manual_seed(0)
    model, data = TwoLayers(pyg.GINConv(inner())).eval(), graph()
    torch.testing.assert_close(
        gradient(model, data, torch.ones(data.edge_index.size(1))), gradient(model, data, None), rtol=1e-4, atol=1e-5
    )
    with FrozenGNN(model, data) as frozen:
        assert frozen.weighting in (patched, patched_plainly)


def test_features_that_are_concatenated_step_like_adam_says() -> None:
    """Their gradient is a view with strides of its own."""
    torch.manual_seed(0)
    model, data = Concatenating().eval(), graph()

    def loss(model: Any, data: Data) -> Tensor:
        out: Tensor = model(data.x, data.edge_index, data.get("edge_weight")).square().mean()
        return out

    result = GTrans(loss, steps=1, edge_steps=0, lr_feature=0.1, feature_scale="absolute")(model, data)
    x = data.x.clone().requires_grad_()
    model(x, data.edge_index).square().mean().backward()
    expected = torch.optim.Adam([x], lr=0.1)
    expected.step()
    assert result.reason is None
    torch.testing.assert_close(result.data.x, x.detach(), rtol=1e-4, atol=1e-4)


def test_a_model_that_sorts_its_edges_has_no_edge_weights() -> None:
    class Sorting(TwoLayers):
        def edges(self, edge_index: Tensor) -> Tensor:
            return coalesce(edge_index)

    data = graph()
    data.edge_index = coalesce(data.edge_index)  # sorting changes nothing here, but it would for edges that are added
    with FrozenGNN(Sorting().eval(), data) as frozen:
        assert frozen.weighting is filtered


def test_a_model_that_removes_self_loops_is_tried_again_on_a_graph_that_has_some() -> None:
    class Removing(TwoLayers):
        def edges(self, edge_index: Tensor) -> Tensor:
            return remove_self_loops(edge_index)[0]

    model = Removing().eval()
    with FrozenGNN(model, graph()) as frozen:
        assert frozen.weighting is patched
    with FrozenGNN(model, graph(loops=True)) as frozen:
        assert frozen.weighting is filtered


def test_another_hook_leads_to_new_trials() -> None:
    model, data = TwoLayers().eval(), graph()
    handle = model.register_forward_pre_hook(lambda module, args: None)
    GTrans(steps=1)(model, data)
    handle.remove()

    def overwrite(module: nn.Module, args: tuple[Any, ...]) -> None:
        args[0].mul_(0.5)

    model.register_forward_pre_hook(overwrite)
    result = GTrans(steps=0)(model, data)
    assert torch.equal(result.data.x, data.x) and result.patch.num_rows == 0


def test_a_model_that_draws_random_numbers_gives_the_same_at_every_call() -> None:
    class Noisy(TwoLayers):
        def features(self, x: Tensor) -> Tensor:
            return F.dropout(x, 0.5, training=True)

    model, data = Noisy().eval(), graph()
    first, second = (GTrans(steps=3, edge_steps=0)(model, data).logits for _ in range(2))
    assert torch.equal(first, second)


def test_the_edges_of_one_call_are_not_those_of_the_next() -> None:
    """An edge list over memory of NumPy can change without torch noticing."""
    buffer = graph().edge_index.numpy().copy()
    data = Data(x=graph().x, edge_index=torch.from_numpy(buffer))
    model = GCN(WIDTH, 8, 3).eval()
    GTrans(steps=1)(model, data)
    buffer[:] = (buffer + 7) % N
    fresh = Data(x=data.x, edge_index=torch.from_numpy(buffer.copy()))
    torch.testing.assert_close(GTrans(steps=1)(model, data).logits, GTrans(steps=1)(model, fresh).logits)


def test_without_feature_steps_features_stay() -> None:
    result = GTrans(steps=2, feature_steps=0)(
        GCN(WIDTH, 8, 3).eval(), graph(), limits=Limits(binary=torch.ones(WIDTH, dtype=torch.bool))
    )
    assert result.patch.num_rows == 0


@pytest.mark.parametrize("name", ["y", "edge_weight"])
def test_a_loss_that_writes_into_the_graph_stops_with_a_sentence(name: str) -> None:
    data = graph()
    data.y = torch.zeros(N, dtype=torch.long)

    def writing(model: Any, data: Data) -> Tensor:
        with torch.no_grad():
            data[name].add_(1)
        out: Tensor = model(data.x, data.edge_index, data.edge_weight).square().mean()
        return out

    for mode in ("auto", "eager"):
        result = GTrans(writing, steps=2)(GCN(WIDTH, 8, 3).eval(), data, mode=mode)
        assert result.reason is not None and (name in result.reason or "modified" in result.reason)
        assert int(data.y.sum()) == 0


def test_two_threads_with_one_model_wait_for_each_other() -> None:
    model, data = TwoLayers(), graph()
    model.train()
    alone = GTrans(steps=5)(model, data).logits
    results: list[Tensor] = []
    threads = [threading.Thread(target=lambda: results.append(GTrans(steps=5)(model, data).logits)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert model.training and all(parameter.requires_grad for parameter in model.parameters())
    assert len(results) == 4 and all(torch.allclose(logits, alone, atol=1e-6) for logits in results)
