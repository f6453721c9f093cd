from __future__ import annotations

import copy
import itertools
import logging
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.utils import coalesce

from graphmend.lab.backbones import GCN
from graphmend.lab.data import Splits, embedded
from graphmend.lab.training import ERM, risk
from graphmend.results.scores import METRICS, score
from graphmend.transforms import DropEdge


def graph(seed: int, nodes: int = 30, classes: int = 3, masked: bool = False) -> Data:
    generator = torch.Generator().manual_seed(seed)
    source, target = torch.randint(nodes, (2, 60), generator=generator)
    edge_index = torch.stack([torch.cat([source, target]), torch.cat([target, source])])
    y = torch.randint(classes, (nodes,), generator=generator)
    x = torch.randn(nodes, 5, generator=generator) + F.one_hot(y, 5)
    data = Data(x=x, edge_index=coalesce(edge_index), y=y)
    if masked:
        data.mask = torch.rand(nodes, generator=generator) < 0.5
    return data


def gcn(classes: int = 3, **options: float) -> GCN:
    torch.manual_seed(0)
    return GCN(5, 8, classes, **options)  # type: ignore[arg-type]


def by_hand(model: nn.Module, splits: Splits, epochs: int, optimizer: torch.optim.Optimizer) -> list[float]:
    """The protocol spelt out for cross-entropy; returns the validation values and leaves the best weights."""
    values: list[float] = []
    best = copy.deepcopy(model.state_dict())
    for _ in range(epochs):
        model.train()
        optimizer.zero_grad()
        total = torch.tensor(0.0)
        for data in splits.train:
            rows = data.mask.nonzero().view(-1) if "mask" in data else torch.arange(data.num_nodes)
            log_p = model(data.x, data.edge_index).log_softmax(1)
            total = total + -log_p[rows, data.y[rows]].sum() / len(rows)
        (total / len(splits.train)).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        model.eval()
        with torch.no_grad():
            right = nodes = 0
            for data in splits.val:
                mask = data.mask if "mask" in data else torch.ones(data.num_nodes, dtype=torch.bool)
                right += int((model(data.x, data.edge_index).argmax(1) == data.y)[mask].sum())
                nodes += int(mask.sum())
        if not values or right / nodes > max(values):
            best = copy.deepcopy(model.state_dict())
        values.append(right / nodes)
    model.load_state_dict(best)
    return values


@pytest.mark.parametrize("optimizer", ["adamw", "adam"])
@pytest.mark.parametrize("batch_norm", [False, True])
def test_equals_a_loop_written_by_hand(optimizer: str, batch_norm: bool) -> None:
    """Several masked graphs of different sizes: mean of means, one step per epoch, first best epoch, BN buffers."""
    train = [graph(0, 20), graph(1, 40, masked=True), graph(2, 30)]
    splits = Splits(train, [graph(3, 10), graph(4, 50, masked=True)], [graph(5)])
    model, reference = gcn(batch_norm=batch_norm), gcn(batch_norm=batch_norm)
    kind = {"adamw": torch.optim.AdamW, "adam": torch.optim.Adam}[optimizer]
    values = by_hand(reference, splits, 25, kind(reference.parameters(), lr=0.02, weight_decay=0.1))
    assert values.index(max(values)) < 24, "the last epoch is best: nothing would be restored"
    trained = ERM(lr=0.02, weight_decay=0.1, epochs=25, optimizer=optimizer)(model, splits)
    assert trained is model
    assert not model.training
    assert all(p.grad is None for p in model.parameters())
    for one, two in zip(model.state_dict().values(), reference.state_dict().values(), strict=True):
        torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-5)


def test_learns_and_reaches_the_metric_it_reports(caplog: pytest.LogCaptureFixture) -> None:
    splits = embedded("wine")
    torch.manual_seed(0)
    with caplog.at_level(logging.INFO, logger="graphmend"):
        model = ERM(epochs=60)(GCN(13, 32, 3), splits)
    val, test = splits.val[0], splits.test[0]
    with torch.no_grad():
        logits = model(val.x, val.edge_index)
    assert f"accuracy {score('accuracy', logits, val.y, val.mask):.4f}" in caplog.text
    assert score("accuracy", logits, test.y, test.mask) > 0.9


def test_only_the_metric_of_the_splits_selects(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def recording(name: str) -> Callable[[Tensor, object], float]:
        def value(logits: Tensor, y: object) -> float:
            asked.append(name)
            return 0.5

        return value

    for name in METRICS:
        monkeypatch.setitem(METRICS, name, recording(name))
    graphs = [graph(seed, classes=2) for seed in range(3)]
    ERM(epochs=3)(gcn(2), Splits(graphs[:1], graphs[1:2], graphs[2:], "roc_auc", "binary"))
    assert asked == ["roc_auc"] * 3


def test_binary_losses() -> None:
    logits = torch.tensor([[0.3, -1.0], [2.0, 0.5]])
    y = torch.tensor([1, 0])
    p = logits.sigmoid()
    expected = -((1 - p[0, 0]).log() + p[0, 1].log() + p[1, 0].log() + (1 - p[1, 1]).log()) / 4
    torch.testing.assert_close(risk(logits, y, "binary"), expected)
    single = -(p[0, 0].log() + (1 - p[1, 0]).log()) / 2
    for shape in ((2,), (2, 1)):
        torch.testing.assert_close(risk(logits[:, 0].reshape(shape), y, "binary"), single)


class Recorder(nn.Module):
    """Remembers the edge weights that it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(5, 3)
        self.seen: list[tuple[bool, Tensor | None]] = []

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        self.seen.append((self.training, edge_weight))
        out: Tensor = self.linear(x)
        return out


def test_drop_edge_draws_a_fresh_mask_of_the_full_list() -> None:
    nodes, edges = 50, 2000
    data = graph(0, nodes)
    data.edge_index = torch.randint(nodes, (2, edges))
    val = copy.copy(data)
    stored = data.edge_index
    model = Recorder()
    ERM(epochs=30, drop_edge=0.3)(model, Splits([data], [val], [val]))
    trained = [weight for training, weight in model.seen if training and weight is not None]
    assert len(trained) == 30
    assert all(weight is None for training, weight in model.seen if not training)  # validation sees every edge
    shares = torch.stack([weight.mean() for weight in trained])
    assert (shares - 0.7).abs().max() < 0.06, "the drop compounds or has the wrong rate"
    assert set(torch.cat(trained).tolist()) == {0.0, 1.0}
    assert len({tuple(weight.tolist()) for weight in trained}) == 30
    assert data.edge_index is stored
    assert data.edge_weight is None


def test_drop_edge_can_compound_as_the_released_code_does() -> None:
    data, val = graph(0, 50), graph(1, 50)
    data.edge_index = torch.randint(50, (2, 4000))
    model = Recorder()
    ERM(epochs=8, drop_edge=0.3, drop_edge_compounds=True)(model, Splits([data], [val], [val]))
    trained = [weight for training, weight in model.seen if training and weight is not None]
    for epoch, weight in enumerate(trained, start=1):
        assert abs(float(weight.mean()) - 0.7**epoch) < 0.04
    assert all((later <= earlier).all() for earlier, later in itertools.pairwise(trained))
    assert len(trained) == 8 and data.edge_weight is None


def test_drop_edge_multiplies_the_weights_of_the_graph() -> None:
    data = graph(0)
    data.edge_weight = torch.full((data.edge_index.size(1),), 0.25)
    model = Recorder()
    ERM(epochs=2, drop_edge=0.5)(model, Splits([data], [data], [data]))
    trained = torch.cat([weight for training, weight in model.seen if training and weight is not None])
    assert set(trained.tolist()) == {0.0, 0.25}
    assert all(weight is data.edge_weight for training, weight in model.seen if not training)


def test_a_dropped_edge_is_a_removed_edge() -> None:
    data = graph(0)
    view = DropEdge(0.4)(data, torch.Generator().manual_seed(7))  # the first draw of the trainer's seed
    thinned = copy.copy(data)
    thinned.edge_index = data.edge_index[:, view.edge_weight > 0]
    one = ERM(epochs=1, drop_edge=0.4, seed=7)(gcn(), Splits([data], [data], [data]))
    two = ERM(epochs=1, seed=7)(gcn(), Splits([thinned], [data], [data]))
    assert thinned.num_edges < data.num_edges
    for a, b in zip(one.state_dict().values(), two.state_dict().values(), strict=True):
        torch.testing.assert_close(a, b)


def test_progress_goes_to_standard_error(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # a terminal, as far as rich can see
    monkeypatch.setenv("TERM", "xterm")
    splits = Splits([graph(0)], [graph(1)], [graph(2)])
    quiet, shown = gcn(), gcn()
    ERM(epochs=3)(quiet, splits)
    assert capsys.readouterr() == ("", "")
    ERM(epochs=3)(shown, splits, progress=True)
    out, err = capsys.readouterr()
    assert out == ""
    assert "training" in err
    assert "0:00:0" in err  # the time left
    assert all(map(torch.equal, quiet.state_dict().values(), shown.state_dict().values()))


def test_a_single_logit_learns() -> None:
    splits = embedded("breast_cancer")
    torch.manual_seed(0)
    model = ERM(epochs=60)(GCN(30, 16, 1), splits)
    test = splits.test[0]
    with torch.no_grad():
        assert score("accuracy", model(test.x, test.edge_index), test.y, test.mask) > 0.88
