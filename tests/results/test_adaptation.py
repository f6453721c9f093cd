"""A result as a thing to hold: short to print, safe in a notebook, and with the predictions before."""

from __future__ import annotations

import copy
import html.parser
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data

import graphmend
from graphmend import GTrans, Identity, mend
from graphmend.adapters import Adapter, Case, Proposal, Reweight
from graphmend.errors import GraphMendError
from graphmend.lab.backbones import GCN
from graphmend.outputs import CLASSES
from graphmend.results.adaptation import Adaptation
from graphmend.results.history import Steps
from graphmend.results.patch import Patch
from graphmend.results.verdict import Evidence, Verdict
from support.graphs import labelled
from support.untouched import assert_same, state_of

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def model() -> GCN:
    torch.manual_seed(0)
    return GCN(5, 8, 3, batch_norm=True)


@pytest.fixture
def data() -> Data:
    return labelled(60, density=0.02)


class Shift(Adapter):
    """Adds a number to all features."""

    def __init__(self, by: float) -> None:
        self.by = by

    def propose(self, case: Case) -> Proposal:
        return Proposal(case.data.x + self.by)


class Decides(Adapter):
    """Adds a number to all features, and keeps what was before, as the gate does."""

    def propose(self, case: Case) -> Proposal:
        before = case.require_frozen().predict(case.data).detach()
        verdict = Verdict("applied", ("shift",), "card", "applied: for a test")
        return Proposal(case.data.x.roll(2, 1) * -3, verdict=verdict, alternative=Proposal(logits=before))


class NewHead(Adapter):
    """Turns the model's output around."""

    changes_model = True

    def propose(self, case: Case) -> Proposal:
        for parameter in case.model.parameters():
            parameter.data.neg_()
        return Proposal()


def plain_output(model: nn.Module, data: Data) -> Tensor:
    was = model.training
    with torch.no_grad():
        out: Tensor = model.eval()(data.x, data.edge_index)
    model.train(was)
    return out


# ---------------------------------------------------------------- before


@pytest.mark.parametrize(
    "adapter", [Shift(3.0), GTrans(steps=5, lr_feature=0.5), NewHead(), Reweight()], ids=lambda a: type(a).__name__
)
def test_before_is_the_output_on_the_graph_as_it_was_and_leaves_everything_alone(
    adapter: Any, model: GCN, data: Data
) -> None:
    expected = plain_output(model, data)
    call = {"card": graphmend.card(model, data, task="classes")} if isinstance(adapter, Reweight) else {}
    result = mend(model, data, adapter, **call)
    own = state_of(model, data)
    torch.testing.assert_close(result.before, expected)
    assert result.before is result.before, "it is computed once"
    assert_same(own, state_of(model, data))
    assert not result.before.requires_grad
    old, new = expected.argmax(1), result.logits.argmax(1)
    assert torch.equal(result.predictions, new)
    assert result.changed.dtype == torch.long and result.changed.tolist() == (old != new).nonzero().view(-1).tolist()


def test_before_costs_nothing_where_nothing_changed(model: GCN, data: Data) -> None:
    result = Identity()(model, data)
    assert result.before is result.logits and result.changed.numel() == 0


def test_the_gate_knows_what_was_before(model: GCN, data: Data) -> None:
    result = Decides()(model, data)
    assert result.alternative is not None and result.before is result.alternative.logits
    torch.testing.assert_close(result.before, plain_output(model, data))
    assert result.changed.numel() > 0 and f"{result.changed.numel()} of 60 changed" in repr(result)


def test_before_does_not_need_the_callers_graph(model: GCN, data: Data) -> None:
    expected = plain_output(model, data)
    result = Shift(1.0)(model, data)
    data.x.zero_()
    torch.testing.assert_close(result.before, expected)


def test_a_model_that_was_trained_on_meanwhile_is_an_error_not_a_wrong_number(model: GCN, data: Data) -> None:
    result, in_time = Shift(1.0)(model, data), Shift(1.0)(model, data)
    _ = in_time.before
    with torch.no_grad():
        next(model.parameters()).add_(1e-3)
    with pytest.raises(GraphMendError, match="the model has changed since the graph was mended"):
        _ = result.before
    assert in_time.changed.dtype == torch.long


def test_a_mended_graph_that_was_changed_is_an_error_not_a_wrong_number(model: GCN, data: Data) -> None:
    result = Shift(1.0)(model, data)
    result.data.x[0, 0] += 1
    with pytest.raises(GraphMendError, match="did not make this graph"):
        _ = result.before


def test_a_result_can_be_copied(model: GCN, data: Data) -> None:
    result = copy.deepcopy(Shift(1.0)(model, data))
    torch.testing.assert_close(result.before, plain_output(model, data))


def test_a_binary_model_with_one_logit(data: Data) -> None:
    torch.manual_seed(0)
    result = Shift(5.0)(GCN(5, 8, 1), data)
    named = replace(result, task=CLASSES)
    assert named.predictions.shape == (60,) and set(named.predictions.tolist()) <= {0, 1}
    assert result.task.doubt.startswith("the model gives one number per row, and the labels y go from 0 to 2")
    assert result.compare(data.y % 2).nodes == 60


# ---------------------------------------------------------------- text


class _Tags(html.parser.HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.add(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


def read_html(thing: Any) -> _Tags:
    tags = _Tags()
    tags.feed(thing._repr_html_())
    assert tags.tags <= {"table", "caption", "tr", "th", "td", "b", "br"}
    return tags


def test_a_result_prints_on_a_few_lines(model: GCN, data: Data) -> None:
    result = GTrans(steps=10)(model, data)
    text = repr(result)
    assert len(text.splitlines()) <= 8 and all(len(line) < 140 for line in text.splitlines())
    assert "60 nodes" in text and "feature rows changed" in text and "10 steps (8 feature, 2 edge), loss" in text
    assert "before" not in vars(result), "nothing is computed to print it"
    assert "compare() counts" in text and f"{result.changed.numel()} of 60 changed" in repr(result)
    assert str(result) == repr(result) and "60 nodes" in read_html(result).text


def test_a_result_that_was_left_alone_says_why(model: GCN, data: Data) -> None:
    class Stops(Adapter):
        def propose(self, case: Case) -> Proposal:
            return Proposal(case.data.x / 0)

    assert "left alone   the mended features are not finite" in repr(Stops()(model, data))
    gated = mend(model, data)
    assert gated.verdict is not None and gated.verdict.sentence in repr(gated)


def test_a_patch_prints_on_one_line(model: GCN, data: Data) -> None:
    patch = Shift(1.0)(model, data).patch
    assert repr(patch) == f"Patch({patch.summary()})" and len(repr(patch).splitlines()) == 1
    assert "60 of 60" in read_html(patch).text


def test_steps_print_on_one_line_and_as_a_short_table(model: GCN, data: Data) -> None:
    history = GTrans(steps=40)(model, data).history
    assert repr(history).startswith("40 steps (32 feature, 8 edge), loss ") and "\n" not in repr(history)
    assert history._repr_html_().count("<tr>") < 15 and isinstance(history, list)
    assert repr(Steps()) == "no steps" and read_html(Steps())


def test_a_notebook_shows_text_as_text() -> None:
    evil = "<script>alert('&')</script>"
    verdict = Verdict("applied", (), "card", evil, (Evidence(evil, 1.0, 2.0, True),))
    seen = read_html(verdict)
    assert seen.text.count(evil) == 2
    data = Data(x=torch.ones(1, 1), edge_index=torch.tensor([[0], [0]]))
    patch, mended = Patch.make(data, data.x, torch.tensor([], dtype=torch.long), data.edge_index[:, :0])
    result = Adaptation(nn.Identity(), mended, torch.zeros(1, 2), patch, reason=evil, verdict=verdict)
    assert read_html(result).text.count(evil) == 2


def test_a_verdict_prints_its_evidence_line_by_line() -> None:
    evidence = (Evidence("shift", 2.5, 1.0, True), Evidence("flips", 0.25, 0.1, False))
    verdict = Verdict("applied", (), "card", "applied: it helps", evidence)
    lines = ["Verdict(applied: it helps)", *(f"  {item}" for item in evidence)]
    assert repr(verdict).splitlines() == lines
    assert repr(replace(verdict, next_step="Look.")).splitlines() == [*lines, "  next: Look."]


# ---------------------------------------------------------------- edges, and the version that was not returned


def test_edges_of_a_patch_are_listed_as_they_were_stored() -> None:
    data = labelled(12)
    patch, mended = Patch.make(data, data.x, torch.tensor([0, 2]), torch.tensor([[3], [11]]))
    assert patch.removed_edges().tolist() == data.edge_index[:, [0, 2]].tolist()
    assert patch.added_edges().tolist() == [[3], [11]] == mended.edge_index[:, -1:].tolist()
    nothing, _ = Patch.make(data, data.x, torch.tensor([], dtype=torch.long), data.edge_index[:, :0])
    assert nothing.removed_edges().shape == nothing.added_edges().shape == (2, 0)
    assert nothing.is_empty and not patch.is_empty


def test_the_alternative_keeps_no_features_and_labels_still_decide(model: GCN, data: Data) -> None:
    result = Decides()(model, data)
    assert result.alternative is not None and result.alternative.x is None
    nodes = result.questions(60)
    against = {int(node): int(result.before.argmax(1)[node]) for node in nodes}
    settled = result.decide(against)
    assert settled.verdict is not None and settled.verdict.decision == "left alone"
    assert torch.equal(settled.data.x, data.x) and torch.equal(settled.logits, settled.before)
    back = settled.decide({int(node): int(result.predictions[node]) for node in nodes})
    assert torch.equal(back.data.x, result.data.x) and torch.equal(back.before, result.before)
