"""Several adapters as one: the same graph as one call after another, in one patch."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch_geometric.nn as pyg
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch_geometric.data import Data

from graphmend import GraphMendError, GTrans, Identity, Limits, UnsupportedLayerError, mend
from graphmend.adapters import Adapter, Case, Proposal, Sequence, Stopped
from graphmend.results.history import Step
from graphmend.results.verdict import Verdict
from support.adapter_cases import (
    HID,
    IN,
    OUT,
    N,
    assert_goes_there_and_back,
    assert_same_result,
    make_graph,
    make_model,
)
from support.untouched import assert_same, state_of


@dataclass(frozen=True)
class Edit(Adapter):
    """Changes what it is told to, and notes the graph that it was given."""

    shift: float = 0.0
    removed: tuple[int, ...] = ()
    added: tuple[tuple[int, int], ...] = ()
    seen: list[Case] = dataclasses.field(default_factory=list, compare=False)

    def propose(self, case: Case) -> Proposal:
        self.seen.append(case)
        return Proposal(
            x=case.within_limits(case.data.x + self.shift) if self.shift else None,
            removed=torch.tensor(self.removed, dtype=torch.long) if self.removed else None,
            added=torch.tensor(self.added, dtype=torch.long).view(-1, 2).t() if self.added else None,
        )


@dataclass(frozen=True)
class Stopping(Adapter):
    def propose(self, case: Case) -> Proposal:
        raise Stopped("it is too late")


@dataclass(frozen=True)
class ChangesModel(Adapter):
    changes_model = True

    def propose(self, case: Case) -> Proposal:
        return Proposal()


class WithAttributes(nn.Module):
    """Attention that looks at four numbers per edge."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = pyg.GATConv(IN, HID, edge_dim=4), pyg.GATConv(HID, OUT, edge_dim=4)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Any:
        return self.b(self.a(x, edge_index, edge_attr).relu(), edge_index, edge_attr)


def plain_graph() -> Data:
    return make_graph()


def weighted_graph() -> Data:
    data = make_graph()
    data.edge_weight = 0.5 + torch.arange(data.edge_index.size(1), dtype=torch.float64) / 50
    return data


def attributed_graph() -> Data:
    data = make_graph()
    numbers = torch.arange(4 * data.edge_index.size(1), dtype=torch.float64).view(-1, 4)
    data.edge_attr = (numbers * 0.7).sin()
    return data


GRAPHS: dict[str, tuple[Callable[[], Data], Callable[[], nn.Module]]] = {
    "plain": (plain_graph, lambda: make_model()),
    "edge weights": (weighted_graph, lambda: make_model()),
    "edge attributes": (attributed_graph, lambda: make_model(make=WithAttributes)),
    "edge weights that the model ignores": (weighted_graph, lambda: make_model(make=sage)),
}
graphs = pytest.mark.parametrize("kind", GRAPHS)


def sage() -> nn.Module:
    made: nn.Module = pyg.GraphSAGE(IN, HID, num_layers=2, out_channels=OUT)
    return made


def steps(**options: Any) -> GTrans:
    return GTrans(**{"steps": 6, "feature_steps": 2, "lr_feature": 0.05, "lr_edge": 0.5, "budget": 5, **options})


MEMBERS: dict[str, tuple[Adapter, ...]] = {
    "features twice": (Edit(shift=0.3), Edit(shift=-1.1)),
    "edges, then features": (Edit(removed=(0, 3, 7)), Edit(shift=0.1)),
    "edges twice": (Edit(removed=(0, 3, 7)), Edit(removed=(0, 1, 5, 20))),
    "learned after edges went": (Edit(shift=0.2, removed=(4, 5)), steps()),
    "learned twice": (steps(), steps(lr_feature=0.02)),
    "three": (steps(), Edit(removed=(2,)), steps(edge_steps=0)),
}


@graphs
@pytest.mark.parametrize("members", MEMBERS.values(), ids=MEMBERS.keys())
@pytest.mark.parametrize("mode", ["auto", "eager"])
def test_it_equals_one_call_after_another(kind: str, members: tuple[Adapter, ...], mode: str) -> None:
    make_data, make = GRAPHS[kind]
    data, model = make_data(), make()
    before = state_of(model, data)
    result = Sequence(*members)(model, data, seed=2, mode=mode)
    assert_same(before, state_of(model, data))
    current, history, candidates = data, 0, 0
    for member in members:
        single = member(model, current, seed=2, mode=mode)
        assert single.reason is None
        current, history, candidates = single.data, history + len(single.history), candidates + len(single.candidates)
    assert result.reason is None
    assert (len(result.history), len(result.candidates)) == (history, candidates)
    assert torch.equal(result.data.edge_index, current.edge_index)
    for name in ("x", "edge_weight", "edge_attr"):
        if name in data:
            torch.testing.assert_close(result.data[name], current[name], rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(result.logits, single.logits, rtol=1e-9, atol=1e-9)
    assert_goes_there_and_back(result, data)


@st.composite
def edits(draw: st.DrawFn) -> list[Edit]:
    """A few changes in a row, each of what the one before it leaves."""
    count, out = plain_graph().edge_index.size(1), []
    for _ in range(draw(st.integers(1, 4))):
        removed = tuple(sorted(draw(st.sets(st.integers(0, count - 1), max_size=min(6, count - 1)))))
        ends = st.tuples(st.integers(0, N - 1), st.integers(0, N - 1))
        added = tuple(draw(st.lists(ends, max_size=3)))
        out.append(Edit(draw(st.sampled_from([0.0, 0.25])), removed, added))
        count += len(added) - len(removed)
    return out


@settings(max_examples=60)
@given(edits())
def test_many_changes_become_one(members: list[Edit]) -> None:
    """Against lists of edges that are changed one after another."""
    data, model = weighted_graph(), make_model()
    edges = [
        (*pair, weight) for *pair, weight in zip(*data.edge_index.tolist(), data.edge_weight.tolist(), strict=True)
    ]
    original, x = set(edges), data.x.clone()
    for member in members:
        edges = [edge for place, edge in enumerate(edges) if place not in member.removed]
        edges += [(*pair, 1.0) for pair in member.added]
        x = x + member.shift if member.shift else x
    result = Sequence(*members)(model, data)
    mended = zip(*result.data.edge_index.tolist(), result.data.edge_weight.tolist(), strict=True)
    assert list(mended) == edges
    assert torch.equal(result.data.x, x)
    assert result.patch.num_removed == len(original - set(edges)) and result.patch.num_added == sum(
        edge not in original for edge in edges
    )
    assert_goes_there_and_back(result, data)


def test_an_edge_that_comes_and_goes_was_never_there() -> None:
    data, model = weighted_graph(), make_model()
    count = data.edge_index.size(1)
    come, go = Edit(added=((0, 14), (14, 0))), Edit(removed=(count, count + 1))
    result = (come >> go)(model, data)
    assert (result.patch.num_added, result.patch.num_removed, result.patch.num_rows) == (0, 0, 0)
    assert_same_result(result, Identity()(model, data))
    assert go.seen[0].data.edge_weight[-2:].tolist() == [1.0, 1.0]


@graphs
def test_members_see_the_changed_graph(kind: str) -> None:
    """Its features, its edges and whatever else belongs to the edges, and so does the model through the frozen one."""

    @dataclass(frozen=True)
    class Looking(Adapter):
        outputs: list[Tensor]

        def propose(self, case: Case) -> Proposal:
            assert case.frozen is not None
            x, edge_index = case.data.x, case.data.edge_index
            self.outputs.append(case.frozen(x, edge_index))
            self.outputs.append(case.frozen.first_layer(x, edge_index).mean(0))
            self.outputs.append(case.frozen.embed(x, edge_index).mean(0))
            self.outputs.append(case.frozen.first_map)
            return Proposal()

    data, model = GRAPHS[kind][0](), GRAPHS[kind][1]()
    edit, inside, alone = Edit(shift=0.4, removed=tuple(range(0, 20, 2))), Looking([]), Looking([])
    result = (edit >> inside)(model, data)
    alone(model, result.data)
    for mine, expected in zip(inside.outputs, alone.outputs, strict=True):
        torch.testing.assert_close(mine, expected)


def test_frozen_edges_are_found_again() -> None:
    data, model = plain_graph(), make_model()
    frozen = torch.arange(data.edge_index.size(1)) % 3 == 0
    edit, look = Edit(removed=(1, 2, 4), added=((0, 14),)), Edit()
    (edit >> look)(model, data, limits=Limits(frozen_edges=frozen))
    given = look.seen[0].limits.frozen_edges
    assert given is not None
    kept = torch.ones_like(frozen).index_fill(0, torch.tensor(edit.removed), False)
    assert torch.equal(given, torch.cat([frozen[kept], torch.tensor([False])]))


def test_limits_hold_for_all_members_together() -> None:
    data, model = plain_graph(), make_model()
    data.x[:, 0] = (data.x[:, 0] > 1).double()
    limits = Limits(
        frozen_nodes=torch.arange(N) % 4 == 0,
        frozen_columns=torch.arange(IN) == 1,
        frozen_edges=torch.ones(data.edge_index.size(1), dtype=torch.bool),
        binary=torch.arange(IN) == 0,
        maximum=2.0,
    )
    result = (steps() >> Edit(shift=1.5) >> steps(lr_feature=1.0))(model, data, limits=limits)
    assert result.reason is None and result.patch.num_removed == 0
    assert torch.equal(result.data.x[::4], data.x[::4]) and torch.equal(result.data.x[:, 1], data.x[:, 1])
    assert set(result.data.x[:, 0].tolist()) <= {0.0, 1.0}
    free = torch.arange(N) % 4 > 0
    assert float(result.data.x[free][:, 2:].max()) == 2.0


@pytest.mark.parametrize("place", [0, 1, 2])
def test_one_that_stops_stops_all(place: int, caplog: pytest.LogCaptureFixture) -> None:
    data, model = weighted_graph(), make_model()
    members: list[Adapter] = [steps(steps=2), Edit(shift=1.0, removed=(1,))]
    members.insert(place, Stopping())
    result = Sequence(*members)(model, data)
    assert result.reason == "Stopping: it is too late" and result.reason in caplog.text
    assert (result.patch.num_rows, result.patch.num_removed, result.patch.num_added) == (0, 0, 0)
    assert torch.equal(result.logits, Identity()(model, data).logits)
    assert len(result.history) == (2 if place > 0 else 0), "what was done until then is told"


def test_a_loss_that_is_not_finite_is_named_with_its_adapter() -> None:
    data, model = plain_graph(), make_model()
    bad = steps(surrogate=lambda m, d: math.nan * d.x.sum())
    result = (Edit(shift=1.0) >> bad)(model, data)
    assert result.reason is not None and result.reason.startswith("GTrans: the surrogate loss is not finite")
    assert torch.equal(result.data.x, data.x)


def test_features_that_are_not_finite_do_not_reach_the_next_one() -> None:
    data, model, look = plain_graph(), make_model(), Edit()
    result = (Edit(shift=math.inf) >> look)(model, data)
    assert result.reason == "Edit: the mended features are not finite" and not look.seen


def test_the_remedy_for_numbers_too_large_is_one_that_the_adapters_have() -> None:
    data, model = make_graph(torch.float32), make_model(torch.float32)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1e3)
    plain = "use float32 or features of a smaller size"
    without: Adapter = Edit(shift=math.inf)
    assert without(model, data).reason == f"the mended features are not finite; {plain}"
    large = Edit(shift=1e36)
    said = "the model's output on the mended graph is not finite; "
    assert large(model, data).reason == said + plain
    assert (large >> Identity())(model, data).reason == said + plain
    tiny = steps(steps=1, edge_steps=0, lr_feature=1e-9)
    assert (tiny >> large)(model, data).reason == f"{said}take a smaller lr_feature or {plain}"


class Deciding(Adapter):
    """A gate that applies something and names questions about the rest."""

    def propose(self, case: Case) -> Proposal:
        verdict = Verdict("applied", ("align",), "card", "applied: why", next_step="result.questions() names them")
        return Proposal(case.data.x + 1, verdict=verdict, alternative=Proposal(case.data.x + 2))


def test_the_verdict_of_a_member_is_kept_without_questions_that_nobody_can_ask() -> None:
    for adapter in (Deciding() >> Edit(shift=1.0), Edit(shift=1.0) >> Deciding()):
        result = adapter(make_model(), plain_graph())
        assert result.verdict is not None and result.verdict.sentence == "applied: why"
        assert result.verdict.next_step == "" and result.questions().numel() == 0


def test_without_edges_there_is_nothing_to_do_for_the_next_one() -> None:
    data, model, look = plain_graph(), make_model(), Edit()
    everything = Edit(removed=tuple(range(data.edge_index.size(1))))
    result = (everything >> look)(model, data)
    assert result.reason == "Edit: the adapters before it have removed all edges" and not look.seen
    assert Sequence(everything)(model, data).data.edge_index.shape == (2, 0)


def test_steps_are_numbered_on_and_told_once() -> None:
    told: list[Step] = []
    result = (steps(steps=4) >> Edit(shift=0.1) >> steps(steps=3))(make_model(), plain_graph(), callback=told.append)
    assert told == result.history and [step.index for step in told] == list(range(7))
    seconds = [step.seconds for step in told]
    assert seconds == sorted(seconds) and result.seconds >= seconds[-1]


def test_discrete_graphs_compete_within_their_member_only() -> None:
    """The first member's loss is a thousand below that of the second, whose own best graph is taken all the same."""

    def low(model: Any, data: Data) -> Tensor:
        return data.edge_weight.sum() - 1000.0 + 0.0 * data.x.sum()

    def high(model: Any, data: Data) -> Tensor:
        return data.edge_weight.sum() + 0.0 * data.x.sum()

    options = {"steps": 10, "feature_steps": 0, "edge_steps": 1, "lr_edge": 1.0, "budget": 4}
    result = (GTrans(low, **options) >> GTrans(high, **options))(make_model(), plain_graph())
    assert result.reason is None and result.patch.num_removed == 16


def test_time_limits_begin_with_the_member() -> None:
    @dataclass(frozen=True)
    class Slow(Adapter):
        def propose(self, case: Case) -> Proposal:
            time.sleep(0.3)
            return Proposal()

    result = (Slow() >> steps(steps=3, time_limit=0.25))(make_model(), plain_graph())
    assert len(result.history) == 3 and result.history[0].seconds >= 0.3


def test_sequences_are_flat() -> None:
    a, b, c = Edit(shift=1.0), Edit(shift=2.0), Identity()
    both: tuple[Adapter, ...] = (a >> b) >> c, a >> (b >> c)
    for made in (*both, Sequence(Sequence(a), Sequence(b, c))):
        assert isinstance(made, Sequence) and made.members == (a, b, c) and made == Sequence(a, b, c)
    assert Sequence(a, b) != Sequence(b, a)
    result = mend(make_model(), plain_graph(), a >> b)
    torch.testing.assert_close(result.data.x, plain_graph().x + 3.0)


def test_the_embedding_is_passed_along() -> None:
    assert (Identity() >> steps()).embedding is None
    assert (Identity() >> steps(embedding="a")).embedding == "a"
    assert (steps(embedding="a") >> Edit() >> steps(embedding="a")).embedding == "a"
    data, model = plain_graph(), make_model()
    alone = steps(embedding="a")(model, data)
    assert_same_result((Identity() >> steps(embedding="a"))(model, data), alone)
    with pytest.raises(GraphMendError, match="no module 'q'"):
        (Identity() >> steps(embedding="q"))(model, data)
    with pytest.raises(GraphMendError, match="share one embedding, but name a, b; leave all but one of them out"):
        steps(embedding="a") >> steps(embedding="b")


def test_what_cannot_be_a_member() -> None:
    with pytest.raises(GraphMendError, match="needs at least one adapter"):
        Sequence()
    with pytest.raises(GraphMendError, match=r"an adapter is one of .*\(got .gtrans.\)"):
        Sequence(Identity(), "gtrans")  # type: ignore[arg-type]
    with pytest.raises(
        GraphMendError, match=r"ChangesModel.. changes the model and cannot be in a sequence, .* result\."
    ):
        Identity() >> ChangesModel()
    with pytest.raises(TypeError):
        Identity() >> 3  # type: ignore[operator]


def test_errors_of_members_are_the_callers() -> None:
    data = make_graph(dtype=torch.float32)
    model = make_model(torch.float32, lambda: pyg.GraphSAGE(IN, HID, num_layers=2, out_channels=OUT, aggr="max"))
    with pytest.raises(UnsupportedLayerError, match="SAGEConv with aggr='max'"):
        (Identity() >> steps(feature_steps=0))(model, data)
    with pytest.raises(GraphMendError, match="seed"):
        (Identity() >> Identity())(model, data, seed=-1)
