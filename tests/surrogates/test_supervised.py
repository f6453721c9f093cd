"""Cross-entropy on labels the caller has, by hand, and what it refuses."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from graphmend.errors import GraphMendError
from graphmend.surrogates import Supervised
from support.graphs import rng
from support.surrogate_cases import OUT, N, graph, model, some


class Fixed(nn.Module):
    """Returns what it was given."""

    def __init__(self, logits: Tensor) -> None:
        super().__init__()
        self.logits = logits

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        return self.logits

    embed = forward


def test_supervised_is_the_mean_negative_log_likelihood_of_the_marked_nodes() -> None:
    logits = torch.randn(N, OUT, generator=rng(), dtype=torch.float64)
    data, mask = graph(), some()
    rows, labels = logits[mask].numpy(), data.y[mask].numpy()
    expected = -np.mean([row[k] - np.log(np.exp(row).sum()) for row, k in zip(rows, labels, strict=True)])
    assert float(Supervised(mask)(Fixed(logits), data)) == pytest.approx(float(expected), abs=1e-12)
    assert float(Supervised(mask)(Fixed(logits.log_softmax(1)), data)) == pytest.approx(float(expected), abs=1e-12)
    assert list(Supervised(mask).terms(Fixed(logits), data)) == ["supervised"]


@pytest.mark.parametrize("shape", [(N,), (N, 1)])
@pytest.mark.parametrize("dtype", [torch.long, torch.float32, torch.bool], ids=str)
def test_supervised_with_a_single_logit(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    logits = torch.randn(N, generator=rng(), dtype=torch.float64)
    data, mask = graph(), some()
    data.y = (torch.arange(N) % 3 == 0).to(dtype)
    sign = np.where(data.y[mask].bool().numpy(), 1.0, -1.0)
    expected = np.mean(np.log1p(np.exp(-sign * logits[mask].numpy())))
    assert float(Supervised(mask)(Fixed(logits.view(shape)), data)) == pytest.approx(float(expected), abs=1e-12)


@pytest.mark.parametrize("dtype", [torch.int8, torch.int32, torch.uint8, torch.long, torch.float32], ids=str)
def test_labels_of_any_dtype_and_as_a_column(dtype: torch.dtype) -> None:
    data, gcn = graph(), model()
    expected = Supervised(some())(gcn, data)
    data.y = data.y.to(dtype)
    torch.testing.assert_close(Supervised(some())(gcn, data), expected)
    data.y = data.y.view(-1, 1)
    torch.testing.assert_close(Supervised(some())(gcn, data), expected)


def test_labels_outside_the_mask_do_not_matter() -> None:
    data, gcn = graph(), model()
    first = Supervised(some())(gcn, data)
    scrambled = copy.copy(data)
    scrambled.y = torch.where(some(), data.y, -100)
    assert torch.equal(Supervised(some())(gcn, scrambled), first)
    changed = copy.copy(data)
    changed.y = torch.where(some(), (data.y + 1) % OUT, data.y)
    assert not torch.isclose(Supervised(some())(gcn, changed), first)


@pytest.mark.parametrize("kind", [torch.uint8, torch.int64])
def test_a_mask_of_zeros_and_ones_is_no_list_of_nodes(kind: torch.dtype) -> None:
    data, gcn = graph(), model()
    assert torch.equal(Supervised(some().to(kind))(gcn, data), Supervised(some())(gcn, data))


def test_supervised_reads_features_and_weights() -> None:
    data, gcn = graph(), model().requires_grad_(False)
    x = data.x.clone().requires_grad_()
    weight = torch.rand(data.edge_index.size(1), generator=rng(3), dtype=torch.float64).requires_grad_()

    def loss(x: Tensor, weight: Tensor) -> Tensor:
        return Supervised(some())(gcn, Data(x=x, edge_index=data.edge_index, edge_weight=weight, y=data.y))

    assert torch.autograd.gradcheck(loss, (x, weight))
    logits = gcn(data.x, data.edge_index, weight.detach())[some()].log_softmax(1)
    expected = -logits.gather(1, data.y[some()].view(-1, 1)).mean()
    torch.testing.assert_close(loss(x, weight).detach(), expected)
    assert all(g.any() for g in torch.autograd.grad(loss(x, weight), (x, weight)))


def test_supervised_says_what_is_wrong() -> None:
    data, gcn = graph(), model()
    with pytest.raises(GraphMendError, match=r"0 and 1 only \(got mask\[2\] = 2\)"):
        Supervised(torch.arange(3))
    with pytest.raises(GraphMendError, match=r"choose one of its 2 columns, such as mask\[:, 0\]"):
        Supervised(torch.ones(N, 2, dtype=torch.bool))
    with pytest.raises(GraphMendError, match="marks no node"):
        Supervised(torch.zeros(N, dtype=torch.bool))
    with pytest.raises(GraphMendError, match=r"one entry per node, 12 in all \(got torch.bool of shape \(5,\)\)"):
        Supervised(torch.ones(5, dtype=torch.bool))(gcn, data)
    for wrong, message in ((OUT, rf"0\.\.{OUT - 1} \(got 0\.\.{OUT}\)"), (-1, r"\(got -1\.\.")):
        data.y = torch.where(some() & (torch.arange(N) == some().nonzero()[0]), wrong, graph().y)
        with pytest.raises(GraphMendError, match=message):
            Supervised(some())(gcn, data)
    data.y = graph().y.view(-1, 1).expand(-1, 2)
    with pytest.raises(GraphMendError, match=r"one label per node, 12 in all \(got shape \(12, 2\)\)"):
        Supervised(some())(gcn, data)
    data.y = None
    with pytest.raises(GraphMendError, match="the graph has no y"):
        Supervised(some())(gcn, data)
