"""Replayed steps on a GPU do what the steps themselves would have done."""

from __future__ import annotations

import pytest
import torch
from torch_geometric.data import Data

from graphmend import GTrans, Limits
from graphmend.nn import GAT, GCN, GPR, SAGE
from graphmend.recording import Recorder
from graphs import rng, undirected

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")


def test_without_recording_functions_are_called() -> None:
    calls: list[int] = []
    record = Recorder(torch.nn.Identity(), [], (), enabled=False)
    assert [record("step", lambda: calls.append(0) or len(calls)) for _ in range(3)] == [1, 2, 3]


@needs_cuda
@pytest.mark.parametrize("backbone", [GCN, SAGE, GPR, GAT])
@pytest.mark.parametrize("edge_steps", [0, 1, 3])
@pytest.mark.parametrize("edge_update", ["adam", "sign"])
def test_recorded_adaptations_are_the_same(backbone: type, edge_steps: int, edge_update: str) -> None:
    torch.manual_seed(0)
    data = Data(x=torch.randn(40, 6, generator=rng()), edge_index=undirected(40)).to("cuda")
    model = backbone(6, 8, 3, num_layers=3).to("cuda").eval()
    adapter = GTrans(steps=10, feature_steps=2, edge_steps=edge_steps, lr_feature=0.01, edge_update=edge_update)
    plain = adapter(model, data.clone(), seed=3, limits=Limits(minimum=-1e9))  # what has limits is not recorded
    runs = [adapter(model, data.clone(), seed=3) for _ in range(3)]  # the first warms up, the third records at once
    for run in runs:
        assert run.reason is None
        for ours, expected in zip(run.history, plain.history, strict=True):
            assert ours.kind == expected.kind
            assert ours.loss == pytest.approx(expected.loss, abs=1e-5)
            assert ours.flipped == pytest.approx(expected.flipped, abs=1e-4)
            assert ours.gradient_norm == pytest.approx(expected.gradient_norm, rel=1e-3)
        for mine, theirs in zip(run.candidates, plain.candidates, strict=True):
            assert (mine.name, mine.flips) == (theirs.name, theirs.flips)
            assert mine.loss == pytest.approx(theirs.loss, abs=1e-5)
        torch.testing.assert_close(run.data.x, plain.data.x, atol=1e-4, rtol=1e-3)
        torch.testing.assert_close(run.logits, plain.logits, atol=1e-3, rtol=1e-3)
    assert not torch.equal(runs[0].data.x, data.x)


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
def test_memory_is_kept_with_the_model_and_not_shared_by_two_at_a_time() -> None:
    model, x = torch.nn.Identity(), torch.arange(5.0, device="cuda")
    first, second = (Recorder(model, [], ("memory", k), enabled=True) for k in range(2))
    for _ in range(3):
        doubled, halved = first("step", lambda: 2 * x), second("step", lambda: x / 2)
        torch.testing.assert_close(doubled, 2 * torch.arange(5.0, device="cuda"))
        torch.testing.assert_close(halved, torch.arange(5.0, device="cuda") / 2)
    place = doubled.data_ptr()
    assert place != halved.data_ptr()
    first.forget()
    second.forget()
    del doubled, halved
    again = Recorder(model, [], ("memory", 0), enabled=True)
    assert again("step", lambda: 2 * x).data_ptr() == place
    again.forget()
