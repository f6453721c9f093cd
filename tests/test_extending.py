"""A loss, a view and adapters nobody has seen before: a few lines each, and the engine makes them fast."""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor, nn
from torch_geometric.data import Data
from typer.testing import CliRunner

import graphmend
from graphmend import GTrans, Limits
from graphmend.adapters import ADAPTERS, Adapter, Case, Proposal, Stopped
from graphmend.cli import app
from graphmend.contracts import Backbone
from graphmend.engine.optimizers import FeatureStep
from graphmend.files.graph_files import load_graph, save_graph
from graphmend.lab.backbones import BACKBONES, GCN, build, save_model
from graphmend.surrogates import SURROGATES, Contrastive, Surrogate
from support.adapter_cases import HID, IN, OUT, N, assert_close_results, make_graph, make_model, sage_with_batch_norm
from support.graphs import DEVICES
from support.sample_models import SEES_ALL_NODES
from support.untouched import assert_same, state_of

pytestmark = pytest.mark.usefixtures("one_thread")


class Entropy(Surrogate):
    """The mean entropy of the predictions."""

    def terms(self, model: Backbone, data: Data, generator: torch.Generator | None = None) -> dict[str, Tensor]:
        logits = model(data.x, data.edge_index, data.get("edge_weight"))
        return {"entropy": -(logits.softmax(-1) * logits.log_softmax(-1)).sum(-1).mean()}


@dataclass(frozen=True)
class FeaturesOnly(Adapter):
    """Gradient steps on the features, and nothing else."""

    steps: int = 8

    def propose(self, case: Case) -> Proposal:
        graph = case.relaxed()
        step = FeatureStep(graph.x, 0.01, case.limits.projection(case.data.x))
        with case.engine(Entropy(), graph) as engine:
            for t in case.history.steps(self.steps):
                case.history.add(t, step.kind, engine.descend(step))
            return Proposal(graph.x, logits=engine.predict(None), engine=engine.report())


class FreshStatistics(Adapter):
    """Batch normalisation with the statistics of the test graph, in a copy of the model."""

    changes_model = True

    @torch.no_grad()
    def propose(self, case: Case) -> Proposal:
        case.model.train()
        for _ in range(30):
            case.model(case.data.x, case.data.edge_index)
        case.model.eval()
        return Proposal()


def noisy(data: Data, generator: torch.Generator | None = None) -> Data:
    """A view that nobody has seen: a little noise on every feature."""
    out = copy.copy(data)
    out.x = data.x + 0.1 * torch.randn(data.x.shape, generator=generator, dtype=data.x.dtype, device=data.x.device)
    return out


MODELS: dict[str, Any] = {
    **{name: lambda name=name: build(name, IN, HID, OUT) for name in BACKBONES},
    "PyG GCN": lambda: pyg.GCN(IN, HID, 2, OUT),
    "PyG GraphSAGE": lambda: pyg.GraphSAGE(IN, HID, 2, OUT),
    "PyG GAT": lambda: pyg.GAT(IN, HID, 2, OUT),
    "PyG GATv2": lambda: pyg.GAT(IN, HID, 2, OUT, v2=True),
    "PyG GIN": lambda: pyg.GIN(IN, IN - 1, 2, OUT),
}


def case(name: str, device: str) -> tuple[nn.Module, Data]:
    return make_model(torch.float32, MODELS[name]).to(device).eval(), make_graph(torch.float32).to(device)


ADAPTATIONS: dict[str, Adapter] = {
    "a new surrogate": GTrans(Entropy(), steps=12, lr_feature=0.01),
    "a new surrogate beside an old one": GTrans(Entropy() + 0.1 * Contrastive(), steps=12, lr_feature=0.01),
    "a new view": GTrans(Contrastive(noisy), steps=12, lr_feature=0.01),
    "a new adapter": FeaturesOnly(),
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("new", ADAPTATIONS)
def test_what_nobody_has_seen_is_fast_by_the_engines_own_report(new: str, name: str, device: str) -> None:
    (model, data), adapter = case(name, device), ADAPTATIONS[new]
    result = graphmend.mend(model, data, adapter)
    assert result.reason is None and result.patch.num_rows > 0
    assert result.engine.shared_features, result.engine.reasons
    if name not in SEES_ALL_NODES:  # they look at numbers on the way, which cannot be recorded
        assert result.engine.recorded is (device == "cuda"), result.engine.reasons
    plain = graphmend.mend(model, data, adapter, mode="eager")
    assert not (plain.engine.shared_features or plain.engine.stacked_views or plain.engine.recorded)
    for mine, other in zip(result.history, plain.history, strict=True):
        assert mine.loss == pytest.approx(other.loss, rel=1e-3, abs=1e-3)


def test_a_new_surrogate_does_what_it_says() -> None:
    model, data = case("gcn", "cpu")
    result = GTrans(Entropy(), steps=20, lr_feature=0.05, edge_steps=0)(model, data)
    losses = [step.terms["entropy"] for step in result.history]
    with torch.no_grad():
        p = model(data.x, data.edge_index).softmax(-1)
    assert losses[0] == pytest.approx(float(-(p * p.log()).sum(-1).mean()), rel=1e-5)
    assert losses[-1] < losses[0]


def test_a_new_adapter_has_everything_from_the_shell() -> None:
    """Limits, history, callback, patch, restoring, modes."""
    model, data = sage_with_batch_norm().double().train(), make_graph()
    before, steps = state_of(model, data), []
    frozen = torch.arange(N) < 5
    result = FeaturesOnly()(model, data, limits=Limits(frozen_nodes=frozen), callback=steps.append)
    assert_same(before, state_of(model, data))
    assert steps == result.history and len(steps) == 8 and {step.kind for step in steps} == {"feature"}
    assert torch.equal(result.data.x[frozen], data.x[frozen]) and not torch.equal(result.data.x, data.x)
    assert torch.equal(result.patch.revert(result.data).x, data.x)
    assert_close_results(
        result, FeaturesOnly()(model, data, limits=Limits(frozen_nodes=frozen), mode="eager"), tolerance=1e-8
    )


def test_an_adapter_that_changes_the_model_changes_a_copy() -> None:
    model, data = sage_with_batch_norm().double().train(), make_graph()
    before = state_of(model, data)
    result = FreshStatistics()(model, data)
    assert_same(before, state_of(model, data))
    assert result.reason is None and result.model is not model
    assert not torch.equal(result.model.norms[0].module.running_mean, model.norms[0].module.running_mean)
    own = copy.deepcopy(result.model).eval()(data.x, data.edge_index)
    torch.testing.assert_close(result.logits, own.detach())
    assert not torch.allclose(result.logits, copy.deepcopy(model).eval()(data.x, data.edge_index).detach())
    assert torch.equal(result.data.x, data.x) and result.patch.num_rows == 0


@pytest.mark.parametrize("changes_model", [False, True])
def test_an_adapter_that_gives_up_says_why(changes_model: bool, caplog: pytest.LogCaptureFixture) -> None:
    class GivesUp(Adapter):
        def propose(self, case: Case) -> Proposal:
            if changes_model:
                with torch.no_grad():
                    next(case.model.parameters()).zero_()
            raise Stopped("there is nothing to be had")

    GivesUp.changes_model = changes_model
    model, data = sage_with_batch_norm().double().train(), make_graph()
    before = state_of(model, data)
    result = GivesUp()(model, data)
    assert_same(before, state_of(model, data))
    assert result.reason == "there is nothing to be had" and result.reason in caplog.text
    assert result.model is model and torch.equal(result.data.x, data.x)
    torch.testing.assert_close(result.logits, copy.deepcopy(model).eval()(data.x, data.edge_index).detach())


@pytest.mark.parametrize(
    "change, said",
    [
        (Proposal(x=torch.full((N, IN), torch.nan, dtype=torch.float64)), "the mended features are not finite"),
        (Proposal(logits=torch.full((N, OUT), torch.inf, dtype=torch.float64)), "output on the mended graph is not"),
    ],
)
def test_a_change_that_is_not_finite_is_not_made(change: Proposal, said: str) -> None:
    class Bad(Adapter):
        def propose(self, case: Case) -> Proposal:
            return change

    model, data = sage_with_batch_norm().double(), make_graph()
    result = Bad()(model, data)
    assert result.reason is not None and said in result.reason
    assert torch.equal(result.data.x, data.x) and result.logits.isfinite().all()


def test_an_error_of_the_adapter_itself_is_not_hidden() -> None:
    class Wrong(Adapter):
        def propose(self, case: Case) -> Proposal:
            raise ZeroDivisionError

    model, data = sage_with_batch_norm().double().train(), make_graph()
    before = state_of(model, data)
    with pytest.raises(ZeroDivisionError):
        Wrong()(model, data)
    assert_same(before, state_of(model, data))


def test_the_command_line_takes_whatever_is_registered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SURROGATES, "entropy", Entropy)
    monkeypatch.setitem(ADAPTERS, "features_only", FeaturesOnly)
    save_model(GCN(IN, HID, OUT), tmp_path / "model.safetensors")
    save_graph(tmp_path / "graph.npz", make_graph(torch.float32))
    common = ["mend", "--model", str(tmp_path / "model.safetensors"), "--graph", str(tmp_path / "graph.npz"), "--json"]
    gtrans = ["--adapter", "gtrans", "--surrogate", "entropy"]
    for more, term in ((gtrans, "entropy"), (["--adapter", "features_only"], "entropy")):
        out = tmp_path / more[1]
        done = CliRunner().invoke(app, [*common, *more, "--out", str(out), "--steps", "3"])
        assert done.exit_code == 0, done.output
        report = json.loads(done.stdout)[0]
        assert [set(step["terms"]) for step in report["history"]] == [{term}] * 3
        assert not torch.equal(load_graph(out / "graph.npz").x, make_graph(torch.float32).x)


class TheirLoss:
    """A loss with nothing but what the contract asks for."""

    def terms(self, model: Backbone, data: Data, generator: torch.Generator | None = None) -> dict[str, Tensor]:
        return Entropy().terms(model, data, generator)


class TheirAdapter:
    """An adapter with nothing but what the contract asks for."""

    def propose(self, case: Case) -> Proposal:
        return Proposal(case.data.x * 2, removed=torch.tensor([1]))


def their_function(model: nn.Module, data: Data, **options: Any) -> graphmend.Adaptation:
    return graphmend.mend(model, data, TheirAdapter(), **options)


def test_a_loss_needs_no_base_class() -> None:
    model, data = make_model(), make_graph()
    for theirs, ours in ((TheirLoss(), Entropy()), (2 * Contrastive() + TheirLoss(), 2 * Contrastive() + Entropy())):
        assert_close_results(GTrans(theirs)(model, data), GTrans(ours)(model, data))


def test_a_loss_without_a_base_class_comes_first_in_a_sum() -> None:
    model, data = make_model(), make_graph()
    theirs, ours = (GTrans(loss + Contrastive())(model, data) for loss in (TheirLoss(), Entropy()))
    assert_close_results(theirs, ours)


@pytest.mark.parametrize("theirs", [TheirAdapter(), their_function], ids=["class", "function"])
def test_an_adapter_needs_no_base_class(theirs: Any) -> None:
    model, data = make_model(), make_graph()
    before = state_of(model, data)
    alone = graphmend.mend(model, data, theirs)
    assert torch.equal(alone.data.x, data.x * 2) and alone.patch.removed.tolist() == [1]
    first, last = theirs >> FeaturesOnly(), FeaturesOnly() >> theirs
    by_hand = FeaturesOnly()(model, alone.data)
    assert_close_results(first(model, data), by_hand)
    assert last(model, data).patch.removed.tolist() == [1]
    assert_same(state_of(model, data), before)
