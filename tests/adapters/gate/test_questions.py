"""A few labels settle what the gate could not, or what it got wrong."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data

from graphmend import Adaptation, Gate, GraphMendError, Identity
from graphmend.adapters import Adapter, Case, Proposal
from graphmend.results.questions import FEWEST, nodes_to_ask, poll
from graphmend.results.verdict import APPLIED, PARTLY, Verdict
from support.gate_cases import (
    CLASSES,
    N,
    card_of,
    moved,
    plain_logits,
    planted,
    trained,
    with_bad_rows,
    with_other_classes,
)


def applied() -> tuple[Adaptation, Data]:
    """The gate aligned, and would not have needed to ask."""
    data = moved(planted(1))
    return Gate()(trained("sage"), data, card=card_of("sage")), data


def left_alone() -> tuple[Adaptation, Data]:
    """The gate thought about aligning and did not."""
    data = with_other_classes()
    return Gate()(trained("sage"), data, card=card_of("sage")), data


CASES = {"applied": applied, "left alone": left_alone}
cases = pytest.mark.parametrize("start", CASES)


def old_and_new(result: Adaptation) -> tuple[Tensor, Tensor]:
    assert result.alternative is not None
    own, other = result.logits.argmax(1), result.alternative.logits.argmax(1)
    return (own, other) if result.alternative.is_change else (other, own)


def verdict_of(result: Adaptation) -> Verdict:
    assert result.verdict is not None
    return result.verdict


@cases
def test_questions_are_flipped_nodes_in_an_order_of_their_own(start: str) -> None:
    result, _ = CASES[start]()
    old, new = old_and_new(result)
    nodes = result.questions(10_000)
    assert sorted(nodes.tolist()) == (old != new).nonzero().view(-1).tolist() != []
    assert torch.equal(result.questions(3), nodes[:3]) and torch.equal(result.questions(10_000), nodes)
    assert result.questions().numel() == min(25, nodes.numel())
    assert verdict_of(result).decision == start
    with pytest.raises(GraphMendError, match="number must be a whole number of at least 1"):
        result.questions(0)


@cases
@pytest.mark.parametrize("kind", ["mapping", "tensor", "list"])
def test_labels_for_the_change_apply_it(start: str, kind: str) -> None:
    result, data = CASES[start]()
    nodes = result.questions(8)
    labels = old_and_new(result)[1][nodes]
    given = {
        "mapping": dict(zip(nodes.tolist(), labels.tolist(), strict=True)),
        "tensor": labels,
        "list": labels.tolist(),
    }[kind]
    settled = result.decide(given)  # type: ignore[arg-type]
    verdict = verdict_of(settled)
    assert (verdict.decision, verdict.menders, verdict.regime) == ("applied", ("align",), "labels")
    assert verdict.sentence == "applied: of 5 labels 5 speak for the change and 0 against it"
    assert settled.patch.num_rows == N
    torch.testing.assert_close(settled.logits, plain_logits(trained("sage"), settled.data), rtol=1e-3, atol=1e-3)
    assert torch.equal(settled.patch.apply(data).x, settled.data.x)
    json.dumps(settled.summary(), allow_nan=False)


@cases
def test_labels_against_the_change_leave_the_graph_alone(start: str) -> None:
    result, data = CASES[start]()
    settled = result.decide(old_and_new(result)[0][result.questions(8)])
    verdict = verdict_of(settled)
    assert (verdict.decision, verdict.menders, verdict.regime) == ("left alone", (), "labels")
    assert verdict.sentence == "left alone: of 5 labels 0 speak for the change and 5 against it"
    assert torch.equal(settled.data.x, data.x) and torch.equal(settled.data.edge_index, data.edge_index)
    assert settled.patch.num_rows == settled.patch.num_removed == 0
    assert torch.equal(settled.logits, Identity()(trained("sage"), data).logits)


@cases
def test_too_few_labels_leave_the_decision_to_the_gate(start: str) -> None:
    result, _ = CASES[start]()
    for side in (0, 1):
        settled = result.decide(old_and_new(result)[side][result.questions(4)])
        assert settled.data is result.data and settled.patch is result.patch and settled.logits is result.logits
        assert verdict_of(settled).decision == start and verdict_of(settled).menders == verdict_of(result).menders
        counts = f"of 4 labels {4 * side} speak for the change and {4 - 4 * side} against it"
        assert verdict_of(settled).sentence == f"{verdict_of(result).sentence}; {counts}"


@cases
def test_a_decision_can_be_taken_back(start: str) -> None:
    result, _ = CASES[start]()
    old, new = old_and_new(result)
    nodes = result.questions(8)
    there = result.decide(new[nodes]).decide(old[nodes])
    back = there.decide(new[nodes])
    assert verdict_of(there).decision == "left alone" and verdict_of(back).decision == "applied"
    assert torch.equal(back.questions(8), nodes) and verdict_of(back).menders == ("align",)
    assert torch.equal(back.data.x, result.decide(new[nodes]).data.x)


def test_labels_of_other_nodes_do_not_count() -> None:
    result, _ = applied()
    old, new = old_and_new(result)
    same = (old == new).nonzero().view(-1).tolist()
    with pytest.raises(GraphMendError, match="none of the labelled nodes changes its prediction"):
        result.decide(dict.fromkeys(same, 0))
    with pytest.raises(GraphMendError, match="none of the labelled nodes changes its prediction"):
        result.decide({})
    nodes = result.questions(5).tolist()
    labels = {node: int(new[node]) for node in nodes} | dict.fromkeys(same, 0)
    assert verdict_of(result.decide(labels)).sentence.startswith("applied: of 5 labels 5 speak for")


def test_wrong_numbers_of_labels_are_named() -> None:
    result, _ = applied()
    number = result.questions(10_000).numel()
    with pytest.raises(GraphMendError, match=f"there are {number} questions but {number + 1} labels"):
        result.decide(torch.zeros(number + 1, dtype=torch.long))
    with pytest.raises(GraphMendError, match="labels is empty"):
        result.decide(torch.zeros(0, dtype=torch.long))


@pytest.mark.parametrize("label", [1.5, math.nan, "cat", None])
def test_labels_that_are_no_classes_are_named(label: object) -> None:
    result, _ = applied()
    nodes = result.questions(6).tolist()
    with pytest.raises(GraphMendError, match="labels must be whole numbers"):
        result.decide(dict.fromkeys(nodes, label))  # type: ignore[arg-type]
    if isinstance(label, float):
        with pytest.raises(GraphMendError, match="labels must be whole numbers"):
            result.decide(torch.full((6,), label))


def test_where_nothing_was_proposed_there_is_nothing_to_ask() -> None:
    data = planted(1)
    result = Gate()(trained("sage"), data, card=card_of("sage"))
    assert result.alternative is None and result.questions().numel() == 0
    assert result.decide({0: 1}) is result


class HalfMended(Adapter):
    """Imputes, and would have aligned as well."""

    def propose(self, case: Case) -> Proposal:
        verdict = Verdict(PARTLY, ("impute",), "card", "applied: rows; not aligned: why")
        x = case.data.x
        return Proposal(x + 1, verdict=verdict, alternative=Proposal(x + 2, menders=("impute", "align")))


def test_what_was_applied_in_part_stays_where_the_rest_is_refused() -> None:
    data = with_bad_rows(planted(1))
    result = HalfMended()(trained("gcn"), data)
    old, new = old_and_new(result)
    nodes = result.questions(12)
    refused, accepted = result.decide(old[nodes]), result.decide(new[nodes])
    assert (verdict_of(refused).decision, verdict_of(refused).menders) == (PARTLY, ("impute",))
    assert torch.equal(refused.data.x, data.x + 1)
    assert (verdict_of(accepted).decision, verdict_of(accepted).menders) == ("applied", ("impute", "align"))
    assert torch.equal(accepted.data.x, data.x + 2)
    again = accepted.decide(old[nodes])
    assert (verdict_of(again).decision, verdict_of(again).menders) == (PARTLY, ("impute",))
    assert torch.equal(again.data.x, data.x + 1)


class FilledAndMended(Adapter):
    """Fills missing values and changes the rest, which it would also leave; it is the gate's answer to broken rows."""

    fills_missing = True

    def propose(self, case: Case) -> Proposal:
        verdict = Verdict(APPLIED, ("impute",), "card", "applied: 1 missing value was filled; then rows")
        return Proposal(case.data.x + 1, verdict=verdict, alternative=Proposal(menders=("impute",)))


@pytest.mark.parametrize("missing", [1, 1234])
def test_missing_values_stay_filled_and_are_told_where_the_rest_is_refused(missing: int) -> None:
    data = planted(1)
    data.x.view(-1)[:missing] = math.nan
    result = FilledAndMended()(trained("gcn"), data)
    old, new = old_and_new(result)
    nodes = result.questions(12)
    refused = result.decide(old[nodes])
    verdict = verdict_of(refused)
    assert (verdict.decision, verdict.menders, verdict.flips) == (PARTLY, ("impute",), 0.0)
    told = "1 missing value was filled" if missing == 1 else "1,234 missing values were filled"
    assert verdict.sentence == f"partly applied: {told}; of 5 labels 0 speak for the change and 5 against it"
    assert torch.equal(refused.data.x, result.graph_before().x) and bool(refused.data.x.isfinite().all())
    accepted = verdict_of(refused.decide(new[nodes]))
    assert (accepted.decision, accepted.menders) == (APPLIED, ("impute",)) and accepted.flips > 0
    assert accepted.sentence == f"applied: {told}; of 5 labels 5 speak for the change and 0 against it"


def wald(sides: np.ndarray) -> tuple[int, bool | None]:
    """The test of two shares by the likelihoods of all that was seen so far; 0 speaks for neither."""
    for number in range(1, sides.size + 1):
        seen = sides[:number]
        good, bad = int((seen > 0).sum()), int((seen < 0).sum())
        ratio = (0.65**good * 0.35**bad) / (0.35**good * 0.65**bad)
        if ratio >= 0.95 / 0.05 * (1 - 1e-9):
            return number, True
        if ratio <= 0.05 / 0.95 * (1 + 1e-9):
            return number, False
    return sides.size, None


def poll_of(sides: np.ndarray) -> tuple[int, bool | None]:
    """The same question to the poll: the old class is 0, the new one 1, and 2 is neither."""
    labels = [{-1: 0, 1: 1, 0: 2}[int(side)] for side in sides]
    found = poll(torch.zeros(sides.size, dtype=torch.long), torch.ones(sides.size, dtype=torch.long), labels)
    assert found.for_change == int((sides[: found.asked] > 0).sum())
    assert found.against == int((sides[: found.asked] < 0).sum())
    return found.asked, found.decision


@pytest.mark.parametrize("share", [0.35, 0.65])
def test_the_poll_errs_seldom_and_agrees_with_walds_test(share: float) -> None:
    generator = np.random.default_rng(0)
    wrong, asked = 0, []
    for _ in range(2000):
        sides = np.where(generator.random(400) < 0.2, 0, np.where(generator.random(400) < share, 1, -1))
        number, decision = poll_of(sides)
        assert (number, decision) == wald(sides[: number + 1])
        assert decision is not None, "400 labels settle it"
        wrong += decision is not (share > 0.5)
        asked.append(number)
    assert wrong / 2000 < 0.05 + 0.015
    assert 10 < np.mean(asked) < 40


def test_the_fewest_labels_that_settle_anything() -> None:
    assert FEWEST == 5
    for side in (1, -1):
        assert poll_of(np.full(FEWEST - 1, side)) == (FEWEST - 1, None)
        assert poll_of(np.full(FEWEST, side)) == (FEWEST, side > 0)


def test_the_poll_does_not_settle_what_is_even() -> None:
    sides = np.array([1, -1] * 50)
    assert poll_of(sides) == (100, None)
    assert poll_of(np.zeros(30, dtype=int)) == (30, None)
    assert poll(torch.empty(0), torch.empty(0), []).decision is None


def test_the_order_of_questions_is_the_same_for_the_same_flips() -> None:
    old, new = torch.arange(60) % CLASSES, (torch.arange(60) + torch.arange(60) % 2) % CLASSES
    keys = torch.randint(2**62, (old.numel(),), generator=torch.Generator().manual_seed(0))
    first = nodes_to_ask(old, new, 30, keys)
    assert torch.equal(first, nodes_to_ask(old, new, 30, keys)) and sorted(first.tolist()) == list(range(1, 60, 2))
    assert first.tolist() != sorted(first.tolist())
