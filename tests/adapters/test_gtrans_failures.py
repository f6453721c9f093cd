"""GTrans: a failure ends in the unchanged graph with the reason, a problem with the input in an error."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data

from graphmend import FrozenGNN, GraphMendError, GTrans, Identity
from graphmend.lab.backbones import GCN
from graphmend.lab.data import embedded
from graphmend.lab.training import ERM
from graphmend.model.comparing import is_close
from graphmend.results.history import Step
from graphmend.surrogates import Backbone, Contrastive, Supervised, Surrogate, surrogate_of
from support.adapter_cases import (
    IN,
    OUT,
    N,
    TwoLayer,
    failing,
    loss_of_logits,
    make_graph,
    make_model,
    sage_with_batch_norm,
)
from support.untouched import Boom, assert_same, state_of


@pytest.mark.parametrize("end", ["success", "surrogate", "scoring", "interrupt", "callback", "callback interrupt"])
def test_model_graph_and_generators_are_untouched(end: str) -> None:
    mode = "eager" if end in ("surrogate", "scoring") else "auto"
    model, data = make_model(make=sage_with_batch_norm), make_graph()
    model.train()
    model.convs[0].eval()
    next(model.parameters()).requires_grad_(False)
    before = state_of(model, data)

    def stop(step: Step) -> None:
        if step.index == 6:
            raise Boom if end == "callback" else KeyboardInterrupt

    surrogate: Any = Contrastive()
    if end == "surrogate":
        surrogate = failing(Boom("no idea"), 3)
    elif end == "scoring":
        surrogate = failing(Boom("no idea"), 11)
    elif end == "interrupt":
        surrogate = failing(KeyboardInterrupt(), 5)
    adapter = GTrans(surrogate, steps=10, lr_feature=0.1, lr_edge=0.5, budget=4)
    if end in ("interrupt", "callback", "callback interrupt"):
        with pytest.raises(Boom if end == "callback" else KeyboardInterrupt):
            adapter(model, data, callback=stop if "callback" in end else None, mode=mode)
    else:
        result = adapter(model, data, mode=mode)
        assert (result.reason is None) is (end == "success")
        if end != "success":
            assert result.reason is not None and "Boom: no idea" in result.reason
            assert len(result.history) == (3 if end == "surrogate" else 10)
            assert len(result.candidates) == (0 if end == "surrogate" else 1)
            assert torch.equal(result.data.x, data.x) and torch.equal(result.data.edge_index, data.edge_index)
            assert torch.equal(result.logits, Identity()(model, data).logits)
            assert torch.equal(result.patch.apply(data).x, data.x)
    assert_same(before, state_of(model, data))


class Spiked(torch.autograd.Function):
    """A finite value with a gradient that is not."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.sum()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # type: ignore[override]
        return torch.full((N, IN), math.inf, dtype=torch.float64)


def in_place(model: Backbone, data: Data) -> Tensor:
    z = model(data.x, data.edge_index, data.get("edge_weight")).exp()
    loss = z.square().sum()
    z.mul_(2.0)
    return loss


class _Vector(Surrogate):
    def terms(self, model: Backbone, data: Data, generator: torch.Generator | None = None) -> dict[str, Tensor]:
        return {"rows": model(data.x, data.edge_index, data.get("edge_weight")).square().mean(1)}


REASONS: dict[str, tuple[Any, str]] = {
    "infinite loss": (lambda m, d: loss_of_logits(m, d) / 0.0, "loss is not finite"),
    "infinite gradient": (lambda m, d: Spiked.apply(d.x), "gradient is not finite at step 0"),
    "raises": (failing(RuntimeError("out of cheese"), 0), "failed with RuntimeError: out of cheese"),
    "not a scalar": (_Vector(), "failed with RuntimeError"),
    "no backward": (in_place, "no gradient: RuntimeError"),
    "detached": (lambda m, d: m(d.x, d.edge_index).detach().mean(), "does not depend on the graph's features"),
}


@pytest.mark.parametrize("surrogate, reason", REASONS.values(), ids=REASONS.keys())
@pytest.mark.parametrize("edge_steps", [0, 1])
def test_a_failing_surrogate_ends_in_the_identity(
    surrogate: Any, reason: str, edge_steps: int, caplog: pytest.LogCaptureFixture
) -> None:
    model, data = make_model(), make_graph()
    result = GTrans(surrogate, steps=5, edge_steps=edge_steps)(model, data)
    assert result.reason is not None and reason in result.reason
    assert "the graph is left as it was" in caplog.text
    assert torch.equal(result.data.x, data.x) and torch.equal(result.data.edge_index, data.edge_index)
    with torch.no_grad():
        assert is_close(result.logits, model(data.x, data.edge_index))
    assert result.summary()["reason"] == result.reason


def test_a_loss_that_does_not_know_the_edges_says_so() -> None:
    result = GTrans(lambda m, d: d.x.square().sum(), steps=5)(make_model(), make_graph())
    assert result.reason is not None and "does not depend on the graph's edges; set edge_steps=0" in result.reason
    assert [step.kind for step in result.history] == ["feature"] * 4


def test_the_history_up_to_a_failure_is_kept() -> None:
    result = GTrans(failing(ValueError("late"), 7), steps=10)(make_model(), make_graph(), mode="eager")
    assert result.reason is not None and [s.kind for s in result.history] == [
        *["feature"] * 4,
        "edge",
        *["feature"] * 2,
    ]


def test_features_that_run_away_end_in_the_identity() -> None:
    """The last step is followed by no further loss that could notice."""
    model, data = make_model(torch.float32), make_graph(torch.float32)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(10.0)

    def of_logits(m: Backbone, d: Data) -> Tensor:
        return 1e-6 * loss_of_logits(m, d)

    def of_features(m: Backbone, d: Data) -> Tensor:
        return d.x.clamp(min=-9.0).mean()

    for loss, lr, said in (
        (of_logits, 1e39, "the mended features are not finite; take a smaller lr_feature"),
        (of_logits, 3e36, "the surrogate loss of the mended graph is not finite; take a smaller lr_feature"),
        (of_features, 3e37, "output on the mended graph is not finite; take a smaller lr_feature"),
    ):
        result = GTrans(loss, steps=1, edge_steps=0, lr_feature=lr)(model, data)
        assert result.reason is not None and said in result.reason and len(result.history) == 1
        assert torch.equal(result.data.x, data.x) and result.logits.isfinite().all()
    result = GTrans(steps=1, lr_feature=3e36)(model, data)
    assert result.reason is not None and torch.equal(result.data.x, data.x)


WORSE: dict[str, dict[str, Any]] = {
    "features and edges": {},
    "features": {"edge_steps": 0},
    "one step": {"steps": 1},
    "one step of the features": {"steps": 1, "edge_steps": 0},
    "sampled pairs": {"space": "random_block", "block_size": 20},
}


@pytest.mark.parametrize("mode", ["auto", "eager"])
@pytest.mark.parametrize("case", WORSE)
def test_a_graph_that_is_worse_by_its_own_loss_is_not_returned(case: str, mode: str) -> None:
    model, data = make_model(), make_graph()
    for surrogate in (loss_of_logits, Contrastive() + 0.1 * surrogate_of(loss_of_logits)):
        result = GTrans(surrogate, lr_feature=1e6, **WORSE[case])(model, data, mode=mode)
        assert result.reason is not None, surrogate
        said = r"worse by the surrogate loss itself, \S+ instead of \S+; take a smaller lr_feature"
        assert re.search(said, result.reason), result.reason
        assert torch.equal(result.data.x, data.x) and result.patch.num_removed == 0
        assert torch.equal(result.logits, Identity()(model, data).logits)
    paper = GTrans(loss_of_logits, lr_feature=1e6, candidates="paper", **WORSE[case])(model, data, mode=mode)
    assert paper.reason is None and not torch.equal(paper.data.x, data.x), "the paper returns it all the same"
    assert "identity" not in {candidate.name for candidate in paper.candidates if paper.patch.num_removed}


def test_a_step_far_too_large_leaves_a_trained_model_as_good_as_it_was() -> None:
    splits = embedded("wine")
    data = splits.test[0]
    torch.manual_seed(0)
    model = ERM(epochs=20)(GCN(13, 16, 3, batch_norm=True), splits)
    plain = Identity()(model, data).logits
    for lr in (1e30, 100.0):
        result = GTrans(lr_feature=lr)(model, data)
        assert result.reason is not None and "worse by the surrogate loss itself" in result.reason
        assert torch.equal(result.logits, plain)
    assert GTrans()(model, data).reason is None


@pytest.mark.parametrize("seed", range(5))
def test_a_graph_that_is_returned_is_no_worse_under_the_same_views(seed: int) -> None:
    """The losses of the steps, each under views of its own, may well rise."""
    model, data = make_model(), make_graph()
    result = GTrans(steps=4, lr_feature=0.3, edge_steps=0)(model, data, seed=seed)

    def loss(graph: Data) -> float:
        with FrozenGNN(model, data, seed=seed) as frozen:
            weighted = Data(x=graph.x, edge_index=graph.edge_index, edge_weight=torch.ones(graph.edge_index.size(1)))
            return float(Contrastive()(frozen, weighted, torch.Generator().manual_seed(seed)))

    rises = result.history[-1].loss > result.history[0].loss
    if result.reason is None and rises:
        assert loss(result.data) <= loss(data)
    elif result.reason is not None:
        assert rises


class SpikedEdges(torch.autograd.Function):
    """The same for the weights of edges."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor) -> Tensor:
        ctx.like = weight
        return weight.sum() * 0.0

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # type: ignore[override]
        return torch.full_like(ctx.like, math.nan)


def spiked_at_edges(model: Backbone, data: Data) -> Tensor:
    return loss_of_logits(model, data) + SpikedEdges.apply(data.edge_weight)  # type: ignore[no-any-return]


def test_without_a_finite_gradient_for_the_edges_the_features_are_mended(caplog: pytest.LogCaptureFixture) -> None:
    model, data, steps = make_model(), make_graph(), []
    result = GTrans(spiked_at_edges, steps=10, lr_feature=0.01)(model, data, callback=steps.append)
    expected = GTrans(spiked_at_edges, steps=10, lr_feature=0.01, edge_steps=0)(model, data)
    assert result.reason is None and torch.equal(result.data.x, expected.data.x)
    assert torch.equal(result.logits, expected.logits) and result.patch.num_removed == 0
    said = "for the edges the gradient is not finite at step 4"
    assert (
        result.engine.reasons["edges"] == f"features only: {said}" and f"mending features only: {said}" in caplog.text
    )
    assert result.history == steps and [step.index for step in steps] == list(range(14))
    only = GTrans(spiked_at_edges, feature_steps=0)(model, data)
    assert only.reason == "the gradient is not finite at step 0" and only.patch.num_rows == 0


def test_a_model_that_masks_classes_out_is_not_mistaken_for_a_broken_one() -> None:
    class Masking(TwoLayer):
        def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Any:
            out = super().forward(x, edge_index, edge_weight)
            return out.masked_fill(torch.arange(OUT) == 1, -math.inf)

    result = GTrans(steps=5, edge_steps=0)(make_model(make=Masking), make_graph())
    assert result.reason is None and result.patch.num_rows == N


def test_discrete_graphs_that_cannot_be_scored_end_in_the_identity() -> None:
    def surrogate(model: Backbone, data: Data) -> Tensor:
        loss = loss_of_logits(model, data)
        return loss if torch.is_grad_enabled() else loss - math.inf

    result = GTrans(surrogate, steps=5, lr_edge=0.5, budget=3)(make_model(), make_graph())
    assert result.reason == "the surrogate loss of every discrete graph is not finite"
    assert len(result.candidates) == 7 and len(result.history) == 5


def test_a_problem_with_the_input_is_an_error_not_a_reason() -> None:
    data = make_graph()
    del data.y
    with pytest.raises(GraphMendError, match="has no y"):
        GTrans(Supervised(torch.ones(N, dtype=torch.bool)))(make_model(), data, task="classes")
    with pytest.raises(GraphMendError, match="no terms"):
        GTrans(_NoTerms())(make_model(), data)
    for value, got in ((1.0, "got 1.0"), (None, "got None"), (torch.ones(3), r"got shape \(3,\)")):
        with pytest.raises(GraphMendError, match=f"must return a tensor with one number .{got}"):
            GTrans(lambda m, d, value=value: value)(make_model(), data)


class _NoTerms(Surrogate):
    def terms(self, model: Backbone, data: Data, generator: torch.Generator | None = None) -> dict[str, Tensor]:
        return {}


def test_too_little_memory_is_said_beforehand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphmend.engine.memory.available_memory", lambda device: 2**10)
    calls: list[Step] = []
    with pytest.raises(
        GraphMendError,
        match=rf"{N} nodes x {IN} features and \d+ edges needs about 0.0 GiB, but 0.0 GiB are free on cpu; use",
    ):
        GTrans()(make_model(), make_graph(), callback=calls.append)
    assert calls == []


def test_an_unknown_embedding_is_said_even_where_it_is_not_needed() -> None:
    for surrogate in (Contrastive(), Supervised(torch.ones(N, dtype=torch.bool))):
        with pytest.raises(GraphMendError, match=r"no module 'c'; its modules are a, a.aggr_module, a.lin, b"):
            GTrans(surrogate, embedding="c")(make_model(), make_graph())
