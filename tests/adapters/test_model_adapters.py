"""Adapters that change the model: against formulas written out, and what they say where they do not apply."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from graphmend import GraphMendError
from graphmend.adapters import AirGNNTune, FineTune, JaccardFilter, Tent
from graphmend.lab.backbones import GCN, AirGNN
from graphmend.surrogates import Entropy, Supervised
from graphmend.transforms import Jaccard
from support.adapter_cases import HID, IN, OUT, N, make_graph, make_model


def with_batch_norm() -> nn.Module:
    model = make_model(make=lambda: GCN(IN, HID, OUT, batch_norm=True, dropout=0.5)).eval()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm1d):
            module.running_mean.uniform_(-0.5, 0.5)
            module.running_var.uniform_(0.5, 1.5)
    return model


def masked_graph() -> Data:
    train, val = torch.arange(N) % 3 == 0, torch.arange(N) % 3 == 1
    return make_graph(train_mask=train, val_mask=val)


def entropy(logits: Tensor) -> Tensor:
    p = logits.softmax(1)
    return -(p * p.log()).sum(1).mean()


def stepped(model: nn.Module, data: Data, moving: list[nn.Parameter], *, lr: float, steps: int) -> nn.Module:
    """Adam on the entropy, without anything of the library."""
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    optimizer = torch.optim.Adam([parameter.requires_grad_(True) for parameter in moving], lr=lr)
    for _ in range(steps):
        optimizer.zero_grad()
        entropy(model(data.x, data.edge_index)).backward()
        optimizer.step()
    return model


@pytest.mark.parametrize("statistics", ["running", "batch"])
def test_tent_is_adam_on_scale_and_shift(statistics: str) -> None:
    model, data = with_batch_norm(), make_graph()
    result = Tent(statistics, lr=0.01, steps=5)(model, data, task="classes")
    slow = copy.deepcopy(model)
    norms = [module for module in slow.modules() if isinstance(module, nn.BatchNorm1d)]
    for norm in norms if statistics == "batch" else []:
        norm.running_mean = norm.running_var = None
    slow = stepped(slow, data, [p for norm in norms for p in (norm.weight, norm.bias)], lr=0.01, steps=5)
    torch.testing.assert_close(result.logits, slow(data.x, data.edge_index).detach())
    assert result.history[-1].loss < result.history[0].loss and len(result.history) == 5
    moved = {
        name
        for name, value in result.model.named_parameters()
        if not torch.equal(value, dict(model.named_parameters())[name])
    }
    assert moved and all("norms" in name for name in moved)


def test_batch_statistics_undo_a_constant_shift() -> None:
    """The reason why the original Tent does so well where all features move by the same amount."""
    model, data = with_batch_norm(), make_graph()
    shifted = data.clone()
    shifted.x = data.x + 3.0
    loops = torch.arange(N).repeat(2, 1)  # with the same neighbours everywhere a shift of x shifts the first layer
    data.edge_index = shifted.edge_index = loops
    tent = Tent("batch", steps=0)
    torch.testing.assert_close(tent(model, data, task="classes").logits, tent(model, shifted, task="classes").logits)
    assert not torch.allclose(
        Tent(steps=0)(model, data, task="classes").logits, Tent(steps=0)(model, shifted, task="classes").logits
    )


def test_tent_says_what_to_use_without_batch_norm() -> None:
    with pytest.raises(GraphMendError, match="this model has none; use GTrans, which changes the graph, or FineTune"):
        Tent()(make_model(), make_graph(), task="classes")


def test_tent_may_look_at_the_first_nodes_alone() -> None:
    model, data = with_batch_norm(), make_graph()
    result = Tent(steps=1, nodes=4)(model, data, task="classes")
    assert result.history[0].loss == pytest.approx(entropy(model(data.x, data.edge_index)[:4]).item())


def test_fine_tune_is_adam_on_all_parameters() -> None:
    model, data = with_batch_norm(), make_graph()
    result = FineTune(Entropy(), lr=0.01, steps=4)(model, data, task="classes")
    slow = copy.deepcopy(model)
    slow = stepped(slow, data, list(slow.parameters()), lr=0.01, steps=4)
    torch.testing.assert_close(result.logits, slow(data.x, data.edge_index).detach())


def test_fine_tune_in_train_mode_moves_the_running_statistics() -> None:
    model, data = with_batch_norm(), make_graph()
    moved = FineTune(Entropy(), steps=2, train_mode=True)(model, data, task="classes").model
    kept = FineTune(Entropy(), steps=2)(model, data, task="classes").model
    assert not torch.equal(moved.norms[0].running_mean, model.norms[0].running_mean)
    assert torch.equal(kept.norms[0].running_mean, model.norms[0].running_mean)


def test_validation_labels_choose_the_best_step() -> None:
    model, data = with_batch_norm(), masked_graph()

    def accuracy(steps: int) -> float:
        logits = FineTune(Supervised(data.train_mask), lr=0.3, steps=steps)(model, data, task="classes").logits
        return float((logits.argmax(1) == data.y)[data.val_mask].double().mean())

    accuracies = [accuracy(steps) for steps in range(1, 9)]
    chosen = FineTune(Supervised(data.train_mask), lr=0.3, steps=8, validation=data.val_mask)(
        model, data, task="classes"
    ).logits
    assert len(set(accuracies)) > 1, "otherwise nothing is tested"
    assert float((chosen.argmax(1) == data.y)[data.val_mask].double().mean()) == max(accuracies)


def test_airgnn_tune_takes_the_best_lambda() -> None:
    model, data = make_model(make=lambda: AirGNN(IN, HID, 2)), masked_graph()
    data.x = (
        data.x * torch.where(torch.arange(N) % 4 == 0, -6.0, 1.0)[:, None]
    )  # some nodes are far from their neighbours
    known = data.train_mask | data.val_mask
    accuracies = {}
    for value in (0.0, 0.3, 0.6, 0.9):
        other = copy.deepcopy(model).eval()
        other.lam = value
        accuracies[value] = float((other(data.x, data.edge_index).argmax(1) == data.y)[known].double().mean())
    result = AirGNNTune(values=tuple(accuracies))(model, data, task="classes")
    assert len(set(accuracies.values())) > 1, "otherwise nothing is tested"
    assert result.model.lam == max(accuracies, key=accuracies.__getitem__) and model.lam == 0.5


def test_airgnn_tune_says_what_it_needs() -> None:
    with pytest.raises(
        GraphMendError, match=r"chooses lam of an AirGNN, but the model is a TwoLayer; train graphmend\.lab\.backbones"
    ):
        AirGNNTune()(make_model(), masked_graph(), task="classes")
    with pytest.raises(GraphMendError, match="has no train_mask and no val_mask; set one of them, or pass mask"):
        AirGNNTune()(make_model(make=lambda: AirGNN(IN, HID, OUT)), make_graph(), task="classes")
    with pytest.raises(GraphMendError, match="values must be numbers in a list, at least one"):
        AirGNNTune(values=())


def test_jaccard_filter_is_the_purifier_at_the_best_threshold() -> None:
    model, data = make_model(), masked_graph()
    known, scores = data.train_mask | data.val_mask, {}
    grid = (0.5, 0.7, 0.8, 0.9, 0.95)
    for threshold in grid:
        purified = Jaccard(threshold)(data)
        correct = model(purified.x, purified.edge_index).argmax(1) == data.y
        scores[threshold] = float(correct[known].double().mean())
    correct = model(data.x, data.edge_index).argmax(1) == data.y
    result = JaccardFilter(thresholds=grid)(model, data)
    best = max(scores, key=scores.__getitem__)
    expected = Jaccard(best)(data) if scores[best] > float(correct[known].double().mean()) else data
    assert torch.equal(result.data.edge_index, expected.edge_index)
    fixed = JaccardFilter(0.9)(model, data)
    assert torch.equal(fixed.data.edge_index, Jaccard(0.9)(data).edge_index) and fixed.patch.num_removed > 0


def test_jaccard_filter_needs_labels_or_a_threshold() -> None:
    with pytest.raises(GraphMendError, match="JaccardFilter chooses by labels, but the graph has no train_mask"):
        JaccardFilter()(make_model(), make_graph())
    with pytest.raises(GraphMendError, match=r"threshold must be a number in \[-1, 1\]"):
        JaccardFilter(3.0)


class Adds(nn.Module):
    """Class scores without a single weight."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return x[:, :OUT].index_add(0, edge_index[1], x[edge_index[0], :OUT])


def test_fine_tune_needs_something_to_move() -> None:
    with pytest.raises(GraphMendError, match="Adds has no parameters that could be moved"):
        FineTune(Entropy())(Adds(), make_graph(), task="classes")


class Scriptable(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(IN, HID), nn.Linear(HID, OUT)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h = self.a(x)
        return self.b((h + torch.zeros_like(h).index_add(0, edge_index[1], h[edge_index[0]])).relu())


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_scripted_model_is_copied_and_fine_tuned_like_the_one_it_was_made_from() -> None:
    torch.manual_seed(0)
    model, data = Scriptable(), make_graph(torch.float32)
    scripted: nn.Module = torch.jit.script(model)
    plain, other = (FineTune(Entropy(), lr=0.1)(each, data, task="classes") for each in (model, scripted))
    torch.testing.assert_close(other.logits, plain.logits)
    assert plain.reason is None and not torch.equal(plain.model.a.weight, model.a.weight)
    assert all(parameter.requires_grad for parameter in other.model.parameters())
