"""The Facebook loader on small files in the published format."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from scipy.io import savemat

from graphmend.errors import GraphMendError
from graphmend.graph.checks import check_graph
from graphmend.lab.data.published.fb100 import COLUMNS, SCHOOLS, fb100, one_hot
from support.real_data import nowhere as nowhere_fixture

Array = np.ndarray[Any, Any]


nowhere = nowhere_fixture


def attributes_of(school: str, nodes: int) -> Array:
    rng = np.random.default_rng(sum(map(ord, school)))
    info = np.column_stack([rng.integers(0, 3, nodes) for _ in range(7)])
    info[:, COLUMNS["status"]] = rng.integers(0, 2, nodes)  # two values in all
    info[:, COLUMNS["year"]] = 2000 + len(school)
    return info


def write_school(folder: Path, school: str, nodes: int = 12, gender: int | None = None) -> Array:
    (folder / "facebook100").mkdir(exist_ok=True)
    info = attributes_of(school, nodes)
    if gender is not None:
        info[:, 1] = gender
    ring = np.roll(np.eye(nodes), 1, axis=1)
    savemat(
        folder / "facebook100" / f"{school}.mat",
        {"A": sp.csc_matrix(ring + ring.T), "local_info": info.astype(np.uint16)},
        do_compression=True,
    )
    return info


def test_facebook_with_all_schools(nowhere: Path) -> None:
    tables = {school: write_school(nowhere, school, 10 + i) for i, school in enumerate(SCHOOLS)}
    (nowhere / "facebook100/JohnsHopkins55.mat").rename(nowhere / "facebook100/Johns Hopkins55.mat")
    splits = fb100(data_dir=nowhere)
    assert splits.meta["name"] == "fb100" and splits.meta["stand_ins"] == {}
    assert sorted(splits.meta["schools"]) == sorted(SCHOOLS) and len(SCHOOLS) == 18
    assert splits.meta["graphs"]["test"] == ["Penn94", "Brown11", "Texas80"]
    values = {name: np.unique(np.concatenate([t[:, c] for t in tables.values()])) for name, c in COLUMNS.items()}
    width = sum(len(v) if len(v) > 2 else 1 for v in values.values())
    assert len(values["status"]) == 2 and width == splits.meta["features"]
    graphs = {"Penn94": splits.test[0], "JohnsHopkins55": splits.train[0], "Yale4": splits.val[1]}
    for school, graph in graphs.items():
        check_graph(graph)
        info = tables[school]
        assert graph.y.tolist() == [int(code == 2) for code in info[:, 1]]
        assert graph.num_edges == 2 * len(info) and graph.is_undirected()
        expected = np.concatenate(
            [info[:, :1] == 1, *[info[:, [c]] == values[name] for name, c in COLUMNS.items() if name != "status"]],
            axis=1,
        )
        assert np.array_equal(graph.x.numpy(), expected.astype(np.float32))


def test_facebook_with_stand_ins_and_other_triples(nowhere: Path) -> None:
    here = [school for school in SCHOOLS if school not in ("Texas80", "Reed98")]
    for school in (*here, "Oklahoma97", "Rutgers89"):
        write_school(nowhere, school)
    splits = fb100(data_dir=nowhere, triple=1)
    assert splits.meta["name"] == "fb100-standin" and splits.meta["stand_ins"] == {"Texas80": "Oklahoma97"}
    assert splits.meta["graphs"]["test"] == ["Penn94", "Brown11", "Oklahoma97"]
    assert splits.meta["graphs"]["train"] == ["Bingham82", "Duke14", "Princeton12"]
    assert sorted(splits.meta["schools"]) == sorted([*here, "Oklahoma97"])
    assert fb100(data_dir=nowhere, triple=2).meta["graphs"]["train"] == ["WashU32", "Brandeis99", "Carnegie49"]
    with pytest.raises(GraphMendError, match=r"triple must be 0, 1 or 2 .got 3"):
        fb100(data_dir=nowhere, triple=3)
    (nowhere / "facebook100/Yale4.mat").unlink()
    with pytest.raises(GraphMendError, match=r"cannot download .*Yale4\.mat.*put the file at facebook100/Yale4\.mat"):
        fb100(data_dir=nowhere)


def test_facebook_in_both_layouts_at_once(nowhere: Path) -> None:
    arrays: dict[str, Array] = {}
    for school in SCHOOLS:
        if school not in ("Penn94", "Texas80"):
            arrays[f"{school}_local_info"] = attributes_of(school, 12).astype(np.int32)
            arrays[f"{school}_edges"] = np.array([[0, 1], [1, 2]], dtype=np.uint16)
    np.savez(nowhere / "facebook100.npz", **arrays)
    for school in ("Penn94", "Texas80"):
        write_school(nowhere, school)
    splits = fb100(data_dir=nowhere)
    assert splits.meta["name"] == "fb100"
    assert splits.test[0].num_edges == 24 and splits.test[1].num_edges == 4
    assert splits.train[0].edge_index.dtype == torch.int64


def test_gender_is_not_among_the_features(nowhere: Path) -> None:
    for school in (*SCHOOLS[:8], *SCHOOLS[8:]):
        write_school(nowhere, school)
    before = fb100(data_dir=nowhere).test[0]
    for school in SCHOOLS:
        write_school(nowhere, school, gender=2)
    after = fb100(data_dir=nowhere).test[0]
    assert after.y.tolist() == [1] * 12 != before.y.tolist() and torch.equal(after.x, before.x)


def test_damaged_facebook_files(nowhere: Path) -> None:
    for school in SCHOOLS:
        write_school(nowhere, school)
    path = nowhere / "facebook100/Yale4.mat"
    whole = path.read_bytes()
    for content in (b"", b"MATLAB", whole[: len(whole) // 2], whole[:130]):
        path.write_bytes(content)
        with pytest.raises(GraphMendError, match=r"Yale4\.mat (is not a readable MATLAB file|has no variable)"):
            fb100(data_dir=nowhere)
    savemat(path, {"local_info": attributes_of("Yale4", 5)})
    with pytest.raises(GraphMendError, match=r"Yale4\.mat has no variable A; delete"):
        fb100(data_dir=nowhere).val[1]
    savemat(path, {"local_info": np.zeros((3, 4))})
    with pytest.raises(GraphMendError, match="are not a table of seven columns"):
        fb100(data_dir=nowhere)
    savemat(path, {"local_info": attributes_of("Yale4", 5), "A": sp.csc_matrix(np.eye(4))})
    with pytest.raises(GraphMendError, match=r"A has shape \(4, 4\)"):
        fb100(data_dir=nowhere).val[1]


def test_one_hot_of_few_values() -> None:
    codes = np.zeros((3, 7), dtype=np.int64)
    codes[:, 5] = [1, 3, 3]
    x = one_hot(codes, {"year": np.array([1, 3]), "major": np.array([0])})
    assert x.tolist() == [[0.0, 0.0], [1.0, 0.0], [1.0, 0.0]]
