"""Every model on every graph."""

from __future__ import annotations

import pytest
import torch
import torch_geometric.nn as pyg
from torch import nn
from torch_geometric.data import Data

from graphmend import GTrans
from graphmend.errors import GraphMendError
from graphmend.lab.metrics import transfer
from support.surrogate_cases import IN, OUT, N, graph, model, some
from support.untouched import assert_same, state_of

pytestmark = pytest.mark.usefixtures("one_thread")


def slow_accuracy(net: nn.Module, data: Data, mask: torch.Tensor) -> float:
    with torch.no_grad():
        logits = net.eval()(data.x, data.edge_index)
    right = [int(logits[i].argmax()) == int(data.y[i]) for i in range(N) if mask[i]]
    return sum(right) / len(right)


def models() -> dict[str, nn.Module]:
    torch.manual_seed(0)
    return {"GCN": model(), "APPNP": model("appnp"), "stock": pyg.GraphSAGE(IN, 8, 2, OUT).double().train()}


def test_every_cell_is_the_score_of_one_model_on_one_graph() -> None:
    nets, data = models(), graph()
    mended = {name: GTrans(steps=10, lr_feature=0.5, budget=3)(net, data).data for name, net in nets.items()}
    graphs = {**mended, "as it came": data}
    before = [state_of(net, data) for net in nets.values()]
    table = transfer(nets, graphs, mask=some())
    for net, state in zip(nets.values(), before, strict=True):
        assert_same(state, state_of(net, data))
    assert list(table) == ["GCN", "APPNP", "stock", "as it came"] and all(
        list(row) == list(nets) for row in table.values()
    )
    for row, each in graphs.items():
        for column, net in nets.items():
            assert table[row][column] == pytest.approx(slow_accuracy(net, each, some()))
    assert len({value for row in table.values() for value in row.values()}) > 1


def test_other_metrics_and_all_nodes() -> None:
    nets, data = models(), graph()
    everywhere = torch.ones(N, dtype=torch.bool)
    table = transfer(nets, {"as it came": data})
    assert table["as it came"]["GCN"] == pytest.approx(slow_accuracy(nets["GCN"], data, everywhere))
    assert 0.0 <= transfer(nets, {"as it came": data}, metric="macro_f1")["as it came"]["GCN"] <= 1.0


def test_what_it_cannot_work_with_is_named() -> None:
    data = graph()
    del data.y
    with pytest.raises(GraphMendError, match="the graph 'noisy' has no labels; set its y"):
        transfer(models(), {"noisy": data})
    with pytest.raises(GraphMendError, match="models is empty"):
        transfer({}, {"noisy": graph()})
    with pytest.raises(GraphMendError, match="unknown metric 'f2'"):
        transfer(models(), {"noisy": graph()}, metric="f2")
