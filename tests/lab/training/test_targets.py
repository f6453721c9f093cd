"""Trainers that see the test graphs."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from graphmend.errors import GraphMendError
from graphmend.lab.backbones import GCN, DualGCN
from graphmend.lab.data import Splits
from graphmend.lab.metrics import cmd
from graphmend.lab.training import DANN, SRGNN, TRAINERS, UDAGCN, risk
from graphmend.lab.training.targets import domain_loss, reversed_gradient
from support.graphs import dense, dense_norm, rng, undirected

SEEING = {"dann": DANN, "sr_gnn": SRGNN, "uda_gcn": UDAGCN}


def graph(seed: int, nodes: int = 12, columns: int = 4) -> Data:
    x = torch.randn(nodes, columns, generator=rng(seed), dtype=torch.float64)
    return Data(x=x, edge_index=undirected(nodes, seed), y=torch.arange(nodes) % 3)


def splits() -> Splits:
    train = graph(0)
    train.mask = torch.arange(12) % 2 == 0
    return Splits([train, graph(1, 7)], [graph(2)], [graph(3, 9), graph(4, 5)])


def model(name: str) -> nn.Module:
    torch.manual_seed(0)
    made = DualGCN(4, 6, 3, encoding_channels=5, walks=4) if name == "uda_gcn" else GCN(4, 6, 3)
    return made.double()


def test_the_gradient_is_reversed() -> None:
    x = torch.tensor([1.0, -2.0], requires_grad=True)
    out = reversed_gradient(x, 0.25)
    out.square().sum().backward()  # type: ignore[no-untyped-call]
    assert torch.equal(out, x) and x.grad is not None and x.grad.tolist() == [-0.5, 1.0]


def test_both_domains_count_the_same() -> None:
    source, target = torch.tensor([[2.0, 0.0]] * 9), torch.tensor([[0.0, 1.0]])
    expected = (math.log(1 + math.exp(-2.0)) + math.log(1 + math.exp(-1.0))) / 2
    assert domain_loss(source, target).item() == pytest.approx(expected, rel=1e-6)


def pieces(net: Any, data: Splits) -> tuple[float, Tensor, Tensor]:
    """The mean risk, the embeddings of the training nodes, and those of all nodes of the test graphs."""
    first, second = data.train
    logits = [net(part.x, part.edge_index) for part in data.train]
    even = first.mask.nonzero().view(-1)
    risks = [risk(logits[0][even], first.y[even], "multiclass"), risk(logits[1], second.y, "multiclass")]
    hidden = [net.embed(part.x, part.edge_index) for part in data.train]
    target = torch.cat([net.embed(part.x, part.edge_index) for part in data.test])
    return float(sum(risks) / 2), torch.cat([hidden[0][even], hidden[1]]), target


@torch.no_grad()
def test_sr_gnn_adds_the_discrepancy_to_as_many_test_nodes() -> None:
    data, net = splits(), model("sr_gnn")
    total, source, target = pieces(net, data)
    assert source.size(0) == 13 and target.size(0) == 14
    torch.manual_seed(5)
    actual = float(SRGNN(weight=0.5).objective(net, data).loss(0))
    possible = [total + 0.5 * cmd(source, target[torch.arange(14) != left_out]) for left_out in range(14)]
    assert min(abs(actual - value) for value in possible) < 1e-9
    assert len({round(float(SRGNN().objective(net, data).loss(epoch)), 9) for epoch in range(8)}) > 2  # drawn anew


@torch.no_grad()
def test_dann_adds_the_loss_of_a_graph_convolution() -> None:
    data, net = splits(), model("dann")
    loss, (classifier,) = DANN().objective(net, data)
    assert isinstance(classifier.weight, Tensor) and classifier.weight.shape == (6, 2)

    def scores(part: Data) -> Tensor:
        hat = dense_norm(dense(part.edge_index, int(part.num_nodes)))
        out: Tensor = hat @ net.embed(part.x, part.edge_index) @ classifier.weight + classifier.bias
        return out.log_softmax(1)

    source = torch.cat([scores(data.train[0])[data.train[0].mask], scores(data.train[1])])
    target = torch.cat([scores(part) for part in data.test])
    expected = pieces(net, data)[0] - (float(source[:, 0].mean()) + float(target[:, 1].mean())) / 2
    assert float(loss(0)) == pytest.approx(expected, rel=1e-9)


def test_dann_moves_the_model_against_its_classifier() -> None:
    data, net = splits(), model("dann")
    gradients = {}
    for reversal in (0.0, 1.0, 2.0):
        torch.manual_seed(0)
        loss, (classifier,) = DANN(reversal=reversal).objective(net, data)
        first = next(net.parameters())
        gradients[reversal] = torch.autograd.grad(loss(0), [first, classifier.weight])
    (plain, own), (once, own_too), (twice, _) = gradients.values()
    torch.testing.assert_close(twice - plain, 2 * (once - plain))
    assert not torch.allclose(once, plain) and torch.equal(own, own_too) and own.abs().max() > 0


@torch.no_grad()
def test_uda_gcn_adds_both_domain_losses_and_a_growing_entropy() -> None:
    data, net = splits(), model("uda_gcn")
    loss, (classifier,) = UDAGCN(dropout=0.0, entropy=0.4, epochs=10).objective(net, data)
    total, source, target = pieces(net, data)
    first, last = classifier[0], classifier[3]  # type: ignore[index]

    def domains(z: Tensor) -> Tensor:
        return (torch.relu(z @ first.weight.t() + first.bias) @ last.weight.t() + last.bias).log_softmax(1)

    p = (target @ net.classify.weight.t() + net.classify.bias).softmax(1)
    entropy = float(-(p * p.log()).sum(1).mean())
    both = -float(domains(source)[:, 0].mean()) - float(domains(target)[:, 1].mean())
    for epoch in (0, 5):
        assert float(loss(epoch)) == pytest.approx(total + both + 0.4 * epoch / 10 * entropy, rel=1e-9)


def test_the_reversal_of_uda_gcn_grows_to_its_bound() -> None:
    data, net = splits(), model("uda_gcn")
    parameter = net.convs[0].weight

    def gradient(reversal: float, epoch: int) -> Tensor:
        torch.manual_seed(0)
        trainer = UDAGCN(reversal=reversal, entropy=0.0, dropout=0.0, epochs=100)
        return torch.autograd.grad(trainer.objective(net, data).loss(epoch), parameter)[0]

    none = gradient(0.0, 0)
    unit = gradient(1.0, 99) - none
    torch.testing.assert_close(gradient(0.05, 1) - none, 0.02 * unit)
    torch.testing.assert_close(gradient(0.05, 50) - none, 0.05 * unit)


@pytest.mark.parametrize("name", SEEING)
def test_the_test_graphs_matter_without_their_labels(name: str) -> None:
    other = splits()
    other.test[0].x = other.test[0].x + 3
    one, two = (SEEING[name](epochs=3)(model(name), data).state_dict() for data in (splits(), other))
    assert set(SEEING) <= set(TRAINERS) and not all(torch.equal(one[key], two[key]) for key in one)


@pytest.mark.parametrize("name", SEEING)
def test_test_graphs_with_other_columns(name: str) -> None:
    data = Splits([graph(0)], [graph(1)], [graph(2, columns=7)])
    with pytest.raises(GraphMendError, match=r"different numbers of columns \(\[4, 7\]\)"):
        SEEING[name]()(model(name), data)
