"""The entropy of predictions by hand."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from graphmend.errors import GraphMendError
from graphmend.surrogates import Entropy
from support.graphs import rng
from support.surrogate_cases import OUT, N, graph, model


class Fixed(nn.Module):
    """Returns what it was given."""

    def __init__(self, logits: Tensor) -> None:
        super().__init__()
        self.logits = logits

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        return self.logits

    embed = forward


def slow(rows: list[list[float]]) -> float:
    total = 0.0
    for row in rows:
        norm = sum(math.exp(value) for value in row)
        total -= sum(math.exp(value) / norm * math.log(math.exp(value) / norm) for value in row)
    return total / len(rows)


@pytest.mark.parametrize("nodes", [None, 1, 5, N, 1000])
def test_it_is_the_mean_over_all_nodes_or_the_first_ones(nodes: int | None) -> None:
    logits = 3 * torch.randn(N, OUT, generator=rng(), dtype=torch.float64)
    expected = slow(logits.tolist()[:nodes])
    terms = Entropy(nodes).terms(Fixed(logits), graph())
    assert list(terms) == ["entropy"] and float(terms["entropy"]) == pytest.approx(expected, abs=1e-12)
    assert float(Entropy(nodes)(Fixed(logits.log_softmax(1)), graph())) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("shape", [(N,), (N, 1)])
def test_a_single_logit_is_that_of_class_1(shape: tuple[int, ...]) -> None:
    logits = 3 * torch.randn(N, generator=rng(), dtype=torch.float64)
    expected = slow([[0.0, value] for value in logits.tolist()])
    assert float(Entropy()(Fixed(logits.view(shape)), graph())) == pytest.approx(expected, abs=1e-12)
    assert float(Entropy(4)(Fixed(logits.view(shape)), graph())) == pytest.approx(
        slow([[0.0, value] for value in logits.tolist()[:4]]), abs=1e-12
    )


def test_sure_predictions_have_no_entropy_and_even_ones_the_most() -> None:
    sure = torch.eye(OUT).repeat(N // OUT, 1) * 1e4
    assert float(Entropy()(Fixed(sure), graph())) == 0.0
    assert float(Entropy()(Fixed(torch.zeros(N, OUT)), graph())) == pytest.approx(math.log(OUT))
    logits = torch.full((N,), 1e4, requires_grad=True)
    (slope,) = torch.autograd.grad(Entropy()(Fixed(logits), graph()), logits)
    assert not bool(slope.any())


@pytest.mark.parametrize("out", [1, OUT])
@pytest.mark.parametrize("nodes", [None, 5])
def test_gradients_equal_finite_differences(out: int, nodes: int | None) -> None:
    data, net = graph(), model(out=out).requires_grad_(False)

    def loss(x: Tensor, weight: Tensor) -> Tensor:
        changed = data.clone()
        changed.x, changed.edge_weight = x, weight
        return Entropy(nodes)(net, changed)

    weight = torch.rand(data.edge_index.size(1), generator=rng(3), dtype=torch.float64) + 0.2
    assert torch.autograd.gradcheck(loss, (data.x.clone().requires_grad_(), weight.requires_grad_()))


@pytest.mark.parametrize("nodes", [0, -1, 2.5, "all"])
def test_a_number_of_nodes_that_is_none_is_named(nodes: int) -> None:
    with pytest.raises(GraphMendError, match=f"nodes must be a whole number of at least 1 .got {nodes!r}"):
        Entropy(nodes)
