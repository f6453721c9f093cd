"""Views, corruptions, purifiers, attacks, shifts and mending as steps of PyG's own pipelines."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch_geometric.transforms as T
from torch_geometric.data import Data, InMemoryDataset

from graphmend import GraphMendError, GTrans, Mend, card, mend
from graphmend.lab.attacks import GRBCD, PRBCD
from graphmend.lab.backbones import GCN
from graphmend.lab.data import SHIFTS
from graphmend.lab.data.corruptions import FeatureNoise, RandomEdges
from graphmend.transforms import VIEWS, DropEdge, Jaccard
from support.graphs import labelled
from support.untouched import assert_same, generator_states, state_of

pytestmark = pytest.mark.usefixtures("one_thread")


def model() -> GCN:
    torch.manual_seed(0)
    return GCN(5, 8, 3)


STEPS: dict[str, Any] = {
    **{name: view() for name, view in VIEWS.items()},
    **{f"shift of {name}": shift() for name, shift in SHIFTS.items()},
    "noise": FeatureNoise(),
    "random edges": RandomEdges(0.2),
    "jaccard": Jaccard(0.5, "cosine"),
    "prbcd": PRBCD(model(), budget=2, epochs=1, block_size=50),
    "grbcd": GRBCD(model(), budget=2, epochs=1, block_size=50),
    "mending": Mend(model()),
    "mending by a method": Mend(model(), GTrans(steps=2), seed=3),
}


@pytest.mark.parametrize("name", STEPS)
def test_every_transform_is_a_step_of_a_pipeline(name: str) -> None:
    data, net = labelled(30), model()
    pipeline = T.Compose([T.NormalizeFeatures(), STEPS[name], T.ToSparseTensor()])
    before = state_of(net, data)
    torch.manual_seed(1)
    with torch.random.fork_rng(devices=[]):
        found = pipeline(data)
    torch.manual_seed(1)
    with torch.random.fork_rng(devices=[]):
        expected = STEPS[name](T.NormalizeFeatures()(data))
    assert isinstance(found, Data) and torch.equal(found.x, expected.x)
    assert found.adj_t.sum() == (expected.num_edges if expected.edge_weight is None else expected.edge_weight.sum())
    seeded = len(generator_states())
    assert_same(before[seeded:], state_of(net, data)[seeded:])


def test_steps_follow_each_other_and_say_what_they_are() -> None:
    pipeline = T.Compose(
        [T.NormalizeFeatures(), DropEdge(0.2), FeatureNoise(ratio=0.1), Mend(model(), GTrans(steps=2))]
    )
    found = pipeline(labelled(30))
    assert found.x.shape == (30, 5) and "edge_weight" in found and "abnormal" in found
    lines = repr(pipeline).splitlines()
    assert lines[1:3] == ["  NormalizeFeatures(),", "  DropEdge(p=0.2),"]
    assert lines[3].startswith("  FeatureNoise(ratio=0.1, ") and lines[4].startswith("  Mend(GCN, GTrans(")
    assert repr(Mend(model())) == "Mend(GCN, Gate(embedding=None))"


def test_a_list_of_graphs_goes_through_one_by_one() -> None:
    graphs = [labelled(20, seed) for seed in range(2)]
    found = T.Compose([Jaccard(0.6, "cosine")])(graphs)
    for one, graph in zip(found, graphs, strict=True):
        assert torch.equal(one.edge_index, Jaccard(0.6, "cosine")(graph).edge_index)


class Few(InMemoryDataset):  # type: ignore[misc]
    """Two graphs in memory."""

    def __init__(self, transform: Any) -> None:
        super().__init__(None, transform)
        self.data, self.slices = self.collate([labelled(20, seed) for seed in range(2)])


def test_a_data_set_of_pyg_returns_mended_graphs() -> None:
    net = model()
    known = card(net, labelled(20, 5), task="classes")
    harmed = FeatureNoise(ratio=0.2, scale=20.0, seed=1)
    dataset = Few(T.Compose([harmed, Mend(net, card=known)]))
    for seed in range(2):
        expected = mend(net, harmed(labelled(20, seed)), card=known)
        assert torch.equal(dataset[seed].x, expected.data.x)
    assert not torch.equal(dataset[0].x, harmed(labelled(20, 0)).x)  # there was something to mend


def test_mending_as_a_transform_is_mending() -> None:
    net, data = model(), labelled(30)
    before = state_of(net, data)
    found = Mend(net, GTrans(steps=3), seed=5)(data)
    assert_same(before, state_of(net, data))
    expected = mend(net, data, GTrans(steps=3), seed=5).data
    assert torch.equal(found.x, expected.x) and torch.equal(found.edge_index, expected.edge_index)
    assert not torch.equal(found.x, data.x)


def test_what_cannot_be_mended_is_named() -> None:
    with pytest.raises(GraphMendError, match=r"must be a torch\.nn\.Module \(got str\)"):
        Mend("gcn")  # type: ignore[arg-type]
    bad = copy.copy(labelled())
    for value, message in ((torch.inf, "infinite values"), (torch.nan, "nothing but missing values")):
        bad.x = torch.full_like(bad.x, value)
        with pytest.raises(GraphMendError, match=message):
            T.Compose([Mend(model())])(bad)
