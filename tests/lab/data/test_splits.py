from __future__ import annotations

import pytest
import torch
from torch_geometric.data import Data

from graphmend.errors import GraphMendError
from graphmend.lab.data import Splits, masked, node_labels, node_mask
from support.graphs import DEVICES


def graph(**more: object) -> Data:
    return Data(x=torch.zeros(3, 1), edge_index=torch.zeros(2, 0, dtype=torch.long), **more)


def three_masks() -> dict[str, torch.Tensor]:
    return {f"{part}_mask": torch.arange(3) == i for i, part in enumerate(("train", "val", "test"))}


def test_bad_splits() -> None:
    data = graph()
    with pytest.raises(GraphMendError, match="val must hold"):
        Splits([data], [], [data])
    with pytest.raises(GraphMendError, match="unknown task"):
        Splits([data], [data], [data], task="regression")
    with pytest.raises(GraphMendError, match="unknown metric"):
        Splits([data], [data], [data], metric="auc")


def test_one_graph_under_three_masks() -> None:
    data = graph(y=torch.arange(3), **three_masks())
    splits = Splits.transductive(data, metric="macro_f1", task="binary", meta={"name": "three"})
    assert (splits.metric, splits.task, splits.meta) == ("macro_f1", "binary", {"name": "three"})
    for part, graphs in splits.parts.items():
        assert len(graphs) == 1 and graphs[0].mask is data[f"{part}_mask"]
        assert all(graphs[0][key] is data[key] for key in data.to_dict())  # shared, not copied
    assert "mask" not in data
    with pytest.raises(GraphMendError, match=r"has no test_mask, val_mask; set all of train_mask, val_mask, test_mask"):
        Splits.transductive(graph(train_mask=torch.ones(3, dtype=torch.bool)))


@pytest.mark.parametrize("device", [*DEVICES, "meta"])
def test_splits_on_another_device_are_copies(device: str) -> None:
    splits = Splits.transductive(graph(**three_masks()), meta={"name": "three"})
    moved = splits.to(device)
    assert moved.meta == splits.meta and moved.test[0] is not splits.test[0]
    assert all(data.x.device.type == data.mask.device.type == device for part in moved.parts.values() for data in part)
    assert splits.test[0].x.device.type == "cpu"


def test_node_mask() -> None:
    data = graph()
    assert node_mask(data).tolist() == [True, True, True]
    mask = torch.tensor([True, False, True])
    assert node_mask(masked(data, mask)) is mask and "mask" not in data
    for kind in (torch.uint8, torch.int64):
        assert torch.equal(node_mask(masked(data, mask.to(kind))), mask)
    assert not node_mask(masked(data, mask ^ mask)).any()  # a graph without labels may stand among others
    with pytest.raises(GraphMendError, match="index_to_mask"):
        node_mask(masked(data, torch.tensor([0, 2])))


@pytest.mark.parametrize("kind", [torch.uint8, torch.int64])
def test_masks_of_zeros_and_ones_make_the_same_splits(kind: torch.dtype) -> None:
    expected = Splits.transductive(graph(**three_masks()))
    found = Splits.transductive(graph(**{name: mask.to(kind) for name, mask in three_masks().items()}))
    for part in expected.parts:
        assert torch.equal(found.parts[part][0].mask, expected.parts[part][0].mask)


@pytest.mark.parametrize("name", ["train_mask", "val_mask", "test_mask"])
def test_a_mask_of_a_transductive_set_marks_nodes(name: str) -> None:
    for wrong in (torch.zeros(3, dtype=torch.bool), torch.ones(3, 10, dtype=torch.bool)):
        with pytest.raises(GraphMendError, match=name):
            Splits.transductive(graph(**{**three_masks(), name: wrong}))


def test_labels_of_the_nodes_that_count() -> None:
    data = masked(graph(y=torch.tensor([[2.0], [torch.nan], [1.0]])), torch.tensor([1, 0, 1]))
    assert node_labels(data).tolist() == [2, 1]
    data.y = torch.ones(3, 2)
    with pytest.raises(GraphMendError, match=r"data.y must have one label per node, 3 in all \(got shape \(3, 2\)\)"):
        node_labels(data)
    data.y = None
    with pytest.raises(GraphMendError, match="no labels y"):
        node_labels(data)
