"""One call."""

from __future__ import annotations

import logging

import pytest
import torch

import graphmend
from adapter_cases import N, assert_same_result, basic, make_graph, make_model, sage_with_batch_norm
from graphmend import GTrans, Identity, Limits
from sample_models import TakesData
from untouched import assert_same, state_of

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize("name", ["GCN", "GraphSAGE", "GIN", "GAT", "PNA", "EdgeCNN", "forward(data)"])
def test_one_call_mends_for_any_model(name: str, caplog: pytest.LogCaptureFixture) -> None:
    model = make_model(torch.float32, TakesData if name == "forward(data)" else lambda: basic(name))
    data = make_graph(torch.float32)
    result = graphmend.mend(model, data)
    features_only = name in ("PNA", "EdgeCNN")
    assert result.reason is None and result.patch.num_rows > 0
    assert [step.kind for step in result.history].count("edge") == (0 if features_only else 2)
    warnings = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    if features_only:
        assert len(warnings) == 1 and warnings[0].startswith(
            "mending features only: edges cannot be learned through convs.0"
        )
        assert result.candidates == []
    else:
        assert warnings == []
    model.eval()
    with torch.no_grad():
        out = model(result.data) if name == "forward(data)" else model(result.data.x, result.data.edge_index)
    torch.testing.assert_close(out, result.logits)


def test_one_call_passes_everything_on() -> None:
    model, data, seen = make_model(), make_graph(), []
    rows = torch.arange(N) < 4
    result = graphmend.mend(model, data, seed=5, limits=Limits(frozen_nodes=rows), callback=seen.append)
    assert_same_result(result, GTrans()(model, data, seed=5, limits=Limits(frozen_nodes=rows)))
    assert len(seen) == 10 and torch.equal(result.data.x[rows], data.x[rows])
    adapter = GTrans(steps=3, edge_steps=0)
    assert_same_result(graphmend.mend(model, data, adapter), adapter(model, data))
    other = make_model(make=lambda: basic("PNA"))
    expected = GTrans(edge_steps=0)(other, data, seed=5, limits=Limits(frozen_nodes=rows))
    assert_same_result(graphmend.mend(other, data, seed=5, limits=Limits(frozen_nodes=rows)), expected)


def test_identity_predicts_and_changes_nothing() -> None:
    model, data = make_model(make=sage_with_batch_norm), make_graph()
    before = state_of(model, data)
    result = Identity()(model, data)
    assert_same(before, state_of(model, data))
    assert torch.equal(result.logits, model.eval()(data.x, data.edge_index))
    assert result.reason is None and result.history == [] and result.summary()["feature_rows_changed"] == 0
    assert result.patch.num_rows == result.patch.num_removed == result.patch.num_added == 0
