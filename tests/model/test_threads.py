"""Several threads at once."""

from __future__ import annotations

import copy
import pickle
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor, nn
from torch_geometric.data import Data

import graphmend
from graphmend import Adaptation, FrozenGNN, GraphMendError, GTrans, mend
from graphmend.adapters import Align
from support.sample_models import HID, IN, OUT, TwoConvs, Wrapped, make_graph, seeded
from support.untouched import assert_same, generator_states, snapshot

ROUNDS = 20
JOBS: list[Callable[[nn.Module, Data], Adaptation]] = [
    GTrans(steps=2, budget=3, feature_steps=1, num_samples=1),
    mend,
    lambda model, data: Align()(model, data, seed=7),  # runs with dropout, from the global generator
]


@pytest.fixture(autouse=True)
def threads_switch_often() -> Iterator[None]:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)
    yield
    sys.setswitchinterval(interval)


def model_with_batch_norm() -> nn.Module:
    return seeded(lambda: pyg.GCN(IN, HID, 2, OUT, dropout=0.5, norm="batch_norm")).train()


class Noisy(TwoConvs):
    """Draws from the global generator in every mode."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        return super().forward(x + 0.01 * torch.randn_like(x), edge_index)


def one_model() -> list[nn.Module]:
    return [model_with_batch_norm()] * len(JOBS)


def one_for_each() -> list[nn.Module]:
    return [model_with_batch_norm() for _ in JOBS]


def with_shared_layers() -> list[nn.Module]:
    model = model_with_batch_norm()
    return [model, Wrapped(model, "log_softmax"), Wrapped(model, "keywords")]


def together(jobs: list[Callable[[], Any]]) -> list[Any]:
    """Run the jobs at the same time; their results, or errors."""
    barrier, results = threading.Barrier(len(jobs)), [None] * len(jobs)

    def work(k: int) -> None:
        barrier.wait()
        try:
            results[k] = jobs[k]()
        except BaseException as error:
            results[k] = error  # type: ignore[call-overload]

    threads = [threading.Thread(target=work, args=(k,)) for k in range(len(jobs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


@pytest.mark.parametrize("make", [one_model, one_for_each, with_shared_layers])
def test_results_are_those_of_one_after_the_other_and_all_is_as_it_was(make: Callable[[], list[nn.Module]]) -> None:
    data = make_graph()
    expected = [job(model, data) for job, model in zip(JOBS, make(), strict=True)]
    models = make()
    before, generators = [snapshot(model) for model in models], generator_states()
    for _ in range(ROUNDS):
        found = together(
            [lambda job=job, model=model: job(model, data) for job, model in zip(JOBS, models, strict=True)]
        )
        for one, other in zip(expected, found, strict=True):
            assert isinstance(other, Adaptation), other
            assert torch.equal(one.logits, other.logits) and torch.equal(one.data.x, other.data.x)
        assert_same(generators, generator_states())
        for state, model in zip(before, models, strict=True):
            assert_same(state, snapshot(model))


def test_models_that_draw_random_numbers_do_not_disturb_each_other() -> None:
    data = make_graph()
    models = [seeded(lambda: Noisy(pyg.SAGEConv)) for _ in range(2)]
    jobs = [lambda model=model: GTrans(steps=2)(model, data, seed=5) for model in models]
    expected, generators = jobs[0](), generator_states()
    for _ in range(ROUNDS):
        for found in together(jobs):
            assert torch.equal(found.logits, expected.logits) and torch.equal(found.data.x, expected.data.x)
    assert_same(generators, generator_states())


def test_cards_are_made_while_others_mend() -> None:
    model, data = model_with_batch_norm(), make_graph()
    expected, before = graphmend.card(model, data, task="classes"), snapshot(model)
    for _ in range(5):
        card, *_ = together([lambda: graphmend.card(model, data, task="classes"), lambda: GTrans(steps=3)(model, data)])
        assert torch.equal(card.first_mean, expected.first_mean)
    assert_same(before, snapshot(model))


def test_a_call_inside_another_one_does_not_wait_for_itself() -> None:
    model, data = model_with_batch_norm(), make_graph()

    def loss(frozen: Any, graph: Data) -> Tensor:
        mend(model, data)
        out: Tensor = frozen(graph.x, graph.edge_index).square().mean()
        return out

    assert GTrans(loss, steps=1, edge_steps=0, lr_feature=1e-4)(model, data).reason is None


def test_an_open_block_belongs_to_its_thread() -> None:
    model, data = model_with_batch_norm(), make_graph()
    with FrozenGNN(model, data) as frozen:
        (error,) = together([lambda: frozen(data.x, data.edge_index)])
    assert isinstance(error, GraphMendError) and "by the thread that opened its with block" in str(error)


def test_a_model_that_was_mended_with_can_be_copied_and_pickled() -> None:
    model, data = model_with_batch_norm(), make_graph()
    expected = GTrans(steps=3)(model, data)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert vars(other).keys() == vars(model).keys()
        assert torch.equal(GTrans(steps=3)(other, data).logits, expected.logits)
