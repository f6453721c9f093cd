"""Several graphs in one call, whatever holds them; one that is broken costs the others nothing."""

from __future__ import annotations

import gc
import traceback
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import SubsetRandomSampler
from torch_geometric.data import Batch, Data, Dataset, HeteroData, InMemoryDataset
from torch_geometric.loader import DataListLoader, DataLoader, RandomNodeLoader
from torch_geometric.nn import SAGEConv, global_mean_pool

import graphmend
from graphmend import Adaptation, Failure, GraphMendError, GTrans, Limits, Results, card, mend, mend_each
from graphmend.model.per_graph import has_row_per_graph
from graphmend.results.tables import graph_columns
from support.adapter_cases import assert_same_result
from support.gate_cases import card_of, moved, planted, trained
from support.untouched import assert_same, generator_states, snapshot, state_of

pytestmark = pytest.mark.usefixtures("one_thread")


def graphs() -> list[Data]:
    """One that is as it should be, one that has moved, and another one that is as it should be."""
    return [planted(1), moved(planted(1)), planted(2)]


class InMemory(InMemoryDataset):
    def __init__(self, held: list[Data]) -> None:
        super().__init__()
        self.data, self.slices = self.collate(held)


class OnDisk(Dataset):
    """One that reads a graph when it is asked for it, and counts how often it was asked."""

    def __init__(self, held: list[Any]) -> None:
        super().__init__()
        self.held, self.read = held, 0

    def len(self) -> int:
        return len(self.held)

    def get(self, index: int) -> Data:
        self.read += 1
        if self.held[index] is None:
            raise OSError(f"file {index} is cut off")
        return self.held[index]


def pairs(items: list[Data]) -> Any:
    return torch.utils.data.DataLoader(items, batch_size=2, collate_fn=Batch.from_data_list)  # type: ignore[arg-type]


CONTAINERS: dict[str, Callable[[list[Data]], Any]] = {
    "list": list,
    "tuple": tuple,
    "generator": lambda held: (graph for graph in held),
    "batch": Batch.from_data_list,
    "list of batches": lambda held: [Batch.from_data_list(held[:2]), held[2]],
    "data set": InMemory,
    "data set on disk": OnDisk,
    "data set, chosen": lambda held: InMemory([held[2], *held])[1:],
    "subset": lambda held: torch.utils.data.Subset(InMemory([held[2], *held]), [1, 2, 3]),
    "loader": lambda held: DataLoader(held, batch_size=2),
    "loader that shuffles": lambda held: DataLoader(InMemory(held), batch_size=2, shuffle=True, drop_last=True),
    "loader of lists": lambda held: DataListLoader(held, batch_size=2),
    "loader that chooses": lambda held: DataLoader(InMemory([held[2], *held]), sampler=[1, 2, 3], batch_size=2),
    "loader with its own batches": lambda held: DataLoader(held, batch_sampler=[[0, 1], [2]]),
    "loader of somebody's own": pairs,
}
every_container = pytest.mark.parametrize("kind", CONTAINERS)


def same(one: Data, other: Data) -> bool:
    return torch.equal(one.x, other.x) and torch.equal(one.edge_index, other.edge_index)


@every_container
def test_each_graph_is_mended_as_if_it_came_alone(kind: str) -> None:
    model, held = trained("sage"), graphs()
    given, before = CONTAINERS[kind](graphs()), [*generator_states(), *snapshot(model)]
    results = mend(model, given, card=card_of("sage"))
    if kind != "loader of somebody's own":  # to iterate over it draws the seed of its workers
        assert_same(before, [*generator_states(), *snapshot(model)])
    assert isinstance(results, Results) and len(results) == 3 and not results.failures
    assert [entry.decision for entry in results] == ["left alone", "applied", "left alone"]
    for entry, graph in zip(results, held, strict=True):
        assert isinstance(entry, Adaptation)
        alone = mend(model, graph, card=card_of("sage"))
        assert torch.equal(entry.logits, alone.logits) and same(entry.data, alone.data)
        assert entry.verdict == alone.verdict
        assert same(entry.patch.revert(entry.data), graph)
    assert torch.equal(results.logits, torch.cat([entry.logits for entry in results.mended]))
    assert torch.equal(results.predictions, results.logits.argmax(1))


@every_container
def test_a_card_is_that_of_the_list(kind: str) -> None:
    model, held = trained("sage"), [planted(), planted(1), planted(2)]
    made, expected = card(model, CONTAINERS[kind](held)), card(model, held)
    for mine, other in zip(made.parts(), expected.parts(), strict=True):
        for name, value in mine.items():
            equal = torch.equal(value, other[name]) if isinstance(value, Tensor) else value == other[name]
            assert equal or bool(value.isnan().any()), name
    moved_one = moved(planted(1))
    result = mend(model, moved_one, source=CONTAINERS[kind](held))
    assert_same_result(result, mend(model, moved_one, card=expected))


def test_what_was_given_is_left_as_it_was() -> None:
    model, held = trained("sage"), graphs()
    batch = Batch.from_data_list(held)
    states = [state_of(model, data) for data in (*held, batch)]
    for given in (held, batch):
        mend(model, given, card=card_of("sage"))
    for state, data in zip(states, (*held, batch), strict=True):
        assert_same(state, state_of(model, data))


@pytest.mark.parametrize("adapter", [None, "align", "gtrans", "purify"])
def test_a_batch_is_put_together_again(adapter: str | None) -> None:
    held = graphs()
    batch = Batch.from_data_list(held, follow_batch=["y"])
    results = mend(trained("sage"), batch, adapter, card=card_of("sage"))
    again = results.data
    assert isinstance(again, Batch) and again.num_graphs == 3 and torch.equal(again.batch, batch.batch)
    assert "y_batch" in again
    for entry, piece in zip(results.mended, again.to_data_list(), strict=True):
        assert same(entry.data, piece)
    with torch.no_grad():
        out = trained("sage").eval()(again.x, again.edge_index)
    torch.testing.assert_close(out, results.logits, rtol=1e-4, atol=1e-5)


def test_some_with_edge_weights_and_some_without_fit_into_one_batch() -> None:
    one, other = planted(1), planted(2)
    held = [mend(trained("sage"), data).data for data in (one, other)]
    held[0].edge_weight = torch.full((held[0].edge_index.size(1),), 0.5)
    results = Results([_with_data(held[0]), _with_data(held[1])], Batch.from_data_list([one, other]))
    weight = results.data.edge_weight
    assert sorted(weight.unique().tolist()) == [0.5, 1.0] and weight.numel() == results.data.num_edges


def _with_data(data: Data) -> Failure:
    return Failure(0, "", ValueError(), data)


def test_a_transform_of_a_batch_gives_a_batch() -> None:
    batch = Batch.from_data_list(graphs())
    mended = graphmend.Mend(trained("sage"), card=card_of("sage"))(batch)
    assert isinstance(mended, Batch) and not same(mended, batch)
    assert same(mended[0], batch[0]) and not same(mended[1], batch[1])


def infinite() -> Data:
    data = planted(1).clone()
    data.x[3, 1] = torch.inf
    return data


def edgeless() -> Data:
    return Data(x=planted().x, edge_index=torch.zeros(2, 0, dtype=torch.long))


def wider() -> Data:
    data = planted(1)
    return Data(x=torch.cat([data.x, data.x], dim=1), edge_index=data.edge_index)


def sampled() -> Data:
    data = planted(1).clone()
    data.n_id, data.input_id = torch.arange(data.x.size(0)), torch.arange(4)
    return data


BAD: dict[str, tuple[Callable[[], Any], str]] = {
    "an infinite value": (infinite, "x[3, 1] = inf"),
    "no edges": (edgeless, "no edges"),
    "other columns": (wider, "feature columns"),
    "a sample of a larger graph": (sampled, "NeighborLoader"),
    "another kind of graph": (HeteroData, "no node type has floating-point features"),
}
every_fault = pytest.mark.parametrize("fault", BAD)


@every_fault
@pytest.mark.parametrize("kind", ["list", "generator", "data set on disk", "loader"])
@pytest.mark.parametrize("place", [0, 1, 3])
def test_a_bad_graph_costs_the_others_nothing(fault: str, kind: str, place: int) -> None:
    make, said = BAD[fault]
    held, bad, model = graphs(), make(), trained("sage")
    held.insert(place, bad)
    before = [*generator_states(), *snapshot(model)]
    results = mend(model, CONTAINERS[kind](held), card=card_of("sage"))
    assert_same(before, [*generator_states(), *snapshot(model)])
    (failure,) = results.failures
    assert failure is results[place] and failure.index == place and said in failure.reason
    assert isinstance(failure.error, GraphMendError) and failure.data is not None
    assert [entry.decision for entry in results.mended] == ["left alone", "applied", "left alone"]
    with pytest.raises(GraphMendError, match=f"graph {place} has no logits"):
        _ = results.logits
    with pytest.raises(GraphMendError):
        raise failure.error


def test_a_batch_with_a_bad_graph_keeps_it_as_it_was() -> None:
    held = [*graphs(), infinite()]
    again = mend(trained("sage"), Batch.from_data_list(held), card=card_of("sage")).data
    assert again.num_graphs == 4 and same(again[3], held[3]) and not same(again[1], held[1])


def test_a_graph_that_cannot_be_read_is_a_failure_too() -> None:
    model, given = trained("sage"), OnDisk([planted(1), None, planted(2)])
    results = mend(model, given, card=card_of("sage"))
    (failure,) = results.failures
    assert failure.index == 1 and failure.data is None
    assert failure.reason == "it cannot be read (OSError: file 1 is cut off)"
    with pytest.raises(GraphMendError, match="graph 1 of train_data cannot be read"):
        card(model, given)


def test_a_model_that_fails_on_one_graph() -> None:
    class Picky(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = trained("sage")

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            if bool((x == 77).any()):
                raise KeyError("no such entity")
            out: Tensor = self.inner(x, edge_index)
            return out

    held = graphs()
    held[1].x[0, 0] = 77.0
    results = mend(Picky().eval(), held)
    assert [failure.index for failure in results.failures] == [1] and "no such entity" in results.failures[0].reason


def test_a_failure_keeps_no_copies_alive() -> None:
    made: list[weakref.ref[Data]] = []

    class Watched(graphmend.Identity):
        def propose(self, case: Any) -> Any:
            made.append(weakref.ref(case.data))
            raise RuntimeError("no")

    results = mend(trained("sage"), graphs(), Watched())
    gc.collect()
    assert len(results.failures) == 3 and [one() for one in made] == [None] * 3
    last = traceback.extract_tb(results.failures[0].error.__traceback__)[-1]
    assert last.name == "propose" and last.line == 'raise RuntimeError("no")'


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"seed": -1}, "seed must be"),
        ({"mode": "quick"}, "unknown mode 'quick'"),
        ({"progress": "yes"}, "progress must be True or False"),
        ({"callback": 3}, "callback must be"),
        ({"limits": 3}, "limits must be"),
        ({"card": 3}, "card must be a graphmend.SourceCard"),
        ({"card": "nowhere.card.safetensors"}, "there is no file"),
        ({"adapter": "gtrance"}, "unknown adapter 'gtrance'"),
        ({"model": None}, r"must be a torch.nn.Module \(got NoneType\)"),
    ],
    ids=lambda value: str(value)[:30],
)
@pytest.mark.parametrize("how", [mend, mend_each])
def test_what_is_wrong_with_the_call_is_said_at_once(how: Any, options: dict[str, Any], said: str) -> None:
    given = OnDisk(graphs())
    with pytest.raises(GraphMendError, match=said):
        how(**{"model": trained("sage"), "data" if how is mend else "graphs": given, **options})
    assert given.read == 0


def test_an_option_that_does_not_exist_is_an_error_as_for_one_graph() -> None:
    for given in (planted(), [planted()]):
        with pytest.raises(TypeError, match="unexpected keyword argument 'sed'"):
            mend(trained("sage"), given, sed=3)  # type: ignore[call-overload]


def test_a_part_of_the_output_is_chosen_for_all() -> None:
    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = trained("sage")

        def forward(self, x: Tensor, edge_index: Tensor) -> dict[str, Tensor]:
            return {"seen": x, "logits": self.inner(x, edge_index)}

    results = mend(Both().eval(), graphs(), output="logits")
    assert not results.failures
    for entry, graph in zip(results.mended, graphs(), strict=True):
        torch.testing.assert_close(entry.logits, mend(trained("sage"), graph).logits)


def test_the_card_of_another_model_is_named_before_any_graph_is_read() -> None:
    given = OnDisk(graphs())
    with pytest.raises(GraphMendError, match="belongs to another model"):
        mend(trained("gcn"), given, card=card_of("sage"))
    assert given.read == 0


@pytest.mark.parametrize("wrong", [[1, 2], [planted(), "a"], [torch.ones(2, 2), torch.ones(2, 2)]], ids=["1", "a", "x"])
def test_a_list_of_something_else_is_named(wrong: Any) -> None:
    for call in (mend, card):
        with pytest.raises(GraphMendError, match=r"of the list must be a torch_geometric\.data\.Data"):
            call(trained("sage"), wrong)  # type: ignore[operator]


@pytest.mark.parametrize(
    "wrong", [None, 3, "graphs", {"a": planted()}, torch.ones(2, 2)], ids=lambda w: type(w).__name__
)
def test_what_holds_no_graphs_is_named(wrong: Any) -> None:
    with pytest.raises(GraphMendError, match="graphs must be a list, a data set, a loader or a Batch"):
        mend_each(trained("sage"), wrong)
    with pytest.raises(GraphMendError, match=r"must be a torch_geometric\.data\.Data"):
        mend(trained("sage"), wrong)


def test_no_graphs_are_no_results() -> None:
    results = mend(trained("sage"), [])
    assert len(results) == 0 and results.failures == [] and results.data == [] and results.logits.numel() == 0
    assert repr(results) == "Results of 0 graphs" and "0 graphs" in results._repr_html_()


def test_an_error_of_the_callback_is_the_callers() -> None:
    def stop(step: Any) -> None:
        raise ValueError("enough")

    with pytest.raises(ValueError, match="enough"):
        mend(trained("sage"), graphs(), GTrans(steps=2), callback=stop)


def test_every_option_reaches_every_graph() -> None:
    model, held, seen = trained("sage"), graphs(), []
    limits = Limits(minimum=-1.0, maximum=1.0)
    results = mend(model, held, GTrans(steps=2), callback=seen.append, seed=3, limits=limits, mode="eager")
    assert len(seen) == 6
    for entry, graph in zip(results.mended, held, strict=True):
        assert_same_result(entry, mend(model, graph, GTrans(steps=2), seed=3, limits=limits, mode="eager"))


def test_limits_of_a_batch_mark_its_nodes_and_edges() -> None:
    model, held = trained("sage"), [moved(planted(1)), moved(planted(2))]
    batch = Batch.from_data_list(held)
    nodes, edges = torch.arange(batch.num_nodes) % 3 == 0, torch.arange(batch.num_edges) % 2 == 0
    limits = Limits(frozen_nodes=nodes, frozen_edges=edges, maximum=2.0)
    results = mend(model, batch, GTrans(steps=5, edge_steps=2, lr_feature=0.1), limits=limits)
    again, parts = results.data, zip(results.mended, nodes.split([400, 400]), strict=True)
    assert torch.equal(again.x[nodes], batch.x[nodes]) and not torch.equal(again.x, batch.x)
    for entry, mask in parts:
        assert torch.equal(entry.patch.revert(entry.data).x[mask], entry.data.x[mask]) and entry.patch.num_removed > 0
    for entry, mask in zip(results.mended, edges.split([data.num_edges for data in held]), strict=True):
        assert not bool(mask[entry.patch.removed].any())
    for wrong in ({"frozen_nodes": nodes[:-1]}, {"frozen_edges": edges[:-1]}):
        with pytest.raises(GraphMendError, match="must have one entry per"):
            mend(model, batch, limits=Limits(**wrong))  # type: ignore[arg-type]


def test_limits_of_columns_hold_for_every_graph() -> None:
    held = [moved(planted(1)), moved(planted(2))]
    columns = torch.arange(16) < 4
    results = mend(trained("sage"), held, "align", card=card_of("sage"), limits=Limits(frozen_columns=columns))
    for entry, graph in zip(results.mended, held, strict=True):
        assert entry.decision == "applied" and torch.equal(entry.data.x[:, columns], graph.x[:, columns])


def test_one_at_a_time() -> None:
    """The graph at hand and the one before it are in memory, and no more; nothing is read ahead."""
    alive: list[weakref.ref[Data]] = []
    asked = 0

    def days() -> Iterator[Data]:
        nonlocal asked
        for day in range(6):
            asked += 1
            data = planted(day % 3).clone()
            alive.append(weakref.ref(data))
            yield data
            del data

    for number, result in enumerate(mend_each(trained("sage"), days(), card=card_of("sage"))):
        assert isinstance(result, Adaptation) and asked == number + 1
        assert sum(graph() is not None for graph in alive) <= 2


def test_a_loader_whose_sampler_draws_leaves_the_generators_alone() -> None:
    loader = DataLoader(graphs(), sampler=SubsetRandomSampler([0, 2]), batch_size=2)
    before, model = generator_states(), trained("sage")
    results = mend(model, loader, card=card_of("sage"))
    assert_same(before, generator_states())
    assert len(results) == 2 and results[0].data is not None


def test_loaders_of_parts_of_one_graph_are_refused() -> None:
    data, model = planted(1), trained("sage")
    parts = RandomNodeLoader(data, num_parts=2)
    for call in (mend, mend_each, card):
        with pytest.raises(GraphMendError, match=r"RandomNodeLoader gives parts of one graph.*give the whole graph"):
            call(model, parts)  # type: ignore[operator]


def test_a_batch_made_by_hand_cannot_be_taken_apart() -> None:
    data = planted(1)
    made = Batch(x=data.x, edge_index=data.edge_index, batch=torch.zeros(data.x.size(0), dtype=torch.long))
    with pytest.raises(GraphMendError, match=r"cannot be taken apart.*Batch\.from_data_list"):
        mend(trained("sage"), made)


def test_a_sequence_of_results() -> None:
    results = mend(trained("sage"), [*graphs(), infinite()], card=card_of("sage"))
    assert results[-1] is results[3] and list(results) == [results[i] for i in range(4)]
    part = results[1:3]
    assert isinstance(part, Results) and len(part) == 2 and part[0] is results[1] and results[1] in results
    assert len(results.data) == 4 and results.seconds == sum(entry.seconds for entry in results.mended)
    with pytest.raises(IndexError):
        results[4]


def test_the_summary_is_a_line_for_each_graph() -> None:
    results = mend(trained("sage"), [*graphs(), infinite()], card=card_of("sage"))
    title, *lines = repr(results).splitlines()
    assert title == "Results of 4 graphs: 2 left alone, 1 applied, 1 failed" and len(lines) == 4
    assert "applied" in lines[1] and "13 times" in lines[1] and "x[3, 1] = inf" in lines[3]
    html = results._repr_html_()
    assert html.count("<tr>") == 5 and "x[3, 1] = inf" in html
    summary = results.summary()
    assert summary["graphs"] == 4 and summary["decisions"] == {"left alone": 2, "applied": 1, "failed": 1}
    assert [one["graph"] for one in summary["results"]] == [0, 1, 2, 3]


def test_many_graphs_are_not_all_printed() -> None:
    failures = [Failure(index, "<b>no</b>", ValueError()) for index in range(25)]
    lines = repr(Results(failures)).splitlines()
    assert len(lines) == 22 and "5 more" in lines[-1]
    assert "<b>no</b>" not in Results(failures)._repr_html_()


def test_columns_have_one_entry_per_graph() -> None:
    results = mend(trained("sage"), [*graphs(), infinite()], card=card_of("sage"))
    columns = graph_columns(results)
    assert {len(column) for column in columns.values()} == {4}
    assert columns["decision"] == ["left alone", "applied", "left alone", "failed"]
    moved_rows = columns["feature_rows_changed"]
    assert moved_rows[:3] == [entry.patch.num_rows for entry in results.mended] and moved_rows[3] != moved_rows[3]
    assert columns["predictions_changed"][1] == results.mended[1].changed.numel()
    assert set(graph_columns(Results([Failure(0, "no", ValueError())]))) == {"graph", "decision", "sentence"}


class PerGraph(nn.Module):
    """One row of scores per graph of a batch."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.last = SAGEConv(16, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Any:
        return self.last(global_mean_pool(self.conv(x, edge_index).relu(), batch))


def test_the_question_whether_a_model_has_rows_per_graph_leaves_it_alone() -> None:
    for model in (PerGraph(), trained("sage"), nn.Linear(3, 3)):
        batch = Batch.from_data_list(graphs())
        before = state_of(model, batch)
        has_row_per_graph(model, batch)
        assert_same(before, state_of(model, batch))
    assert not has_row_per_graph(trained("sage"), Batch.from_data_list(graphs()))
    assert not has_row_per_graph(nn.Linear(3, 3), Batch.from_data_list(graphs())), "it does not run"
    one = Data(x=torch.rand(1, 16), edge_index=torch.zeros(2, 1, dtype=torch.long))
    assert not has_row_per_graph(trained("sage"), Batch.from_data_list([one, one])), "as many nodes as graphs"


class OfTwoTypes(nn.Module):
    """Scores of the nodes of one of two types."""

    def __init__(self) -> None:
        super().__init__()
        self.there, self.back = SAGEConv((4, 4), 3), SAGEConv((4, 4), 4)

    def forward(self, x_dict: Any, edge_index_dict: Any) -> Any:
        a, b = x_dict["a"], x_dict["b"]
        a = self.back((b, a), edge_index_dict["b", "rev", "a"]).relu()
        return self.there((a, b), edge_index_dict["a", "to", "b"])


def of_two_types(seed: int) -> HeteroData:
    generator, data = torch.Generator().manual_seed(seed), HeteroData()
    data["a"].x, data["b"].x = (torch.rand(n, 4, generator=generator) for n in (30, 20))
    data["b"].y = torch.randint(3, (20,), generator=generator)
    ends = torch.stack([torch.randint(n, (80,), generator=generator) for n in (30, 20)])
    data["a", "to", "b"].edge_index, data["b", "rev", "a"].edge_index = ends, ends.flip(0)
    return data


@pytest.mark.parametrize("kind", ["list", "batch", "loader"])
def test_graphs_with_several_types_of_nodes(kind: str) -> None:
    results = mend(OfTwoTypes().eval(), CONTAINERS[kind]([of_two_types(1), of_two_types(2)]))  # type: ignore[list-item]
    assert len(results) == len(results.mended) == 2 and not results.failures
    assert repr(results).count("\n") == 2 and results.logits.shape == (40, 3)
    assert graph_columns(results)["predictions_changed"] == [0, 0] and results.summary()["graphs"] == 2
