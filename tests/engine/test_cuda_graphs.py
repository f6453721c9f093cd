"""Replayed steps on a GPU do what the steps themselves would have done."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch_geometric.data import Data

from graphmend import GTrans, Limits
from graphmend.adapters.algorithm import Run
from graphmend.engine.cuda_graphs import Recorder
from graphmend.nn import GAT, GCN, GPR, SAGE
from graphmend.results.history import Step, Steps, Stopped
from graphs import directed, rng, undirected

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")


def test_without_recording_functions_are_called() -> None:
    calls: list[int] = []
    record = Recorder(torch.nn.Identity(), [], (), enabled=False)
    assert [record("step", lambda: calls.append(0) or len(calls)) for _ in range(3)] == [1, 2, 3]


def assert_recorded_as_called(adapter: GTrans, model: torch.nn.Module, data: Data) -> None:
    """What has limits is not recorded; of three runs the first warms up, the third records at once."""
    plain = adapter(model, data.clone(), seed=3, limits=Limits(minimum=-1e9))
    runs = [adapter(model, data.clone(), seed=3) for _ in range(3)]
    seen: list[Step] = []
    runs.append(adapter(model, data.clone(), seed=3, callback=seen.append))  # every step is waited for
    assert seen == runs[-1].history
    for run in runs:
        assert run.reason is None
        for ours, expected in zip(run.history, plain.history, strict=True):
            assert ours.kind == expected.kind
            assert ours.loss == pytest.approx(expected.loss, abs=1e-5)
            assert ours.flipped == pytest.approx(expected.flipped, abs=1e-4)
            assert ours.gradient_norm == pytest.approx(expected.gradient_norm, rel=1e-3, abs=1e-6)
        for mine, theirs in zip(run.candidates, plain.candidates, strict=True):
            assert (mine.name, mine.flips) == (theirs.name, theirs.flips)
            assert mine.loss == pytest.approx(theirs.loss, abs=1e-5)
        torch.testing.assert_close(run.data.x, plain.data.x, atol=1e-4, rtol=1e-3)
        torch.testing.assert_close(run.logits, plain.logits, atol=1e-3, rtol=1e-3)


def graph(edge_index: torch.Tensor) -> Data:
    return Data(x=torch.randn(40, 6, generator=rng()), edge_index=edge_index).to("cuda")


@needs_cuda
@pytest.mark.parametrize("backbone", [GCN, SAGE, GPR, GAT])
@pytest.mark.parametrize("edge_steps", [0, 1, 3])
@pytest.mark.parametrize("edge_update", ["adam", "sign"])
def test_recorded_adaptations_are_the_same(backbone: type, edge_steps: int, edge_update: str) -> None:
    torch.manual_seed(0)
    model = backbone(6, 8, 3, num_layers=3).to("cuda").eval()
    adapter = GTrans(steps=10, feature_steps=2, edge_steps=edge_steps, lr_feature=0.01, edge_update=edge_update)
    assert_recorded_as_called(adapter, model, graph(undirected(40)))


SETTINGS: dict[str, dict[str, Any]] = {
    "no budget": {"budget": 0},
    "all edges": {"budget": 1.0},
    "new edges": {"space": "random_block", "block_size": 30},
    "plain gradient": {"edge_update": "gradient", "lr_edge": 50.0},
    "edges only": {"feature_steps": 0},
    "one step": {"steps": 1},
}


@needs_cuda
@pytest.mark.parametrize("edges", ["undirected", "directed", "loops only"])
@pytest.mark.parametrize("settings", SETTINGS)
def test_recorded_adaptations_of_all_kinds(settings: str, edges: str) -> None:
    torch.manual_seed(0)
    loops = torch.arange(40).repeat(2, 1)
    data = graph({"undirected": undirected(40), "directed": directed(40), "loops only": loops}[edges])
    model = GCN(6, 8, 3, num_layers=3).to("cuda").eval()
    adapter = GTrans(**{"steps": 8, "feature_steps": 2, "edge_steps": 2, "lr_feature": 0.01, **SETTINGS[settings]})
    assert_recorded_as_called(adapter, model, data)


@needs_cuda
@pytest.mark.parametrize("watched", [False, True])
def test_what_is_not_finite_is_noticed_when_the_numbers_are_read(watched: bool) -> None:
    torch.manual_seed(0)
    model, data = GCN(6, 8, 3).to("cuda").eval(), graph(undirected(40))
    for _ in range(2):
        callback = (lambda step: None) if watched else None
        found = GTrans(steps=6, lr_feature=1e38)(model, data.clone(), callback=callback)
        assert found.reason is not None and "not finite" in found.reason
        assert len(found.history) < 6 and torch.equal(found.data.x, data.x)


@needs_cuda
@pytest.mark.parametrize("watched", [False, True])
def test_numbers_are_read_together_unless_somebody_watches(watched: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[int] = []
    read = Steps.read

    def counted(steps: Steps) -> list[Step]:
        reads.append(len(steps._taken))
        return read(steps)

    monkeypatch.setattr(Steps, "read", counted)
    model, data = GCN(6, 8, 3).to("cuda").eval(), graph(undirected(40))
    found = GTrans(steps=60)(model, data, callback=(lambda step: None) if watched else None)
    assert [step.index for step in found.history] == list(range(60))
    assert [number for number in reads if number] == ([1] * 60 if watched else [50, 10])


@needs_cuda
def test_steps_before_one_that_fails_are_in_the_history(monkeypatch: pytest.MonkeyPatch) -> None:
    model, data = GCN(6, 8, 3).to("cuda").eval(), graph(undirected(40))
    step, calls = Run._feature_step, itertools.count()

    def failing(run: Run, update: Any) -> Any:
        if next(calls) == 3:
            raise Stopped("enough")
        return step(run, update)

    monkeypatch.setattr(Run, "_feature_step", failing)
    found = GTrans(steps=10)(model, data)
    assert found.reason == "enough" and len(found.history) == 3


@needs_cuda
def test_a_recording_that_fails_is_not_the_end() -> None:
    model, x = torch.nn.Identity(), torch.ones(3, device="cuda")

    def failing() -> torch.Tensor:
        raise ValueError("no")

    first = Recorder(model, [], ("failing",), enabled=True)
    for _ in range(2):
        with pytest.raises(ValueError, match="no"):
            first("step", failing)
    assert torch.equal(first("step", lambda: 2 * x), 2 * x)  # called from now on
    first.forget()
    second = Recorder(model, [], ("works",), enabled=True)
    assert all(torch.equal(second("step", lambda: 2 * x), 2 * x) for _ in range(3))
    second.forget()


@needs_cuda
@pytest.mark.parametrize("case", ["embedding", "float64", "wide heads", "hooks"])
def test_what_is_not_recorded_works_all_the_same(case: str) -> None:
    torch.manual_seed(0)
    dtype = torch.float64 if case == "float64" else torch.float32
    data = Data(x=torch.randn(40, 6, generator=rng()).to(dtype), edge_index=undirected(40)).to("cuda")
    model = GAT(6, 300 if case == "wide heads" else 8, 3, num_layers=3, heads=2).to("cuda", dtype).eval()
    seen: list[int] = []
    if case == "hooks":
        model.convs[0].register_forward_hook(lambda *_: seen.append(1))
    adapter = GTrans(steps=10, embedding="convs.1" if case == "embedding" else None)
    for _ in range(2):
        seen.clear()
        run = adapter(model, data.clone())
        assert run.reason is None and len(run.history) == 10
    assert len(seen) >= 30 or case != "hooks"


@needs_cuda
def test_every_replay_draws_anew() -> None:
    generator = torch.Generator(device="cuda").manual_seed(0)
    x = torch.zeros(5, device="cuda")

    def step() -> torch.Tensor:
        return x.add_(torch.rand(5, generator=generator, device="cuda")).clone()

    record = Recorder(torch.nn.Identity(), [generator], ("test",), enabled=True)
    seen = [record("step", step).clone() for _ in range(4)]
    again = torch.Generator(device="cuda").manual_seed(0)
    expected = torch.zeros(5, device="cuda")
    for found in seen:
        expected += torch.rand(5, generator=again, device="cuda")
        torch.testing.assert_close(found, expected)


@needs_cuda
def test_one_at_a_time_and_memory_stays_with_the_model() -> None:
    model, x = torch.nn.Identity(), torch.arange(5.0, device="cuda")
    first, second = (Recorder(model, [], ("memory", k), enabled=True) for k in range(2))
    calls: list[int] = []
    for _ in range(4):
        doubled = first("step", lambda: 2 * x)
        halved = second("step", lambda: calls.append(0) or x / 2)
        torch.testing.assert_close(doubled, 2 * torch.arange(5.0, device="cuda"))
        torch.testing.assert_close(halved, torch.arange(5.0, device="cuda") / 2)
    assert len(calls) == 4  # never recorded
    place = doubled.data_ptr()
    first.forget()
    second.forget()
    del doubled
    again = Recorder(model, [], ("memory", 0), enabled=True)
    assert again("step", lambda: 2 * x).data_ptr() == place
    again.forget()
