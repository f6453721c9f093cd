"""The engine: whatever it finds out about a model and a loss, results are those of the plain way."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data

from graphmend.engine.engine import Engine
from graphmend.engine.optimizers import Adam, EdgeStep, FeatureStep
from graphmend.engine.report import Abilities, Report, Stopped
from graphmend.engine.trials import why_features_are_not_shared
from graphmend.errors import GraphMendError
from graphmend.graph.budget import project
from graphmend.graph.edge_flips import EdgeFlips
from graphmend.graph.limits import Limits
from graphmend.graph.relaxed import RelaxedGraph
from graphmend.results.history import History
from support.graphs import rng
from support.sparse_patterns import devices
from support.tiny import (
    IN,
    Agreement,
    ClampsFirst,
    N,
    OfEmbedding,
    ScalesAfterwards,
    Smoothness,
    SmoothnessIfAny,
    Tiny,
    tiny_graph,
)


@dataclass
class Run:
    """Ten steps with one surrogate, and the discrete graphs after them."""

    surrogate: Any
    mode: str = "auto"
    device: str = "cpu"
    lr: float = 0.05
    edges: bool = True
    limits: Limits = field(default_factory=Limits)
    abilities: Abilities | None = None

    def __post_init__(self) -> None:
        self.data = tiny_graph(self.device)
        self.model = Tiny().to(self.device)
        flips = EdgeFlips.of(self.data.edge_index, N, budget=4) if self.edges else None
        self.graph = RelaxedGraph(self.data, flips)
        self.generator = torch.Generator(self.device).manual_seed(5)
        if self.abilities is None:
            graph = self.graph.as_data(self.data.x, self.graph.presence())
            reason = why_features_are_not_shared(self.model, self.surrogate, graph, 0)
            self.abilities = Abilities(is_sharing_tried=True, why_not_shared=reason)
        self.steps: dict[str, Any] = {
            "feature": FeatureStep(self.graph.x, self.lr, self.limits.projection(self.data.x))
        }
        if flips is not None:
            self.steps["edge"] = EdgeStep(flips.p, Adam(flips.p, 0.3), lambda p: project(p, flips.budget))

    def engine(self) -> Engine:
        return Engine(
            self.model,
            self.surrogate,
            self.graph,
            generator=self.generator,
            seed=7,
            abilities=self.abilities,
            mode=self.mode,
        )

    def __call__(self, number: int = 10) -> Run:
        history = History(torch.device(self.device))
        with self.engine() as engine:
            for t in history.steps(number):
                kind = "edge" if self.edges and t % 3 == 2 else "feature"
                history.add(t, kind, engine.descend(self.steps[kind]))
            history.read()
            for name, flips in self.graph.candidates(3, torch.Generator(self.device).manual_seed(1)):
                history.add_candidate(name, flips, engine.loss(flips))
            self.logits = engine.predict(history.best())
            self.report = engine.report()
        self.history, self.candidates = history.read(), history.candidates()
        return self


def assert_same(ours: Run, plain: Run) -> None:
    """Equal up to the rounding of floats; on a GPU, sums are taken in another order."""
    close = 1e-6 if ours.device == "cpu" else 3e-4
    for mine, theirs in zip(ours.history, plain.history, strict=True):
        assert mine.kind == theirs.kind and list(mine.terms) == list(theirs.terms)
        assert mine.loss == pytest.approx(theirs.loss, abs=close)
        assert mine.flipped == pytest.approx(theirs.flipped, abs=10 * close)
        assert mine.gradient_norm == pytest.approx(theirs.gradient_norm, rel=100 * close, abs=close)
    for one, other in zip(ours.candidates, plain.candidates, strict=True):
        assert (one.name, one.flips) == (other.name, other.flips)
        assert one.loss == pytest.approx(other.loss, abs=close)
    torch.testing.assert_close(ours.graph.x, plain.graph.x, atol=10 * close, rtol=10 * close)
    torch.testing.assert_close(ours.logits, plain.logits, atol=100 * close, rtol=100 * close)
    assert not torch.equal(ours.graph.x, ours.data.x)  # something happened at all


# ---------------------------------------------------------------- auto equals eager


@devices
@pytest.mark.parametrize("edges", [True, False])
def test_shared_features_are_the_plain_ones(edges: bool, device: str) -> None:
    shared, plain = (Run(Agreement(), mode, device, edges=edges)() for mode in ("auto", "eager"))
    assert shared.report.shared_features and not plain.report.shared_features
    assert_same(shared, plain)


def test_the_plain_way_is_torchs_own_optimizer() -> None:
    """Without anything of the engine: Adam on the gradient of the loss."""
    run = Run(Agreement(), "auto", edges=False)()
    data, model, generator = run.data, run.model, rng(5)
    x = data.x.clone().requires_grad_()
    optimizer, losses = torch.optim.Adam([x], lr=run.lr), []
    for _ in range(10):
        graph = Data(x=x, edge_index=data.edge_index, edge_weight=torch.ones(data.num_edges))
        loss = torch.stack(list(Agreement().terms(model, graph, generator).values())).sum()
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert [step.loss for step in run.history] == pytest.approx(losses, abs=1e-6)
    torch.testing.assert_close(run.graph.x, x.detach(), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    "limits",
    [Limits(minimum=-0.5, maximum=0.5), Limits(frozen_nodes=torch.arange(N) < 3)],
    ids=["a range", "frozen nodes"],
)
def test_products_follow_features_that_are_brought_back_into_their_limits(limits: Limits) -> None:
    shared, plain = (Run(Agreement(), mode, limits=limits)() for mode in ("auto", "eager"))
    assert shared.report.shared_features
    assert_same(shared, plain)


def test_products_follow_features_that_somebody_else_has_changed() -> None:
    losses = []
    for mode in ("auto", "eager"):
        run = Run(Agreement(), mode)
        with run.engine() as engine:
            engine.descend(run.steps["feature"])
            run.graph.x.round_()
            engine.features_changed()
            losses.append(engine.descend(run.steps["feature"]).values.tolist())
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


@devices
@pytest.mark.parametrize("surrogate", [Smoothness(), SmoothnessIfAny()], ids=lambda s: type(s).__name__)
def test_a_loss_that_differentiates_by_the_features_itself(surrogate: Any, device: str) -> None:
    ours, plain = (Run(surrogate, mode, device, edges=False)() for mode in ("auto", "eager"))
    assert not ours.report.shared_features and ours.report.reasons["shared_features"] == ours.abilities.why_not_shared
    assert_same(ours, plain)


@devices
@pytest.mark.parametrize("surrogate", [ClampsFirst(), ScalesAfterwards()], ids=lambda s: type(s).__name__)
def test_a_loss_that_writes_into_the_features(surrogate: Any, device: str) -> None:
    ours, plain = (Run(surrogate, mode, device, lr=0.5)() for mode in ("auto", "eager"))
    assert "writes into the features" in ours.report.reasons["shared_features"]
    assert_same(ours, plain)


class NewWeights(Tiny):
    """Makes its weights at every call, as spectral or weight normalisation does."""

    def embed(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        z = super().embed(x, edge_index, edge_weight)
        return z + 0.1 * (x @ (self.first.weight * 2.0).t()).sin()


def test_weights_that_are_made_at_every_call() -> None:
    runs = []
    for mode in ("auto", "eager"):
        run = Run(Agreement(), mode)
        run.model = NewWeights()
        runs.append(run())
    assert runs[0].report.shared_features
    assert_same(*runs)


# ---------------------------------------------------------------- scoring


@devices
@pytest.mark.parametrize("mode", ["auto", "eager"])
def test_scoring_changes_nothing(mode: str, device: str) -> None:
    run = Run(Agreement(), mode, device)
    with run.engine() as engine:
        engine.descend(run.steps["feature"])
        engine.descend(run.steps["edge"])
        p, x = run.graph.p, run.graph.x
        assert p is not None
        before = p.clone(), x.clone(), p.data_ptr(), x.data_ptr()
        some = torch.arange(p.numel(), device=device) % 2 == 0
        first, none, again = (float(engine.loss(flips)) for flips in (some, ~some & some, some))
        assert first == pytest.approx(again, rel=1e-6) != none  # the same views for all
        assert torch.equal(run.graph.p, before[0]) and torch.equal(run.graph.x, before[1])
        assert (p.data_ptr(), x.data_ptr()) == before[2:] and not p.requires_grad and not x.requires_grad


@pytest.mark.parametrize("mode", ["auto", "eager"])
def test_the_score_is_the_loss_of_the_discrete_graph(mode: str) -> None:
    run = Run(Agreement(), mode)
    flips = torch.arange(run.graph.p.numel()) % 3 == 0
    with run.engine() as engine:
        engine.descend(run.steps["feature"])
        score = engine.loss(flips)
        logits = engine.predict(flips)
    graph = run.graph.as_data(run.graph.x, run.graph.presence(flips))
    expected = torch.stack(list(Agreement().terms(run.model, graph, rng(7)).values())).sum()
    assert float(score) == pytest.approx(float(expected), abs=1e-6)
    removed, added = run.graph.changes(flips)
    keep = torch.ones(run.data.num_edges, dtype=torch.bool)
    keep[removed] = False
    assert added.size(1) == 0 and removed.numel() > 0
    torch.testing.assert_close(logits, run.model(run.graph.x, run.data.edge_index[:, keep]))


def test_where_edges_stay_there_is_a_prediction_all_the_same() -> None:
    run = Run(Agreement(), edges=False)()
    assert run.candidates == []
    torch.testing.assert_close(run.logits, run.model(run.graph.x, run.data.edge_index))


# ---------------------------------------------------------------- steps


def test_a_step_measures_the_loss_before_it() -> None:
    run = Run(Agreement())
    with run.engine() as engine:
        measured = engine.descend(run.steps["edge"])
    assert measured.terms == ("near", "far")
    graph = run.graph.as_data(run.data.x, torch.ones(run.data.num_edges))
    terms = Agreement().terms(run.model, graph, rng(5))
    near, far, norm, flipped = measured.values.tolist()
    assert (near, far) == pytest.approx((float(terms["near"]), float(terms["far"])), abs=1e-6)
    assert norm > 0 and flipped == pytest.approx(float(run.graph.p.sum())) and flipped > 0


def test_variables_want_no_gradient_between_steps() -> None:
    run = Run(Agreement())
    with run.engine() as engine:
        engine.descend(run.steps["feature"])
        assert not run.graph.x.requires_grad and not run.graph.p.requires_grad
        run.surrogate = engine.surrogate = OfEmbedding(lambda z, data: 1 / 0)
        with pytest.raises(Stopped):
            engine.descend(run.steps["edge"])
        assert not run.graph.x.requires_grad and not run.graph.p.requires_grad


def test_where_no_edge_may_change_an_edge_step_is_a_step_of_nothing() -> None:
    data = tiny_graph()
    flips = EdgeFlips.of(data.edge_index, N, budget=4, frozen=torch.ones(data.num_edges, dtype=torch.bool))
    graph = RelaxedGraph(data, flips)
    with Engine(Tiny(), Agreement(), graph, generator=rng()) as engine:
        measured = engine.descend(EdgeStep(flips.p, Adam(flips.p, 0.1), lambda p: p))
    assert measured.values[-2:].tolist() == [0.0, 0.0] and torch.equal(graph.x, data.x)


def refused(z: Tensor, data: Data) -> Tensor:
    raise GraphMendError("this graph has no labels")


STOPS: dict[str, tuple[Any, str, type[Exception], str]] = {
    "an error": (lambda z, data: 1 / 0, "feature", Stopped, "the surrogate failed with ZeroDivisionError"),
    "no scalar": (lambda z, data: z, "feature", Stopped, "the surrogate failed with RuntimeError"),
    "no number": (lambda z, data: "loss", "feature", Stopped, "the surrogate failed with"),
    "our own error": (refused, "feature", GraphMendError, "no labels"),
    "no features": (
        lambda z, data: z.detach().sum(),
        "feature",
        Stopped,
        "does not depend on the graph's features; set feature_steps=0",
    ),
    "no edges": (
        lambda z, data: data.x.detach().sum(),
        "edge",
        Stopped,
        "does not depend on the graph's edges; set edge_steps=0",
    ),
    "a plain number": (lambda z, data: 3.0, "feature", Stopped, "does not depend on the graph's features"),
    "no gradient": (
        lambda z, data: Undifferentiable.apply(z).sum(),
        "feature",
        Stopped,
        "the surrogate has no gradient: NotImplementedError",
    ),
}


class Undifferentiable(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, z: Tensor) -> Tensor:
        return z.clone()


@pytest.mark.parametrize("mode", ["auto", "eager"])
@pytest.mark.parametrize(("function", "kind", "error", "message"), STOPS.values(), ids=STOPS)
def test_why_it_stops(function: Any, kind: str, error: type[Exception], message: str, mode: str) -> None:
    run = Run(OfEmbedding(function), mode, abilities=Abilities(is_sharing_tried=True))
    with run.engine() as engine, pytest.raises(error, match=message):
        engine.descend(run.steps[kind])


class NoTerms:
    def terms(self, model: Tiny, data: Data, generator: torch.Generator | None = None) -> dict[str, Tensor]:
        return {}


def test_a_surrogate_has_terms() -> None:
    run = Run(NoTerms(), abilities=Abilities())
    with run.engine() as engine, pytest.raises(GraphMendError, match="no terms; return at least one"):
        engine.descend(run.steps["feature"])


def test_terms_may_be_plain_numbers_and_tensors_of_one_number() -> None:
    class Mixed(Agreement):
        def terms(self, model: Tiny, data: Data, generator: torch.Generator | None = None) -> dict[str, Any]:
            terms = super().terms(model, data, generator)
            return {"near": terms["near"].view(1, 1), "constant": 0.5}

    shared, plain = (Run(Mixed(), mode)() for mode in ("auto", "eager"))
    assert shared.report.shared_features and shared.history[0].terms["constant"] == 0.5
    assert_same(shared, plain)


@devices
@pytest.mark.parametrize("mode", ["auto", "eager"])
def test_what_is_not_finite_stops_the_history(mode: str, device: str) -> None:
    def explodes(z: Tensor, data: Data) -> Tensor:
        return data.x.square().sum().mul(1e30).square() + z.mean()

    with pytest.raises(Stopped, match=r"the surrogate loss is not finite .* at step 0"):
        Run(OfEmbedding(explodes), mode, device)()

    def steep(z: Tensor, data: Data) -> Tensor:
        return (data.x - data.x.detach()).sum().sqrt() + z.mean()

    with pytest.raises(Stopped, match="the gradient is not finite at step 0"):
        Run(OfEmbedding(steep), mode, device)()


def test_every_discrete_graph_may_have_a_loss_that_is_not_finite() -> None:
    def finite_while_learning(z: Tensor, data: Data) -> Tensor:
        return z.mean() if torch.is_grad_enabled() else z.mean() * math.nan

    with pytest.raises(Stopped, match="every discrete graph"):
        Run(OfEmbedding(finite_while_learning))()


# ---------------------------------------------------------------- the report


def test_the_report_says_how_it_was_computed_and_why_not_faster() -> None:
    shared = Run(Agreement())()
    assert shared.report == Report(shared_features=True, stacked_views=False, recorded=False, reasons={})
    eager = Run(Agreement(), "eager")()
    assert eager.report == Report(reasons={"shared_features": "mode is 'eager'"})
    known = Run(Agreement(), abilities=Abilities(is_sharing_tried=True, why_not_shared="for a reason"))()
    assert known.report.reasons == {"shared_features": "for a reason"}
    untried = Run(Agreement(), abilities=Abilities())()
    assert untried.report.reasons == {"shared_features": "it has not been tried"}
    assert_same(known, shared)
    assert_same(untried, shared)


def test_sharing_that_nobody_makes_use_of_is_not_reported() -> None:
    class NoMaps(Tiny):
        def embed(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
            return x.tanh() * (1.0 if edge_weight is None else edge_weight.mean())

    run = Run(Agreement())
    run.model = NoMaps()
    with run.engine() as engine:
        engine.descend(run.steps["feature"])
        assert not engine.report().shared_features


def test_on_a_cpu_nothing_is_recorded() -> None:
    run = Run(Agreement())
    with run.engine() as engine:
        for _ in range(4):
            engine.descend(run.steps["feature"])
            assert not engine.is_recording
    assert not engine.report().recorded and run.abilities.why_not_recorded is None


def test_a_stacked_model_is_reported() -> None:
    class Stacks(Tiny):
        stacked_views = True

    run = Run(Agreement())
    run.model = Stacks()
    assert run().report.stacked_views


def test_features_of_the_caller_stay() -> None:
    run = Run(Agreement())
    before = run.data.clone()
    run()
    assert torch.equal(run.data.x, before.x) and torch.equal(run.data.edge_index, before.edge_index)
    assert run.graph.x.shape == (N, IN)
