"""GTrans with labels of a few nodes to choose by: the best iterate and the best discrete graph are kept."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from graphmend import GraphMendError, GTrans
from graphmend.lab.backbones import GCN
from graphmend.lab.data import embedded
from graphmend.lab.data.corruptions import FeatureNoise
from graphmend.lab.training import ERM
from graphmend.results.adaptation import Adaptation

STEPS = 8


@pytest.fixture(scope="module")
def model() -> nn.Module:
    torch.manual_seed(0)
    return ERM(epochs=20)(GCN(13, 8, 3), embedded("wine"))


@pytest.fixture(scope="module")
def data() -> Data:
    """A graph in which every third node has noise for features."""
    clean = embedded("wine").test[0]
    return FeatureNoise(torch.ones(clean.x.size(0), dtype=torch.bool), 0.3)(clean)


def mended(model: nn.Module, data: Data, steps: int = STEPS, seed: int = 0, **options: Any) -> Adaptation:
    return GTrans(steps=steps, lr_feature=0.3, **options)(model, data, seed=seed, task="classes")


def accuracy(logits: Tensor, data: Data) -> float:
    return float((logits.argmax(1) == data.y)[data.val_mask].double().mean())


def test_the_first_of_the_best_iterates_is_kept(model: nn.Module, data: Data) -> None:
    """With features alone, the iterate after k steps is the result of k steps."""
    results = [mended(model, data, k, edge_steps=0) for k in range(1, STEPS + 1)]
    scores = [accuracy(result.logits, data) for result in results]
    best = max(range(STEPS), key=scores.__getitem__)
    assert scores[best] > scores[-1], "otherwise nothing is tested"
    chosen = mended(model, data, edge_steps=0, validation=data.val_mask)
    torch.testing.assert_close(chosen.data.x, results[best].data.x)
    assert len(chosen.history) == STEPS


def test_the_best_discrete_graph_is_kept_and_not_the_one_with_the_lowest_loss(model: nn.Module, data: Data) -> None:
    """After a single step both ways have the same iterate, so they choose from the same discrete graphs."""
    gains = []
    for seed in range(4):
        options: dict[str, Any] = {"steps": 1, "feature_steps": 0, "lr_edge": 0.5, "budget": 0.4, "num_samples": 20}
        by_loss = mended(model, data, seed=seed, **options)
        by_labels = mended(model, data, seed=seed, validation=data.val_mask, **options)
        assert by_loss.candidates == by_labels.candidates
        gains.append(accuracy(by_labels.logits, data) - accuracy(by_loss.logits, data))
    assert min(gains) >= 0 and max(gains) > 0


def test_labels_of_other_nodes_do_not_count(model: nn.Module, data: Data) -> None:
    other = data.clone()
    other.y[~data.val_mask] = 0
    first, second = (mended(model, graph, validation=data.val_mask) for graph in (data, other))
    assert torch.equal(first.logits, second.logits)


def test_without_labels_it_says_so(model: nn.Module, data: Data) -> None:
    bare = Data(x=data.x, edge_index=data.edge_index)
    with pytest.raises(GraphMendError, match="GTrans chooses by the labels of some nodes, but the graph has no y"):
        mended(model, bare, validation=data.val_mask)
