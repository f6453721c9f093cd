from __future__ import annotations

import copy

import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch_geometric.data import Data

from graphmend.errors import GraphMendError
from graphmend.lab.backbones import GCN
from graphmend.lab.data import (
    Scenario,
    Splits,
    abnormal_features,
    attack_graph,
    embedded,
    knn_graph,
    node_mask,
    shift,
    structure_attack,
)
from graphmend.lab.training import ERM
from graphmend.results.scores import score
from support.graphs import labelled, pairs


def trained(splits: Splits) -> GCN:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return ERM(epochs=60)(GCN(64, 64, 10), splits)


@torch.no_grad()
def accuracy(model: nn.Module, data: Data) -> float:
    return 100 * score("accuracy", model(data.x, data.edge_index), data.y, node_mask(data))


@pytest.fixture(scope="module")
def digits() -> Splits:
    return embedded("digits")


@pytest.fixture(scope="module")
def model(digits: Splits) -> GCN:
    return trained(digits)


@pytest.fixture(scope="module")
def shifted() -> Scenario:
    return shift()


@pytest.fixture(scope="module")
def attacked(model: GCN, digits: Splits) -> Scenario:
    return structure_attack(model, digits, seed=3)


def test_shift_domains_are_disjoint_images_under_the_documented_change(shifted: Scenario) -> None:
    images = {tuple(row): label for row, label in zip(*load_digits(return_X_y=True), strict=True)}
    graphs = [*shifted.splits.train, *shifted.splits.val, *shifted.splits.test]
    strengths = [0.0, 0.75, 1.0, 1.125, 1.25]
    assert shifted.splits.meta["strengths"] == strengths
    seen: set[tuple[float, ...]] = set()
    for data, t in zip(graphs, strengths, strict=True):
        pixels = ((data.x.double() - 0.3 * t) / (1 - 0.5 * t) * 16).round()
        torch.testing.assert_close(data.x.double(), pixels / 16 * (1 - 0.5 * t) + 0.3 * t, rtol=0, atol=1e-6)
        rows = [tuple(row) for row in pixels.tolist()]
        assert [images[row] for row in rows] == data.y.tolist()  # every node is an image with its label
        assert not seen & set(rows)
        seen |= set(rows)
        assert torch.equal(data.edge_index, knn_graph(data.x, 10))  # rebuilt from the domain's own features
        counts = torch.bincount(data.y, minlength=10)
        assert int(counts.max() - counts.min()) <= 0.25 * float(counts.float().mean())
    assert len(seen) == len(images)
    assert shifted.validation is shifted.splits.val[0]
    assert shifted.tests is shifted.splits.test


def test_shift_hurts_and_grows(shifted: Scenario) -> None:
    model = trained(shifted.splits)
    clean = [accuracy(model, data) for data in shifted.clean]
    harmed = [accuracy(model, data) for data in shifted.tests]
    assert min(clean) > 80
    assert all(before - after > 5 for before, after in zip(clean, harmed, strict=True))
    assert harmed[0] > harmed[-1] + 3
    assert sum(harmed) / 3 + 3 < accuracy(model, shifted.validation)  # the validation domain is the mild one
    for before, after in zip(shifted.clean, shifted.tests, strict=True):
        assert torch.equal(before.y, after.y)


def test_abnormal_features(model: GCN, digits: Splits) -> None:
    scenario = abnormal_features(digits, seed=3)
    test, harmed, validation = digits.test[0], scenario.tests[0], scenario.validation
    assert scenario.clean[0] is test
    for data, mask in ((harmed, test.test_mask), (validation, test.val_mask)):
        changed = (data.x != test.x).any(1)
        assert torch.equal(changed, data.abnormal)
        assert not (changed & ~mask).any()
        assert int(changed.sum()) == int(0.3 * int(mask.sum()))
        assert torch.equal(data.mask, mask)
        assert data.edge_index is test.edge_index
        loss = accuracy(model, digits.test[0] if data is harmed else digits.val[0]) - accuracy(model, data)
        assert 4 < loss < 25
    assert not (harmed.abnormal & validation.abnormal).any()


def test_abnormal_features_of_another_seed(digits: Splits) -> None:
    one, two = (abnormal_features(digits, seed=seed) for seed in (0, 1))
    assert not torch.equal(one.tests[0].abnormal, two.tests[0].abnormal)
    assert not torch.equal(one.validation.x, two.validation.x)


@pytest.mark.parametrize("target", ["test", "val"])
def test_structure_attack_is_a_valid_graph_within_budget(attacked: Scenario, digits: Splits, target: str) -> None:
    before = digits.test[0] if target == "test" else digits.val[0]
    after = attacked.tests[0] if target == "test" else attacked.validation
    assert after.is_undirected()
    assert after.is_coalesced()  # sorted, nothing twice
    assert not after.has_self_loops()
    victims = before.mask
    old, new = pairs(before.edge_index), pairs(after.edge_index)
    budget = int(0.1 * sum(bool(victims[i] or victims[j]) for i, j in old))
    assert budget / 2 < len(old ^ new) <= budget
    assert after.x is before.x
    assert after.y is before.y
    assert torch.equal(after.mask, before.mask)


def test_structure_attack_hurts_its_victims(attacked: Scenario, model: GCN, digits: Splits) -> None:
    assert accuracy(model, digits.test[0]) - accuracy(model, attacked.tests[0]) > 5
    assert accuracy(model, digits.val[0]) - accuracy(model, attacked.validation) > 5
    elsewhere = copy.copy(attacked.tests[0])
    elsewhere.mask = digits.train[0].mask
    victims_lost = accuracy(model, digits.test[0]) - accuracy(model, attacked.tests[0])
    assert accuracy(model, digits.train[0]) - accuracy(model, elsewhere) < victims_lost / 2


def overlapping() -> tuple[GCN, Splits]:
    """An untrained model, and a graph in which training nodes are among those of the other two masks."""
    torch.manual_seed(0)
    data = labelled(40, density=0.1)
    number = torch.arange(40)
    data.train_mask, data.val_mask, data.test_mask = number % 4 < 2, number < 20, number >= 20
    return GCN(5, 8, 3), Splits.transductive(data)


def test_the_attacker_knows_the_labels_of_training_nodes_and_no_others() -> None:
    model, splits = overlapping()
    data = splits.test[0]
    attack = structure_attack(model, splits, seed=1, rate=0.3, epochs=4)
    for mask, found, seed in (
        (data.test_mask, attack.tests[0], 1),
        (data.val_mask, attack.validation, 1 + 10_000),
    ):
        by_known = {
            name: attack_graph(model, data, mask, 0.3, seed, 4, known=known).edge_index
            for name, known in (
                ("train", data.train_mask),
                ("none", torch.zeros(40, dtype=torch.bool)),
                ("all", torch.ones(40, dtype=torch.bool)),
                ("own", mask),
            )
        }
        assert torch.equal(found.edge_index, by_known.pop("train"))
        assert not any(torch.equal(found.edge_index, other) for other in by_known.values())


def test_an_attack_reads_no_hidden_label_and_its_seed_counts(model: GCN, digits: Splits) -> None:
    data = digits.test[0]
    scrambled = copy.copy(data)
    scrambled.y = torch.where(data.train_mask, data.y, (data.y + 5) % 10)
    first, again, other = (
        attack_graph(model, graph, data.test_mask, seed=seed, epochs=4, known=data.train_mask).edge_index
        for graph, seed in ((data, 1), (scrambled, 1), (data, 2))
    )
    assert torch.equal(first, again) and not torch.equal(first, other)


def test_victims_are_named_in_a_refusal(model: GCN, digits: Splits) -> None:
    data = digits.test[0]
    for victims in (torch.tensor([1, 2]), torch.zeros_like(data.mask)):
        with pytest.raises(GraphMendError, match="victims"):
            attack_graph(model, data, victims)


def test_an_attacker_who_was_told_nothing_reads_no_label() -> None:
    model, splits = overlapping()
    data, other = splits.test[0], copy.copy(splits.test[0])
    other.y = (data.y + 1) % 3
    first, second = (attack_graph(model, d, d.test_mask, 0.3, epochs=4).edge_index for d in (data, other))
    assert torch.equal(first, second)
    told = attack_graph(model, data, data.test_mask, 0.3, epochs=4, known=data.train_mask).edge_index
    assert not torch.equal(first, told)


@pytest.mark.parametrize("kind", [torch.uint8, torch.int64])
def test_victims_and_known_nodes_may_be_marked_by_zeros_and_ones(kind: torch.dtype) -> None:
    model, splits = overlapping()
    data = splits.test[0]
    victims, known = data.test_mask, data.train_mask
    expected = attack_graph(model, data, victims, 0.3, epochs=2, known=known).edge_index
    found = attack_graph(model, data, victims.to(kind), 0.3, epochs=2, known=known.to(kind)).edge_index
    assert torch.equal(found, expected)
