"""What a model's rows are: how it is told, and the same promises for every task."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor, nn
from torch_geometric.data import Batch, Data
from torch_geometric.loader import DataLoader

import graphmend
from graphmend.adapters import JaccardFilter, Tent
from graphmend.cards import SourceCard
from graphmend.errors import GraphMendError
from graphmend.graph.tasks import task_of
from graphmend.outputs import Task, changed_rows, wrongness
from support.gate_cases import planted
from support.untouched import assert_same, state_of

N, IN = 400, 16
GRAPHS = 40


class PerGraph(nn.Module):
    def __init__(self, out: int) -> None:
        super().__init__()
        self.a, self.b, self.head = pyg.GCNConv(IN, 16), pyg.GCNConv(16, 16), nn.Linear(16, out)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        z = self.b(self.a(x, edge_index).relu(), edge_index).relu()
        out: Tensor = self.head(pyg.global_mean_pool(z, batch))
        return out


def truth(kind: str, rows: int) -> Tensor | None:
    generator = torch.Generator().manual_seed(3)
    return {
        "classes": torch.arange(rows) % 3,
        "labels": (torch.rand(rows, 3, generator=generator) < 0.5).float(),
        "numbers": torch.randn(rows, 3, generator=generator),
    }.get(kind)


def graph(task: str, seed: int = 0) -> Data:
    data = planted(seed)
    out = Data(x=data.x, edge_index=data.edge_index)
    kind = task.removesuffix(" per graph")
    if task.endswith("per graph"):
        out.batch = torch.arange(N) // (N // GRAPHS)
        out.y = truth(kind, GRAPHS)
    elif kind == "embedding":
        out.edge_label_index = data.edge_index[:, ::3]
        out.edge_label = torch.arange(out.edge_label_index.size(1)) % 2
    else:
        out.y = truth(kind, N)
    return out


@functools.cache
def case(task: str) -> tuple[nn.Module, SourceCard]:
    torch.manual_seed(0)
    stock = task.endswith("per graph")
    model = PerGraph(3) if stock else pyg.GCN(IN, 16, num_layers=2, out_channels=3)
    model.eval()
    return model, graphmend.card(model, graph(task))


TASKS = ("classes", "labels", "numbers", "embedding", "classes per graph", "labels per graph", "numbers per graph")
tasks = pytest.mark.parametrize("task", TASKS)


def unlabelled(data: Data) -> Data:
    return Data(**{name: value for name, value in data.to_dict().items() if name in ("x", "edge_index", "batch")})


@tasks
def test_the_card_tells_the_task_of_an_unlabelled_graph(task: str) -> None:
    model, card = case(task)
    assert card.task == task
    result = graphmend.mend(model, unlabelled(graph(task, 1)), card=card)
    assert str(result.task) == task and result.verdict is not None and result.verdict.task == task
    assert (result.verdict.stand_in == "") == (task == "classes")


@tasks
def test_a_card_of_any_task_is_a_file_that_says_the_same(task: str, tmp_path: Path) -> None:
    model, card = case(task)
    card.save(tmp_path / "a.card")
    again = SourceCard.load(tmp_path / "a.card")
    assert again.task == task and again.summary() == card.summary()
    data = unlabelled(graph(task, 1))
    data.x = torch.where((torch.arange(N) % 9 == 0).unsqueeze(1), 30 * data.x, data.x)
    first, second = (graphmend.mend(model, data, card=given) for given in (card, tmp_path / "a.card"))
    assert str(first.verdict) == str(second.verdict) and torch.equal(first.logits, second.logits)


@tasks
def test_clean_is_left_alone_broken_rows_are_repaired_and_nothing_is_touched(task: str) -> None:
    model, card = case(task)
    clean = graph(task, 1)
    broken = copy.copy(clean)
    rows = torch.arange(N) % 9 == 0
    broken.x = torch.where(rows.unsqueeze(1), 30 * clean.x.roll(1, 1), clean.x)
    for data, decision in ((clean, "left alone"), (broken, "applied")):
        original, before = data.clone(), state_of(model, data)
        result = graphmend.mend(model, data, card=card)
        assert_same(before, state_of(model, data))
        assert result.verdict is not None and result.verdict.decision == decision
        again, back = result.patch.apply(data), result.patch.revert(result.data)
        assert torch.equal(again.x, result.data.x) and torch.equal(back.x, original.x)
        assert torch.equal(back.edge_index, original.edge_index)
        assert result.patch.is_empty == (decision == "left alone")
        torch.testing.assert_close(result.before, graphmend.Identity()(model, data, card=card).logits)
        assert str(result.task) in repr(result) or task == "classes"


@tasks
def test_compare_has_the_measures_of_the_task(task: str) -> None:
    model, card = case(task)
    data = graph(task, 1)
    data.x = torch.where((torch.arange(N) % 9 == 0).unsqueeze(1), 30 * data.x.roll(1, 1), data.x)
    result = graphmend.mend(model, data, card=card)
    found = result.compare(data.edge_label if task == "embedding" else data.y)
    wanted = {
        "classes": {"accuracy"},
        "labels": {"roc_auc", "average_precision", "micro_f1"},
        "numbers": {"mae", "r2"},
        "embedding": {"roc_auc", "average_precision", "hits@10", "hits@50"},
    }[task.removesuffix(" per graph")]
    assert set(found.before) == set(found.after) == wanted
    assert found.summary()["task"] == task and str(found) and found._repr_html_()
    if task == "embedding":
        with pytest.raises(GraphMendError, match=r"one row for each of the \d+ pairs \(got shape \(400,\)\)"):
            result.compare(torch.ones(N))
    assert found.nodes == (GRAPHS if task.endswith("per graph") else N)


class OfABatch(PerGraph):
    """As graph classifiers are written: the batch has no default."""

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        return super().forward(x, edge_index, batch)


def several(number: int, seed: int = 0) -> list[Data]:
    """Small graphs with a class each."""
    whole, size = planted(seed), N // number
    out = []
    for place in range(number):
        nodes = torch.arange(place * size, (place + 1) * size)
        part = whole.subgraph(nodes)
        out.append(Data(x=part.x, edge_index=part.edge_index, y=torch.tensor([place % 3])))
    return out


CONTAINERS: dict[str, Callable[[list[Data]], Any]] = {
    "list": list,
    "Batch": Batch.from_data_list,
    "loader": lambda graphs: DataLoader(graphs, batch_size=4),
    "batches": lambda graphs: [Batch.from_data_list(graphs[:4]), Batch.from_data_list(graphs[4:])],
}


@pytest.mark.parametrize("kind", CONTAINERS)
@pytest.mark.parametrize("make", [PerGraph, OfABatch])
def test_graphs_that_are_predicted_are_mended_whatever_holds_them(make: type[PerGraph], kind: str) -> None:
    hold = CONTAINERS[kind]
    torch.manual_seed(0)
    model = make(3).eval()
    card = graphmend.card(model, hold(several(8)))
    assert card.task == "classes per graph"
    clean, bad = several(8, 1), torch.arange(N // 8) % 9 == 0
    broken = [data.clone() for data in clean]
    for data in broken:
        data.x = torch.where(bad.unsqueeze(1), 30 * data.x.roll(1, 1), data.x)
    for graphs, decision in ((clean, "left alone"), (broken, "applied")):
        given = hold(graphs)
        held = [given] if isinstance(given, Batch) else graphs
        before = [state_of(model, data) for data in held]
        result = graphmend.mend(model, given, card=card)
        for state, data in zip(before, held, strict=True):
            assert_same(state, state_of(model, data))
        entries = [result] if isinstance(given, Batch) else result
        assert [entry.decision for entry in entries] == [decision] * len(held)
        mended = result.data.to_data_list() if isinstance(given, Batch) else result.data
        for data, one in zip(graphs, mended, strict=True):
            expected = bad if decision == "applied" else torch.zeros_like(bad)
            assert torch.equal((one.x != data.x).any(1), expected) and torch.equal(one.edge_index, data.edge_index)
        whole = Batch.from_data_list(mended)
        torch.testing.assert_close(result.logits, model(whole.x, whole.edge_index, whole.batch))
        assert result.predictions.shape == (8,)


UNKNOWN: dict[str, tuple[Tensor, Tensor | None]] = {
    "no labels": (torch.randn(9, 3), None),
    "more columns than classes": (torch.randn(9, 16), torch.arange(9) % 7),
    "labels out of range": (torch.randn(9, 3), torch.arange(9)),
    "one-hot rows": (torch.randn(9, 3), torch.eye(3)[torch.arange(9) % 3]),
    "probabilities of labels": (torch.rand(9, 3), (torch.arange(27).view(9, 3) % 2).float()),
    "numbers beside several columns": (torch.randn(9, 3), torch.randn(9)),
}
KNOWN: dict[str, tuple[Tensor, Tensor | None, str]] = {
    "classes": (torch.randn(9, 3), torch.arange(9) % 3, "classes"),
    "unlabelled nodes": (torch.randn(9, 3), torch.arange(9) % 4 - 1, "classes"),
    "one logit": (torch.randn(9, 1), torch.arange(9) % 2, "classes"),
    "log-probabilities": (torch.randn(9, 3).log_softmax(1), None, "classes"),
    "labels": (torch.randn(9, 3), (torch.arange(27).view(9, 3) % 2).float(), "labels"),
    "numbers": (torch.randn(9), torch.randn(9), "numbers"),
    "one row per graph": (torch.randn(1, 3), torch.tensor([2]), "classes per graph"),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_what_is_in_doubt_is_asked_for(name: str) -> None:
    output, y = UNKNOWN[name]
    task = task_of([output], [Data(x=torch.rand(9, 2), y=y)])
    assert task.kind is None
    with pytest.raises(GraphMendError, match=r"task='classes'.*--task"):
        task.known()
    assert task_of([output], [Data(x=torch.rand(9, 2), y=y)], named="numbers").kind == "numbers"


@pytest.mark.parametrize("name", KNOWN)
def test_what_is_safe_is_told(name: str) -> None:
    output, y, task = KNOWN[name]
    assert str(task_of([output], [Data(x=torch.rand(9, 2), y=y)])) == task


@pytest.mark.parametrize("make", [lambda net: pyg.GAE(net), lambda net: net], ids=["GAE", "pairs to score"])
def test_an_encoder_is_told(make: Callable[[nn.Module], nn.Module]) -> None:
    data = graph("embedding")
    model = make(pyg.GCN(IN, 16, num_layers=2, out_channels=8)).eval()
    assert graphmend.mend(model, data).task.kind == "embedding"


def test_an_unknown_task_is_asked_for_only_where_it_is_needed() -> None:
    model, _ = case("classes")
    result = graphmend.mend(model, unlabelled(graph("classes")))
    assert result.task.kind is None and result.verdict is not None and result.verdict.flips is None
    asking: list[Callable[[], Any]] = [
        lambda: result.predictions,
        lambda: result.changed,
        result.compare,
        lambda: graphmend.card(model, unlabelled(graph("classes"))),
        lambda: graphmend.mend(pyg.GCN(IN, 16, 2, 3, norm="BatchNorm"), unlabelled(graph("classes")), Tent()),
    ]
    for ask in asking:
        with pytest.raises(GraphMendError, match="task="):
            ask()
    assert result.compare(task="classes").nodes == N


def test_a_card_and_a_name_that_contradict_each_other_and_an_adapter_that_does_not_serve() -> None:
    model, card = case("numbers")
    with pytest.raises(GraphMendError, match="made with task='numbers', not 'classes'"):
        graphmend.mend(model, graph("numbers"), card=card, task="classes")
    with pytest.raises(GraphMendError, match=r"Tent.* serves the task classes.*the model's is numbers"):
        graphmend.mend(model, graph("numbers"), Tent(), card=card)
    with pytest.raises(GraphMendError, match="unknown task 'class'"):
        graphmend.mend(model, graph("numbers"), task="class")


def test_what_a_change_is() -> None:
    old = torch.tensor([[1.0, -1.0], [2.0, 2.0], [-3.0, 0.5]])
    new = torch.tensor([[1.0, -0.5], [2.0, -2.0], [-3.0, 0.5]])
    assert changed_rows(Task("labels"), old, new).tolist() == [False, True, False]
    assert changed_rows(Task("numbers", moves=(0.1, 1.0)), old, new).tolist() == [False, True, False]
    truth = torch.tensor([[1.0, torch.nan], [1.0, 0.0], [1.0, 1.0]])
    assert wrongness(Task("labels"), old, truth).tolist() == [0.0, 1.0, 1.0]
    assert wrongness(Task("numbers"), old, truth).tolist() == [0.0, 1.5, 2.25]


class FailingDecoder(nn.Module):
    """Has an encoder, and a ``decode`` that cannot score anything."""

    def __init__(self) -> None:
        super().__init__()
        self.gnn = pyg.GCN(IN, 16, num_layers=2, out_channels=3)

    def encode(self, x: Tensor, edge_index: Tensor) -> Tensor:
        out: Tensor = self.gnn(x, edge_index)
        return out

    def decode(self, z: Tensor, edge_label_index: Tensor) -> Tensor:
        return z @ edge_label_index.float()


PAIRS: dict[str, tuple[Any, str]] = {
    "numbers": (torch.rand(2, 5), "must be torch.int64"),
    "pairs in rows": (torch.zeros(5, 2, dtype=torch.long), r"must have shape \(2, edges\) \(got \(5, 2\)\)"),
    "a node that is not there": (torch.full((2, 5), N), "names node 400, but the nodes are 0 to 399"),
    "no tensor": ("pairs", "no edge_label_index tensor"),
}


@pytest.mark.parametrize("name", PAIRS)
def test_pairs_that_cannot_be_scored_are_refused(name: str) -> None:
    model, card = case("embedding")
    pairs, words = PAIRS[name]
    with pytest.raises(GraphMendError, match=words):
        graphmend.mend(model, graph("embedding", 1), card=card).compare(torch.ones(5), edge_label_index=pairs)


def test_a_decoder_that_fails_is_a_sentence_and_the_model_is_as_it_was() -> None:
    model, data = FailingDecoder(), graph("embedding", 1)
    before = state_of(model, data)
    with pytest.raises(GraphMendError, match="the model's decode cannot score the pairs"):
        graphmend.mend(model, data).compare(data.edge_label)
    assert_same(before, state_of(model, data))


def test_sparse_labels_tell_nothing_and_measure_nothing() -> None:
    model, data = case("numbers")[0], graph("numbers", 1)
    sparse, result = data.y.to_sparse(), graphmend.mend(model, unlabelled(data))
    for task, words in (("numbers", "y is stored as torch.sparse_coo; pass a dense tensor"), (None, "name what")):
        with pytest.raises(GraphMendError, match=words):
            result.compare(sparse, task=task)


class Sure(pyg.GCN):
    """Gives probabilities, which tell the task whatever the labels are."""

    def forward(self, *args: Any, **given: Any) -> Tensor:
        out: Tensor = super().forward(*args, **given)
        return out.softmax(-1)


def test_a_card_whose_validation_labels_do_not_fit_the_nodes_is_refused() -> None:
    data = graph("classes", 1)
    data.y, data.val_mask = torch.arange(GRAPHS) % 3, torch.ones(N, dtype=torch.bool)
    data.batch = torch.arange(N) // (N // GRAPHS)  # one label per graph, of a model of nodes
    with pytest.raises(GraphMendError, match=r"y must have one row for each of the 400 nodes \(got shape \(40,\)\)"):
        graphmend.card(Sure(IN, 16, num_layers=2, out_channels=3).eval(), data)


def test_a_threshold_that_labels_choose_is_for_classes_of_nodes_alone() -> None:
    for task in ("numbers", "classes per graph"):
        model, data = case(task)[0], graph(task, 1)
        data.y, data.train_mask = torch.arange(N) % 3, torch.ones(N, dtype=torch.bool)
        with pytest.raises(GraphMendError, match=f"chooses by classes of nodes, but the task is {task}"):
            graphmend.mend(model, data, JaccardFilter(), task=task.split()[0])
        assert str(graphmend.mend(model, data, JaccardFilter(0.1), task=task.split()[0]).task) == task
