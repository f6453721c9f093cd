"""Heterogeneous models that predict numbers or labels, or nothing by themselves: told from the labels, or asked for."""

from __future__ import annotations

import copy
import functools
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import torch_geometric.nn as pyg
from torch import Tensor, nn
from torch_geometric.data import HeteroData

import graphmend
from graphmend import GraphMendError
from graphmend.hetero import HeteroAdaptation, HeteroCard
from support.hetero_cases import METADATA, broken, papers

pytestmark = pytest.mark.usefixtures("one_thread")


def sums(data: HeteroData) -> Tensor:
    return data["paper"].x[:, :3].sum(1)


def signs(data: HeteroData) -> Tensor:
    return (data["paper"].x[:, :4] > 0).float()


TRUTH = {"numbers": sums, "labels": signs}
LOSS = {"numbers": F.mse_loss, "labels": F.binary_cross_entropy_with_logits}
every_task = pytest.mark.parametrize("task", sorted(TRUTH))


class Net(nn.Module):
    """Scores of papers alone, as tutorials return them."""

    def __init__(self, columns: int) -> None:
        super().__init__()
        convs = {kind: pyg.SAGEConv((-1, -1), 16) for kind in METADATA[1]}
        self.conv, self.lin = pyg.HeteroConv(convs), nn.Linear(16, columns)

    def forward(self, x_dict: dict[str, Tensor], edge_index_dict: dict[Any, Tensor]) -> Tensor:
        return self.lin(self.conv(x_dict, edge_index_dict)["paper"].relu())


def labelled(data: HeteroData, task: str) -> HeteroData:
    data["paper"].y = TRUTH[task](data)
    return data


def without_labels(data: HeteroData) -> HeteroData:
    out = copy.copy(data)
    del out["paper"].y
    return out


@functools.cache
def trained(task: str) -> tuple[nn.Module, HeteroCard]:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        data = labelled(papers(), task)
        y = data["paper"].y.reshape(data["paper"].num_nodes, -1)
        model = Net(y.size(1))
        optimizer = None
        for _ in range(80):
            loss = LOSS[task](model(data.x_dict, data.edge_index_dict), y)
            optimizer = torch.optim.Adam(model.parameters(), 0.02) if optimizer is None else optimizer
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        card: Any = graphmend.card(model, data)
        return model, card


def mended(model: nn.Module, data: HeteroData, *arguments: Any, **options: Any) -> HeteroAdaptation:
    result: Any = graphmend.mend(model, data, *arguments, **options)
    return result


@every_task
def test_the_labels_of_the_predicted_type_tell_the_task_and_all_types_have_it(task: str) -> None:
    card = trained(task)[1]
    assert card.task.kind == task and {own.known_task.kind for own in card.cards.values()} == {task}
    assert task in repr(card) and task in card.summary() and card.facts()["task"] == task


@every_task
@pytest.mark.parametrize("kind", ["paper", "author"])
def test_broken_rows_are_repaired_and_measured_as_the_task_is(task: str, kind: str) -> None:
    model, card = trained(task)
    clean = papers(5)
    left = mended(model, without_labels(clean), card=card)
    assert left.decision == "left alone" and left.task.kind == task
    result = mended(model, broken(without_labels(clean), kind), card=card)
    assert result.patch.nodes[kind].rows.tolist() == list(range(12)) and result.patch.num_rows == 12
    compared = result.compare(TRUTH[task](clean))
    name, sign = ("mae", -1) if task == "numbers" else ("average_precision", 1)
    assert sign * compared.after[name] > sign * compared.before[name]
    assert compared.changed == result.changed.numel() > 0 and result.verdict is not None
    assert result.verdict.flips == result.changed.numel() / 160 and result.verdict.task == task
    wanted = result.logits if task == "numbers" else (result.logits > 0).long()
    assert torch.equal(result.predictions, wanted)


def test_what_nothing_tells_is_asked_for_and_rows_are_repaired_all_the_same(tmp_path: Path) -> None:
    model, _ = trained("numbers")
    data = broken(without_labels(papers(5)), "paper")
    result = mended(model, data)
    assert result.patch.num_rows == 12 and result.task.kind is None and "not counted" in repr(result)
    for ask in (lambda: result.predictions, lambda: result.changed, lambda: graphmend.card(model, data)):
        with pytest.raises(GraphMendError, match="name what the model's rows are with task="):
            ask()
    result.report(tmp_path / "page.html")
    assert "is not known" in (tmp_path / "page.html").read_text()
    assert set(result.compare(sums(papers(5))).after) == {"mae", "r2"}  # the numbers tell
    named = mended(model, data, task="numbers")
    assert named.task.kind == "numbers" and torch.equal(named.logits, result.logits)


@every_task
def test_a_page_shows_the_measures_of_the_task(task: str, tmp_path: Path) -> None:
    model, card = trained(task)
    result = mended(model, broken(without_labels(papers(5)), "paper"), card=card)
    result.report(tmp_path / "page.html", TRUTH[task](papers(5)))
    page = (tmp_path / "page.html").read_text()
    assert ("mae" if task == "numbers" else "average_precision") in page and "macro-F1" not in page


def test_an_embedding_predicts_nothing_and_its_pairs_are_the_callers() -> None:
    model, _ = trained("labels")
    data = without_labels(papers())
    card: Any = graphmend.card(model, data, task="embedding")
    result = mended(model, broken(without_labels(papers(5)), "paper"), card=card)
    assert result.patch.num_rows == 12 and result.compare().moved is not None
    with pytest.raises(GraphMendError, match=r"pairs of nodes .* score result\.before and result\.logits"):
        result.compare(torch.ones(160))
    with pytest.raises(GraphMendError, match="predicts nothing by itself"):
        _ = result.changed


@pytest.mark.parametrize("adapter", ["gtrans", "impute", "align"])
def test_other_adapters_keep_the_task(adapter: str) -> None:
    model, card = trained("numbers")
    result = mended(model, without_labels(papers(5)), adapter, card=card)
    assert result.task.kind == "numbers" and "mae" in result.compare(sums(papers(5))).after


def test_a_card_keeps_the_task_and_another_one_is_refused(tmp_path: Path) -> None:
    model, card = trained("labels")
    card.save(tmp_path / "card.safetensors")
    data = labelled(papers(5), "numbers")  # labels that would tell another task
    assert mended(model, data, card=tmp_path / "card.safetensors").task.kind == "labels"
    with pytest.raises(GraphMendError, match="made with task='labels', not 'numbers'"):
        mended(model, data, card=card, task="numbers")


def test_labels_of_another_type_are_not_those_of_the_predicted_one() -> None:
    model, _ = trained("numbers")
    data = labelled(papers(), "numbers")
    data["author"].y = torch.arange(70) % 7
    card: Any = graphmend.card(model, data)
    assert card.node_type == "paper" and card.task.kind == "numbers"
    assert mended(model, data).task.kind == "numbers"


class Looking(nn.Module):
    """Papers have no features but rows of a table inside the model."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(160, 16)
        writes, cites = pyg.SAGEConv((6, 16), 16), pyg.SAGEConv(16, 16)
        self.conv = pyg.HeteroConv(
            {METADATA[1][0]: writes, METADATA[1][1]: cites, METADATA[1][2]: pyg.SAGEConv((16, 6), 6)}
        )
        self.lin = nn.Linear(16, 3)

    def forward(self, x_dict: dict[str, Tensor], edge_index_dict: dict[Any, Tensor]) -> Tensor:
        return self.lin(self.conv({**x_dict, "paper": self.table.weight}, edge_index_dict)["paper"].relu())


@pytest.mark.parametrize("task", ["classes", "numbers"])
def test_the_predicted_type_may_have_no_features(task: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, data = Looking().eval(), papers()
    del data["paper"].x
    data["paper"].num_nodes = 160
    card: Any = graphmend.card(model, data, task=task)
    assert set(card.cards) == {"author"} and card.task.kind == task and task in repr(card)
    card.save(tmp_path / "a.card")
    result = mended(model, broken(data, "author"), card=tmp_path / "a.card")
    assert result.patch.nodes["author"].rows.tolist() == list(range(12)) and result.task.kind == task
    assert result.node_type == "paper" and result.changed.numel() > 0
    assert torch.equal(result.patch.revert(result.data)["author"].x, broken(data, "author")["author"].x)
