"""Replayed steps do what the steps themselves would have done; what cannot be recorded is called.

The rules of the recorder hold without a GPU, too: there, every attempt to record fails.
"""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor, nn
from torch_geometric.data import Data

from graphmend import GTrans, Limits
from graphmend.engine.cuda_graphs import Recorder
from graphmend.lab.backbones import BACKBONES, GAT, GCN, build
from graphmend.results.adaptation import Adaptation
from graphmend.results.history import Step
from graphmend.surrogates import Contrastive, Surrogate
from support.graphs import directed, rng, undirected
from support.sample_models import SEES_ALL_NODES

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
needs_no_cuda = pytest.mark.skipif(torch.cuda.is_available(), reason="here recording works")


# ---------------------------------------------------------------- the rules, on any machine


def recorder(*kernels: Any) -> Recorder:
    """One that has nothing to do with those of other tests."""
    return Recorder(nn.Identity(), [], (object(), *kernels))


class Counter:
    """A function that counts its calls."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self) -> int:
        self.calls += 1
        return self.calls


def test_the_first_call_of_a_function_is_a_plain_one() -> None:
    """It compiles kernels and sets libraries up, which cannot happen inside a recording."""
    record, step, loss = recorder(), Counter(), Counter()
    assert record("step", step) == 1 and record("loss", loss) == 1
    assert record.failure is None and not record.has_recordings
    with torch.no_grad():
        assert record("step", step) == 2  # without gradients other kernels run
    assert record.failure is None and not record.has_recordings


def test_an_error_of_the_function_itself_is_not_hidden() -> None:
    record = recorder()

    def failing() -> None:
        raise ValueError("no")

    for _ in range(3):
        with pytest.raises(ValueError, match="no"):
            record("step", failing)
    assert record.failure is not None and not record.has_recordings  # it was tried, and given up


def test_who_has_given_up_calls_functions_and_says_why() -> None:
    record, step = recorder(), Counter()
    record.give_up("for a reason")
    assert [record("step", step) for _ in range(4)] == [1, 2, 3, 4]
    assert record.failure == "for a reason" and not record.has_recordings


def test_giving_up_and_forgetting_again_is_allowed() -> None:
    record, step = recorder(), Counter()
    record.forget()
    record("step", step)
    record.forget()
    record.forget()
    assert record.failure is None
    record.give_up("first")
    record.give_up("second")
    record.forget()
    assert record.failure == "second" and record("step", step) == 2


@needs_no_cuda
def test_a_recording_that_fails_becomes_a_call() -> None:
    record, step = recorder(), Counter()
    assert [record("step", step) for _ in range(4)] == [1, 2, 3, 4]  # every call counts once, also the failed attempt
    assert record.failure is not None and ": " in record.failure and "\n" not in record.failure


@needs_no_cuda
def test_a_failed_recording_is_let_go_before_the_function_is_called() -> None:
    """An error that is being handled holds all tensors of the recording; a call that follows may need their memory."""
    record = recorder()
    handled = [record("step", lambda: sys.exc_info()[1]) for _ in range(3)]
    assert record.failure is not None and handled == [None, None, None]


@needs_no_cuda
def test_who_has_given_up_does_not_stand_in_the_way_of_others() -> None:
    model, kernels = nn.Identity(), (object(),)
    reasons = []
    for _ in range(2):
        record = Recorder(model, [], kernels)
        record("step", Counter())
        record("step", Counter())
        reasons.append(record.failure)  # not that somebody else is recording
    assert reasons[0] == reasons[1] is not None and "another thread" not in reasons[0]


@needs_no_cuda
def test_recorders_of_several_threads() -> None:
    failures: list[str | None] = []

    def work() -> None:
        record, step = recorder(), Counter()
        assert [record("step", step) for _ in range(20)] == list(range(1, 21))
        failures.append(record.failure)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(failures) == 4 and None not in failures


# ---------------------------------------------------------------- adaptations on a GPU


def graph(edge_index: Tensor | None = None) -> Data:
    edges = undirected(40) if edge_index is None else edge_index
    return Data(x=torch.randn(40, 6, generator=rng()), edge_index=edges).to("cuda")


def assert_recorded_as_called(adapter: GTrans, model: nn.Module, data: Data, limits: Limits | None = None) -> None:
    """Of three runs the first may only warm up, the third records at once; a callback waits for every step."""
    model = model.to("cuda").eval()
    plain = adapter(model, data.clone(), seed=3, limits=limits, mode="eager")
    runs = [adapter(model, data.clone(), seed=3, limits=limits) for _ in range(3)]
    seen: list[Step] = []
    runs.append(adapter(model, data.clone(), seed=3, limits=limits, callback=seen.append))
    assert seen == runs[-1].history
    assert not plain.engine.recorded and all(run.engine.recorded for run in runs[1:]), runs[-1].engine.reasons
    for run in runs:
        assert_same(run, plain)


def assert_same(run: Adaptation, plain: Adaptation) -> None:
    assert run.reason is None
    for ours, expected in zip(run.history, plain.history, strict=True):
        assert ours.kind == expected.kind
        assert ours.loss == pytest.approx(expected.loss, abs=1e-5)
        assert ours.flipped == pytest.approx(expected.flipped, rel=1e-3, abs=1e-4)
        assert ours.gradient_norm == pytest.approx(expected.gradient_norm, rel=1e-3, abs=1e-6)
    for mine, theirs in zip(run.candidates, plain.candidates, strict=True):
        assert (mine.name, mine.flips) == (theirs.name, theirs.flips)
        assert mine.loss == pytest.approx(theirs.loss, abs=1e-5)
    torch.testing.assert_close(run.data.x, plain.data.x, atol=1e-4, rtol=1e-3)
    torch.testing.assert_close(run.logits, plain.logits, atol=1e-3, rtol=1e-3)


@needs_cuda
@pytest.mark.parametrize("backbone", [name for name in BACKBONES if name not in SEES_ALL_NODES])
@pytest.mark.parametrize("edge_steps", [0, 1, 3])
@pytest.mark.parametrize("edge_update", ["adam", "sign"])
def test_recorded_adaptations_are_the_same(backbone: str, edge_steps: int, edge_update: str) -> None:
    torch.manual_seed(0)
    model = build(backbone, 6, 8, 3, num_layers=3)
    adapter = GTrans(steps=10, feature_steps=2, edge_steps=edge_steps, lr_feature=0.01, edge_update=edge_update)
    assert_recorded_as_called(adapter, model, graph())


@needs_cuda
@pytest.mark.parametrize("stock", [pyg.GCN, pyg.GraphSAGE, pyg.GAT, pyg.GIN], ids=lambda model: model.__name__)
def test_stock_models_are_recorded(stock: Any) -> None:
    torch.manual_seed(0)
    model = stock(6, 8, num_layers=2, out_channels=3)
    assert_recorded_as_called(GTrans(steps=10, feature_steps=2, lr_feature=0.01), model, graph())


SETTINGS: dict[str, dict[str, Any]] = {
    "no budget": {"budget": 0},
    "all edges": {"budget": 1.0},
    "new edges": {"space": "random_block", "block_size": 30, "lr_feature": 0.001},
    "plain gradient": {"edge_update": "gradient", "lr_edge": 50.0},
    "edges only": {"feature_steps": 0},
    "one step": {"steps": 1},
    "absolute steps": {"feature_scale": "absolute"},
}


@needs_cuda
@pytest.mark.parametrize("edges", ["undirected", "directed", "loops only"])
@pytest.mark.parametrize("settings", SETTINGS)
def test_recorded_adaptations_of_all_kinds(settings: str, edges: str) -> None:
    torch.manual_seed(0)
    loops = torch.arange(40).repeat(2, 1)
    data = graph({"undirected": undirected(40), "directed": directed(40), "loops only": loops}[edges])
    adapter = GTrans(**{"steps": 8, "feature_steps": 2, "edge_steps": 2, "lr_feature": 0.01, **SETTINGS[settings]})
    assert_recorded_as_called(adapter, GCN(6, 8, 3, num_layers=3), data)


@needs_cuda
@pytest.mark.parametrize("kinds", [("absolute", "relative"), ("relative", "absolute")], ids=str)
def test_another_kind_of_step_is_recorded_at_once_for_a_model_that_is_warm(kinds: tuple[str, str]) -> None:
    torch.manual_seed(0)
    model, data = GCN(6, 8, 3).to("cuda").eval(), graph()
    for kind in kinds:
        adapter = GTrans(steps=10, lr_feature=0.01, feature_scale=kind)
        plain = adapter(model, data.clone(), mode="eager")
        for _ in range(2):
            run = adapter(model, data.clone())
            assert_same(run, plain)
        assert run.engine.recorded, run.engine.reasons


@needs_cuda
def test_limits_are_recorded_too() -> None:
    torch.manual_seed(0)
    limits = Limits(minimum=-0.5, maximum=0.5, frozen_nodes=torch.arange(40) < 5)
    assert_recorded_as_called(GTrans(steps=10, lr_feature=0.1), GCN(6, 8, 3), graph(), limits)


@needs_cuda
def test_a_surrogate_nobody_has_seen_is_recorded() -> None:
    class Flat(Surrogate):
        def terms(self, model: Any, data: Data, generator: torch.Generator | None = None) -> dict[str, Tensor]:
            noise = torch.rand(data.x.size(0), 1, generator=generator, device=data.x.device)
            return {"flat": (noise * model(data.x, data.edge_index, data.edge_weight)).square().mean()}

    torch.manual_seed(0)
    assert_recorded_as_called(GTrans(Flat(), steps=10, lr_feature=0.01), GCN(6, 8, 3), graph())


# ---------------------------------------------------------------- what cannot be recorded


class Reads(GCN):
    """Reads a number from the device on its way."""

    def embed(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        z = super().embed(x, edge_index, edge_weight)
        return z * (1.0 if z.detach().sum().item() > -1e9 else 2.0)


@needs_cuda
def test_a_model_that_reads_a_number_is_called_and_the_report_says_so() -> None:
    torch.manual_seed(0)
    model, adapter = Reads(6, 8, 3).to("cuda").eval(), GTrans(steps=10, lr_feature=0.01)
    plain = adapter(model, graph(), seed=3, mode="eager")
    for _ in range(3):
        run = adapter(model, graph(), seed=3)
        assert not run.engine.recorded and run.engine.shared_features
        assert_same(run, plain)
    assert "recorded" in run.engine.reasons and "\n" not in run.engine.reasons["recorded"]
    after = torch.Generator("cuda").manual_seed(0)  # generators work, and the next model is recorded
    assert torch.rand(3, generator=after, device="cuda").shape == torch.rand(3, device="cuda").shape
    assert_recorded_as_called(adapter, GCN(6, 8, 3), graph())


class Starves(GCN):
    """Finds no memory while it is recorded."""

    def embed(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        z = super().embed(x, edge_index, edge_weight)
        if torch.cuda.is_current_stream_capturing():
            allocate_too_much()
        return z


@needs_cuda
def test_a_model_that_finds_no_memory_while_it_is_recorded_is_called() -> None:
    torch.manual_seed(0)
    model, adapter = Starves(6, 8, 3).to("cuda").eval(), GTrans(steps=10, lr_feature=0.01)
    plain = adapter(model, graph(), seed=3, mode="eager")
    for _ in range(3):
        run = adapter(model, graph(), seed=3)
        assert not run.engine.recorded
        assert_same(run, plain)
    assert run.engine.reasons["recorded"].startswith("OutOfMemoryError")
    assert_recorded_as_called(adapter, GCN(6, 8, 3), graph())


@needs_cuda
def test_a_surrogate_with_random_numbers_of_its_own_is_found_out_by_the_first_replay() -> None:
    class Whim(Contrastive):
        def terms(self, model: Any, data: Data, generator: torch.Generator | None = None) -> dict[str, Tensor]:
            return {name: random.uniform(1, 2) * term for name, term in super().terms(model, data, generator).items()}

        def signature(self) -> Any:
            return Whim

    torch.manual_seed(0)
    model, adapter = GCN(6, 8, 3).to("cuda").eval(), GTrans(Whim(), steps=10, lr_feature=0.01)
    for _ in range(3):
        run = adapter(model, graph())
        assert run.reason is None and len(run.history) == 10 and not run.engine.recorded
    assert "a replayed loss differs from a plain one" in run.engine.reasons["recorded"]
    assert len({step.loss / -step.terms["push"] for step in run.history}) > 5  # it draws anew at every step


@needs_cuda
@pytest.mark.parametrize("case", ["embedding", "float64", "wide heads", "hooks"])
def test_what_may_not_be_recorded_works_all_the_same(case: str) -> None:
    torch.manual_seed(0)
    dtype = torch.float64 if case == "float64" else torch.float32
    data = Data(x=torch.randn(40, 6, generator=rng()).to(dtype), edge_index=undirected(40)).to("cuda")
    model = GAT(6, 300 if case == "wide heads" else 8, 3, num_layers=3, heads=2).to("cuda", dtype).eval()
    if case == "hooks":
        model.convs[0].register_forward_hook(lambda *_: None)
    adapter = GTrans(steps=10, embedding="convs.1" if case == "embedding" else None)
    plain = adapter(model, data.clone(), mode="eager")
    for _ in range(2):
        assert_same(adapter(model, data.clone()), plain)


@needs_cuda
@pytest.mark.parametrize("watched", [False, True])
def test_what_is_not_finite_is_noticed_when_the_numbers_are_read(watched: bool) -> None:
    torch.manual_seed(0)
    model, data = GCN(6, 8, 3).to("cuda").eval(), graph()
    for _ in range(2):
        callback = (lambda step: None) if watched else None
        run = GTrans(steps=6, lr_feature=1e38)(model, data.clone(), callback=callback)
        assert run.reason is not None and "not finite" in run.reason
        assert len(run.history) < 6 and torch.equal(run.data.x, data.x)


# ---------------------------------------------------------------- the recorder on a GPU


@needs_cuda
def test_a_recording_that_fails_is_not_the_end() -> None:
    model, x = nn.Identity(), torch.ones(3, device="cuda")
    generator = torch.Generator("cuda").manual_seed(0)

    def failing() -> Tensor:
        torch.rand(3, generator=generator, device="cuda")
        raise ValueError("no")

    first = Recorder(model, [generator], (object(),))
    for _ in range(2):
        with pytest.raises(ValueError, match="no"):
            first("step", failing)
    assert first.failure == "ValueError: no"
    assert torch.equal(first("step", lambda: 2 * x), 2 * x)  # called from now on
    assert torch.rand(3, generator=generator, device="cuda").shape == (3,)  # it no longer believes to be recorded
    generator.manual_seed(1)
    second = Recorder(model, [generator], (object(),))
    assert all(torch.equal(second("step", lambda: 2 * x), 2 * x) for _ in range(3)) and second.has_recordings
    second.forget()
    assert not second.has_recordings


def allocate_too_much() -> None:
    torch.empty(2**50, dtype=torch.uint8, device="cuda")


def allocate_where_others_have_taken_all() -> None:
    torch.cuda.set_per_process_memory_fraction(0.0)  # from now on not even a small block can be had
    torch.empty(2**26, dtype=torch.uint8, device="cuda")


def raise_an_error() -> None:
    raise ValueError("no")


def raise_an_error_on_another_stream() -> None:
    torch.cuda.set_stream(torch.cuda.Stream())
    raise ValueError("no")


def read_a_number() -> None:
    torch.ones(1, device="cuda").item()


def leave_work_on_another_stream() -> None:
    other = torch.cuda.Stream()
    other.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(other):
        torch.ones(1, device="cuda")


def interrupt() -> None:
    raise KeyboardInterrupt


FAILURES: list[Callable[[], None]] = [
    allocate_too_much,
    allocate_where_others_have_taken_all,
    raise_an_error,
    raise_an_error_on_another_stream,
    read_a_number,
    leave_work_on_another_stream,
    interrupt,
]


@pytest.fixture
def whole_memory() -> Iterator[None]:
    """After the test, this process may use all memory again."""
    yield
    torch.cuda.set_per_process_memory_fraction(1.0)


@needs_cuda
@pytest.mark.usefixtures("whole_memory")
@pytest.mark.parametrize("is_late", [False, True], ids=["at once", "after some work"])
@pytest.mark.parametrize("fail", FAILURES, ids=lambda fail: fail.__name__)
def test_after_a_recording_that_fails_the_gpu_works_as_before(fail: Callable[[], None], is_late: bool) -> None:
    model, x = nn.Identity(), torch.ones(3, device="cuda")
    generator, stream = torch.Generator("cuda").manual_seed(0), torch.cuda.current_stream()

    def step() -> Tensor:
        if is_late:
            torch.rand(3, generator=generator, device="cuda")
            torch.rand(3, device="cuda")
        if torch.cuda.is_current_stream_capturing():
            fail()
        return 2 * x

    record = Recorder(model, [generator], (object(),))
    record("step", step)
    if fail is interrupt:
        with pytest.raises(KeyboardInterrupt):
            record("step", step)
    else:
        assert torch.equal(record("step", step), 2 * x)  # it was called instead
        assert record.failure is not None and record.is_failure_lasting == (not fail.__name__.startswith("allocate"))
    record.forget()
    torch.cuda.set_per_process_memory_fraction(1.0)

    assert torch.cuda.current_stream() == stream and not torch.cuda.is_current_stream_capturing()
    torch.cuda.synchronize()  # this, and freeing memory, is refused while anything is being recorded
    torch.cuda.empty_cache()
    layer = nn.Linear(3, 2).to("cuda")
    rows = torch.rand(2**20, 3, generator=generator, device="cuda") + torch.rand(3, device="cuda")
    layer(rows).sum().backward()
    assert layer.weight.grad is not None and torch.isfinite(layer.weight.grad).all()
    again = Recorder(model, [generator], (object(),))
    for _ in range(3):
        assert torch.equal(again("step", lambda: 2 * x), 2 * x)
    assert again.has_recordings, again.failure
    again.forget()


@needs_cuda
@pytest.mark.parametrize("fail", [allocate_too_much, raise_an_error], ids=lambda fail: fail.__name__)
def test_a_recording_that_fails_gives_its_memory_back(fail: Callable[[], None]) -> None:
    size, allocated = 2**26, []

    def step() -> None:
        allocated.append(torch.cuda.memory_allocated())
        kept = torch.empty(size, dtype=torch.uint8, device="cuda")
        if torch.cuda.is_current_stream_capturing():
            fail()
        del kept

    record = recorder()
    record("step", step)
    torch.cuda.empty_cache()
    before = torch.cuda.memory_reserved()
    record("step", step)
    assert record.failure is not None and len(allocated) == 3  # the last call is the one instead of the recording
    torch.cuda.empty_cache()
    assert allocated[2] < allocated[0] + size and torch.cuda.memory_reserved() < before + size


@needs_cuda
def test_every_replay_draws_anew() -> None:
    generator = torch.Generator(device="cuda").manual_seed(0)
    x = torch.zeros(5, device="cuda")

    def step() -> Tensor:
        return x.add_(torch.rand(5, generator=generator, device="cuda")).clone()

    record = Recorder(nn.Identity(), [generator], (object(),))
    seen = [record("step", step).clone() for _ in range(4)]
    again, expected = torch.Generator(device="cuda").manual_seed(0), torch.zeros(5, device="cuda")
    for actual in seen:
        expected += torch.rand(5, generator=again, device="cuda")
        torch.testing.assert_close(actual, expected)
    record.forget()


@needs_cuda
def test_one_at_a_time_and_memory_stays_with_the_model() -> None:
    model, x, kernels = nn.Identity(), torch.arange(5.0, device="cuda"), (object(),)
    first, second, step = Recorder(model, [], kernels), recorder(), Counter()
    for _ in range(4):
        doubled = first("step", lambda: 2 * x)
        torch.testing.assert_close(doubled, 2 * torch.arange(5.0, device="cuda"))
        second("step", step)
    assert step.calls == 4 and second.failure == "another thread is recording"
    place = doubled.data_ptr()
    first.forget()
    second.forget()
    del doubled
    again = Recorder(model, [], kernels)
    assert again("step", lambda: 2 * x).data_ptr() == place
    again.forget()
