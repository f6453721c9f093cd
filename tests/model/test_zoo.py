"""Models as PyG's examples write theirs: clean graphs are left alone, broken rows repaired, all else is as it was."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

from graphmend import FrozenGNN, GraphMendError, card, mend
from support.gate_cases import BAD_ROWS
from support.untouched import assert_same, generator_states, snapshot, state_of
from support.zoo.specimens import SPECIMENS
from support.zoo.table import PAGE, rendered

REFUSED = [name for name, specimen in SPECIMENS.items() if specimen.refused is not None]
SEVERAL_KINDS = [name for name, specimen in SPECIMENS.items() if specimen.node_type is not None]
MENDED = [name for name in SPECIMENS if name not in (*REFUSED, *SEVERAL_KINDS)]


def without_layer_caches(model: nn.Module) -> nn.Module:
    """A copy that computes its normalisation anew, if it keeps one."""
    if not any(getattr(module, "cached", False) for module in model.modules()):
        return model
    out = copy.deepcopy(model)
    for module in out.modules():
        if getattr(module, "cached", False):
            module.cached = False
    return out


@pytest.mark.parametrize("name", MENDED)
def test_a_clean_graph_is_left_alone_and_broken_rows_are_repaired(name: str) -> None:
    specimen = SPECIMENS[name]
    model, data = specimen.trained, specimen.graph_of(1)
    broken = specimen.broken(data)
    before = state_of(model, broken)
    options: dict[str, Any] = {} if specimen.output is None else {"output": specimen.output}
    source = card(model, specimen.graph_of(0), task=specimen.task, **options)
    assert specimen.task in (None, source.task.removesuffix(" per graph"))
    sound = mend(model, data, card=source)
    assert sound.verdict is not None and sound.verdict.decision == "left alone", sound.verdict
    assert torch.equal(sound.data.x, data.x) and torch.equal(sound.data.edge_index, data.edge_index)

    result = mend(model, broken, card=source)
    assert result.verdict is not None and "impute" in result.verdict.menders, result.verdict
    changed = (result.data.x != broken.x).any(1)
    assert torch.equal(changed, BAD_ROWS)
    back = result.patch.revert(result.data)
    assert torch.equal(back.x, broken.x) and torch.equal(back.edge_index, broken.edge_index)
    assert_same(before, state_of(model, broken))
    plain = without_layer_caches(model)
    for outcome in (sound, result):
        with torch.no_grad():
            torch.manual_seed(0)
            torch.testing.assert_close(outcome.logits, specimen.logits(plain, outcome.data), rtol=1e-4, atol=1e-5)
    with FrozenGNN(model, data, **options) as frozen:
        assert frozen.takes_edge_weights == specimen.edges


@pytest.mark.parametrize("name", SEVERAL_KINDS)
def test_the_same_with_several_kinds_of_nodes(name: str) -> None:
    specimen = SPECIMENS[name]
    model, data = specimen.trained, specimen.graph_of(1)
    broken = specimen.broken(data)
    before = snapshot(model) + generator_states(), broken.clone()
    source = card(model, specimen.graph_of(0))
    sound, result = mend(model, data, card=source), mend(model, broken, card=source)
    assert sound.verdict is not None and sound.verdict.decision == "left alone", sound.verdict
    changed = (specimen.nodes(result.data).x != specimen.nodes(broken).x).any(1)
    assert torch.equal(changed, BAD_ROWS[: len(changed)])
    assert_same(before[0], snapshot(model) + generator_states())
    back = result.patch.revert(result.data)
    for kind in broken.node_types:
        assert torch.equal(broken[kind].x, before[1][kind].x) and torch.equal(back[kind].x, broken[kind].x)
    with torch.no_grad():
        torch.testing.assert_close(result.logits, specimen.logits(model, result.data), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", REFUSED)
def test_a_model_that_cannot_be_taken_is_refused_with_a_sentence(name: str) -> None:
    specimen = SPECIMENS[name]
    model, data = specimen.trained, specimen.graph_of(1)
    with pytest.raises(GraphMendError) as caught:
        card(model, data)
    assert len(str(caught.value)) < 400


def test_there_are_forty_models_and_more() -> None:
    assert len(MENDED) >= 40


def test_the_tables_in_the_docs_are_current() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert rendered(page) == page, "write them with PYTHONPATH=src:tests python -m support.zoo.table"
