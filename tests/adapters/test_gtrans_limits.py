"""GTrans: what may not change, and labels that may not be read."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data

from graphmend import GTrans, Limits
from graphmend.surrogates import Backbone, Contrastive, Supervised
from support.adapter_cases import IN, N, PerStep, assert_same_result, gone, make_graph, make_model, pairs_of


def test_frozen_edges_stay() -> None:
    data = make_graph()
    frozen = data.edge_index[0] < data.edge_index[1]
    frozen &= torch.arange(frozen.numel()) % 2 == 0  # one direction of about half of the edges
    adapter = GTrans(lambda m, d: -gone(d).sum(), steps=3, feature_steps=0, budget=1.0, lr_edge=2.0)
    result = adapter(make_model(), data, limits=Limits(frozen_edges=frozen))
    kept = pairs_of(data.edge_index[:, frozen])
    assert pairs_of(result.data.edge_index) == kept | {(j, i) for i, j in kept} | {(3, 3)}


def test_features_are_still_mended_where_no_edge_may_change() -> None:
    data = make_graph()
    everything = torch.ones(data.edge_index.size(1), dtype=torch.bool)
    result = GTrans(steps=10)(make_model(), data, limits=Limits(frozen_edges=everything))
    assert result.reason is None and result.patch.num_rows == N and result.patch.num_removed == 0


def test_limits_on_features_hold_at_every_step() -> None:
    data = make_graph()
    data.x[:, 0] = (data.x[:, 0] > 1).double()
    data.x[0, 2] = -0.0
    rows, columns = torch.arange(N) % 4 == 0, torch.arange(IN) == 1
    limits = Limits(
        frozen_nodes=rows,
        frozen_columns=columns,
        binary=torch.arange(IN) == 0,
        non_negative=torch.arange(IN) == 3,
        minimum=-0.2,
        maximum=1.5,
    )
    features = PerStep()

    def surrogate(model: Backbone, graph: Data) -> Tensor:
        features.note(graph.x.detach().clone())
        return Contrastive()(model, graph, torch.Generator().manual_seed(0))

    adapter = GTrans(surrogate, steps=6, edge_steps=0, lr_feature=0.5)
    result = adapter(make_model(), data, limits=limits, callback=features)
    assert len(features.steps) == 6
    for x in (*features.steps[1:], result.data.x):
        assert torch.equal(x[rows], data.x[rows]) and torch.equal(x[:, columns], data.x[:, columns])
        assert float(x[~rows][:, ~columns].min()) >= -0.2 and float(x[~rows][:, ~columns].max()) <= 1.5
        assert float(x[~rows, 3].min()) >= 0 and bool(x[0, 2].signbit()), "what is frozen keeps its bits"
    assert set(result.data.x[:, 0].tolist()) <= {0.0, 1.0}
    free = GTrans(surrogate, steps=6, edge_steps=0, lr_feature=0.5)(make_model(), data).data.x
    assert bool((free != data.x).all()), "each limit had something to hold back"


def test_labels_are_not_read() -> None:
    model, data = make_model(), make_graph()
    first = GTrans(steps=10, lr_edge=0.5, budget=4)(model, data)
    for labels in (torch.randint(0, 2, (N,)), torch.full((N,), -7), None):
        other = make_graph()
        other.y = labels
        if labels is None:
            del other.y
        result = GTrans(steps=10, lr_edge=0.5, budget=4)(model, other)
        assert torch.equal(result.data.x, first.data.x) and torch.equal(result.logits, first.logits)
        assert torch.equal(result.data.edge_index, first.data.edge_index)
        assert [s.loss for s in result.history] == [s.loss for s in first.history]


def test_labels_outside_the_mask_are_not_read() -> None:
    model, mask = make_model(), torch.arange(N) % 3 == 0
    adapter = GTrans(Supervised(mask) + 0.1 * Contrastive(), steps=10, lr_feature=0.05, lr_edge=0.5, budget=4)
    first = adapter(model, make_graph(), task="classes")
    other, different = make_graph(), make_graph()
    other.y = torch.where(mask, other.y, -100)
    different.y = torch.where(mask, 1 - different.y, different.y)
    assert_same_result(first, adapter(model, other, task="classes"))
    assert not torch.equal(first.data.x, adapter(model, different, task="classes").data.x), "those inside are"
    assert set(first.history[0].terms) == {"supervised", "pull", "push"}
    assert first.history[0].loss == pytest.approx(sum(first.history[0].terms.values()))


def test_limits_leave_features_alone_that_are_not_learned() -> None:
    data = make_graph()
    result = GTrans(feature_steps=0)(make_model(), data, limits=Limits(minimum=0.0, maximum=0.1))
    assert torch.equal(result.data.x, data.x)
