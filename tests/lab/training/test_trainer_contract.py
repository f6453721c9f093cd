"""One contract for every trainer."""

from __future__ import annotations

import copy
import inspect
import logging
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.data import Data

from graphmend.errors import GraphMendError
from graphmend.lab.backbones import GCN, DualGCN
from graphmend.lab.data import Splits, embedded
from graphmend.lab.training import TRAINERS, Trainer, trainer_of
from graphmend.results.scores import METRICS, score
from support.graphs import rng, undirected
from support.untouched import assert_same, generator_states

pytestmark = pytest.mark.usefixtures("one_thread")

N, IN = 24, 5
trainers = pytest.mark.parametrize("name", TRAINERS)


def graph(seed: int, classes: int = 3, nodes: int = N, masked: bool = False, weighted: bool = False) -> Data:
    y = torch.randint(classes, (nodes,), generator=rng(seed))
    x = torch.randn(nodes, IN, generator=rng(seed)) + 2 * F.one_hot(y, IN)
    data = Data(x=x, edge_index=undirected(nodes, seed, density=0.1), y=y)
    if masked:
        data.mask = torch.arange(nodes) % 3 > 0
    if weighted:
        data.edge_weight = torch.rand(data.num_edges, generator=rng(seed)) + 0.5
    return data


def splits(classes: int = 3, **options: Any) -> Splits:
    parts = [[graph(k, classes, **options)] for k in range(3)]
    return Splits(*parts, task="binary" if classes == 2 else "multiclass")


def everything(data: Splits) -> list[Data]:
    return [*data.train, *data.val, *data.test]


def model_for(name: str, classes: int = 3, **options: Any) -> nn.Module:
    torch.manual_seed(1)
    if name == "uda_gcn":
        return DualGCN(IN, 8, classes, encoding_channels=4, walks=5, **options)
    return GCN(IN, 8, classes, **options)


def made(name: str, **options: Any) -> Trainer:
    return trainer_of(name, **({"epochs": 4, "lr": 0.02} | options))


def states(model: nn.Module) -> list[Tensor]:
    return [value.clone() for value in model.state_dict().values()]


def equal(one: list[Tensor], two: list[Tensor]) -> bool:
    return all(map(torch.equal, one, two))


@trainers
def test_it_trains_in_place_and_leaves_no_trace(name: str) -> None:
    model, data = model_for(name, batch_norm=True, dropout=0.3).eval(), splits()
    before, graphs = states(model), copy.deepcopy(data)
    generators = generator_states()
    assert made(name)(model, data) is model
    assert_same(generators, generator_states())
    assert not equal(before, states(model)) and not any(module.training for module in model.modules())
    assert all(p.grad is None and p.requires_grad for p in model.parameters())
    for now, then in zip(everything(data), everything(graphs), strict=True):
        assert now.keys() == then.keys() and all(torch.equal(now[key], then[key]) for key in then.keys())  # noqa: SIM118


@trainers
def test_the_seed_decides(name: str) -> None:
    results = []
    for seed in (1, 1, 2):
        torch.rand(3)
        results.append(states(made(name, seed=seed)(model_for(name, dropout=0.5), splits())))
    assert equal(results[0], results[1]) and not equal(results[0], results[2])


@trainers
def test_the_first_of_the_best_validation_epochs_is_kept(
    name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    model, seen = model_for(name, batch_norm=True), []
    values = iter([0.1, 0.5, 0.5, 0.3])

    def metric(logits: Tensor, y: object) -> float:
        assert not model.training
        seen.append(states(model))
        return next(values)

    monkeypatch.setitem(METRICS, "accuracy", metric)
    with caplog.at_level(logging.INFO, "graphmend"):
        made(name)(model, splits())
    assert "best epoch 2 of 4: validation accuracy 0.5000" in caplog.text
    assert len(seen) == 4 and equal(seen[1], states(model)) and not equal(seen[2], states(model))


@trainers
@pytest.mark.parametrize("task", ["multiclass", "binary"])
def test_it_learns(name: str, task: str) -> None:
    data, columns, classes = (embedded("wine"), 13, 3) if task == "multiclass" else (embedded("breast_cancer"), 30, 2)
    assert data.task == task
    torch.manual_seed(0)
    build = DualGCN if name == "uda_gcn" else GCN
    few: dict[str, Any] = {"candidates": 32} if name == "eerm" else {}  # which is quicker
    model = made(name, epochs=40, **few)(build(columns, 16, classes), data)
    test = data.test[0]
    assert score("accuracy", model(test.x, test.edge_index), test.y, test.mask) > 0.85


@trainers
def test_several_graphs_with_masks_and_weights(name: str) -> None:
    train = [graph(0), graph(1, nodes=11, masked=True), graph(2, weighted=True)]
    data = Splits(train, [graph(3), graph(4, masked=True)], [graph(5, nodes=7), graph(6, weighted=True, masked=True)])
    before = states(model_for(name))
    after = states(made(name)(model_for(name), data))
    assert not equal(before, after) and all(torch.isfinite(value).all() for value in after)
    masked_out = copy.copy(train[1])
    masked_out.y = torch.where(train[1].mask, train[1].y, -7)
    same = Splits([train[0], masked_out, train[2]], data.val, data.test)
    assert equal(after, states(made(name)(model_for(name), same)))


@trainers
def test_it_never_reads_a_label_of_a_test_node(name: str) -> None:
    clean, poisoned, bare = splits(), splits(), splits()
    poisoned.test[0].y = torch.full_like(poisoned.test[0].y, -99)
    del bare.test[0].y
    results = [states(made(name)(model_for(name), data)) for data in (clean, poisoned, bare)]
    assert equal(results[0], results[1]) and equal(results[0], results[2])

    whole = graph(0)
    for k, part in enumerate(("train_mask", "val_mask", "test_mask")):
        whole[part] = torch.arange(N) % 3 == k
    spoilt = copy.copy(whole)
    spoilt.y = torch.where(whole.test_mask, -99, whole.y)
    one, two = (states(made(name)(model_for(name), Splits.transductive(data))) for data in (whole, spoilt))
    assert equal(one, two)


@trainers
def test_double_precision(name: str) -> None:
    data = splits()
    for part in everything(data):
        part.x = part.x.double()
    model = made(name)(model_for(name).double(), data)
    assert all(p.dtype == torch.float64 for p in model.parameters())


@trainers
def test_a_loss_that_is_not_finite_is_named(name: str) -> None:
    data, model = splits(), model_for(name)
    data.train[0].x[0, 0] = torch.nan
    generators = generator_states()
    with pytest.raises(GraphMendError, match=r"nan in epoch 1; lower lr=0\.02 or check the features"):
        made(name)(model, data)
    assert_same(generators, generator_states())
    assert all(p.grad is None for p in model.parameters())


@trainers
def test_unsuitable_models_and_labels(name: str) -> None:
    with pytest.raises(GraphMendError, match="unfreeze"):
        made(name)(model_for(name).requires_grad_(False), splits())
    with pytest.raises(GraphMendError, match=r"0\.\.1 \(got 0\.\.2\)"):
        made(name)(model_for(name, 2), splits())
    nobody = splits()
    nobody.train[0].mask = torch.zeros(N, dtype=torch.bool)
    with pytest.raises(GraphMendError, match="no node to train on"):
        made(name)(model_for(name), nobody)


@trainers
def test_every_setting_is_documented(name: str) -> None:
    settings = set(inspect.signature(TRAINERS[name]).parameters) - set(inspect.signature(Trainer).parameters)
    assert all(f"        {setting}: " in (TRAINERS[name].__doc__ or "") for setting in settings)


@trainers
def test_graphs_that_are_none_are_refused_before_the_first_epoch(name: str) -> None:
    for change in ({"edge_index": [[0], [1]]}, {"edge_index": torch.ones(3, 4)}, {"x": None}, {"y": torch.zeros(2)}):
        data = splits()
        for key, value in change.items():
            data.val[0][key] = value
        model = model_for(name)
        before = states(model)
        with pytest.raises(GraphMendError):
            made(name)(model, data)
        assert equal(before, states(model))
    with pytest.raises(GraphMendError, match=r"splits must be a graphmend\.lab\.data\.Splits"):
        made(name)(model_for(name), [graph(0)])  # type: ignore[arg-type]
