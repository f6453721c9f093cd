from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data

from graphmend.errors import GraphMendError
from graphmend.lab.data.corruptions import FeatureNoise
from support.graphs import labelled

NODES, WIDTH = 1000, 16


@pytest.fixture
def data() -> Data:
    generator = torch.Generator().manual_seed(0)
    edge_index = torch.randint(NODES, (2, 3000), generator=generator)
    return Data(x=torch.rand(NODES, WIDTH, generator=generator), edge_index=edge_index, y=torch.arange(NODES))


def test_only_masked_nodes_change_and_the_input_stays(data: Data) -> None:
    before = data.clone()
    mask = torch.arange(NODES) % 3 == 0
    noisy = FeatureNoise(mask, ratio=0.3)(data)
    assert "abnormal" not in data
    for key in before.keys():  # noqa: SIM118
        assert torch.equal(data[key], before[key])
    changed = (noisy.x != data.x).any(1)
    assert torch.equal(changed, noisy.abnormal)
    assert not (changed & ~mask).any()
    assert int(changed.sum()) == int(0.3 * int(mask.sum()))
    assert noisy.edge_index is data.edge_index
    assert noisy.y is data.y
    assert noisy.x.dtype == data.x.dtype


def test_is_the_protocol(data: Data) -> None:
    """Permute the candidates with seeded NumPy, take the first m, draw m x d standard normals, replace (5.2)."""
    mask = torch.arange(NODES) >= 400
    np.random.seed(7)  # noqa: NPY002
    nodes = np.random.permutation(np.arange(400, NODES))[:90]  # noqa: NPY002
    expected = data.x.clone()
    expected[nodes] = torch.from_numpy(np.random.normal(0, 1, (90, WIDTH))).float()  # noqa: NPY002
    assert torch.equal(FeatureNoise(mask, ratio=0.15, seed=7)(data).x, expected)


@pytest.mark.parametrize("scale", [0.5, 3.0])
def test_scale_is_the_standard_deviation(data: Data, scale: float) -> None:
    noisy = FeatureNoise(scale=scale, ratio=1.0)(data)
    assert noisy.abnormal.all()
    assert noisy.x.std().item() == pytest.approx(scale, rel=0.03)
    assert noisy.x.mean().item() == pytest.approx(0, abs=0.03 * scale)


@pytest.mark.parametrize(("ratio", "count"), [(0.0, 0), (0.29, 29), (0.3, 30), (0.305, 30), (1.0, 100)])
def test_count_is_rounded_down_but_not_by_float_noise(data: Data, ratio: float, count: int) -> None:
    noisy = FeatureNoise(torch.arange(NODES) < 100, ratio=ratio)(data)
    assert int(noisy.abnormal.sum()) == count


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"ratio": 1.3}, "got 1.3"),
        ({"ratio": -0.1}, r"\[0, 1\]"),
        ({"scale": float("inf")}, "finite"),
        ({"scale": -1.0}, "of at least 0"),
        ({"seed": -1}, "seed"),
        ({"nodes": torch.zeros(NODES, dtype=torch.bool)}, "marks no node"),
        ({"nodes": torch.ones(5, dtype=torch.bool)}, "one entry per node"),
        ({"kind": "salt"}, "gaussian, marginal, scale, swap, zero"),
        ({"kind": "scale", "factor": float("nan")}, "factor"),
        ({"kind": "swap", "ratio": 0.001}, r"at least two nodes \(got 1 at ratio 0.001\); raise ratio"),
    ],
)
def test_bad_input(data: Data, arguments: dict[str, float | Tensor], message: str) -> None:
    with pytest.raises(GraphMendError, match=message):
        FeatureNoise(**arguments)(data)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", [torch.uint8, torch.int64])
def test_candidates_may_be_marked_by_zeros_and_ones(data: Data, kind: torch.dtype) -> None:
    mask = torch.arange(NODES) % 3 == 0
    assert torch.equal(FeatureNoise(mask.to(kind))(data).x, FeatureNoise(mask)(data).x)


@pytest.mark.parametrize("kind", ["swap", "marginal", "zero", "scale"])
def test_feature_noise_of_every_kind(kind: str) -> None:
    data = labelled(40)
    mask = torch.arange(40) < 30
    noisy = FeatureNoise(mask, ratio=0.5, kind=kind, factor=3.0, seed=2)(data)
    assert int(noisy.abnormal.sum()) == 15
    assert torch.equal(noisy.abnormal, FeatureNoise(mask, ratio=0.5, seed=2)(data).abnormal)  # the same nodes
    assert torch.equal(noisy.x[~noisy.abnormal], data.x[~noisy.abnormal])
    new, old = noisy.x[noisy.abnormal], data.x[noisy.abnormal]
    if kind == "zero":
        assert not new.any()
    elif kind == "scale":
        assert torch.equal(new, 3 * old)
    elif kind == "swap":
        nodes = noisy.abnormal.nonzero().view(-1).tolist()
        rows = [(data.x == row).all(1).nonzero().item() for row in new]
        assert sorted(rows) == nodes  # an exchange: no row is lost and none is there twice
        assert all(row != node for row, node in zip(rows, nodes, strict=True))
    else:
        assert all(bool((data.x[:, c] == new[r, c]).any()) for r in range(15) for c in range(5))
        assert not any(bool((data.x == row).all(1).any()) for row in new)


@pytest.mark.parametrize(("ratio", "count"), [(0.0, 0), (0.05, 0), (0.2, 2), (1.0, 10)])
def test_swap_exchanges_any_number_of_rows_but_one(ratio: float, count: int) -> None:
    data = labelled(10)
    noisy = FeatureNoise(kind="swap", ratio=ratio)(data)
    assert int(noisy.abnormal.sum()) == count
    assert torch.equal((noisy.x != data.x).any(1), noisy.abnormal)
    assert torch.equal(torch.unique(noisy.x, dim=0), torch.unique(data.x, dim=0))
