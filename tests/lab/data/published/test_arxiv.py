from __future__ import annotations

import gzip
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from graphmend.errors import GraphMendError
from graphmend.lab.data.published.arxiv import DATASETS, arxiv, arxiv_ood
from support.small_files import EDGES, YEARS

LABELS = [0, 1, 2, 3, 0, 1, 2, 3, 0, 1]
X = np.random.default_rng(0).standard_normal((10, 4)).astype(np.float32).round(4)


def write_gz(path: Path, rows: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wt") as file:
        file.write("\n".join(rows) + "\n")


def published(folder: Path, name: str = "ogbn_arxiv") -> Path:
    """Ten papers in OGB's raw layout."""
    raw, split = folder / name / "raw", folder / name / "split" / "time"
    write_gz(raw / "edge.csv.gz", [f"{a},{b}" for a, b in EDGES])
    write_gz(raw / "node-feat.csv.gz", [",".join(map(str, row)) for row in X.tolist()])
    write_gz(raw / "node-label.csv.gz", [str(label) for label in LABELS])
    write_gz(raw / "node_year.csv.gz", [str(year) for year in YEARS])
    write_gz(raw / "num-node-list.csv.gz", ["10"])
    write_gz(raw / "num-edge-list.csv.gz", [str(len(EDGES))])
    write_gz(split / "train.csv.gz", [str(i) for i, year in enumerate(YEARS) if year <= 2017])
    write_gz(split / "valid.csv.gz", ["6"])
    write_gz(split / "test.csv.gz", ["7", "8"])
    return folder


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GRAPHMEND_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("GRAPHMEND_DATA", raising=False)
    return tmp_path / "cache"


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    return published(tmp_path / "data")


def test_official_split_and_old_normalisation(data_dir: Path) -> None:
    splits = arxiv(data_dir=data_dir)
    graph = splits.test[0]
    x = torch.from_numpy(X)
    assert torch.allclose(graph.x, x / x.sum(1, keepdim=True).clamp(min=1))
    assert (graph.is_undirected() and not graph.is_sorted(sort_by_row=True)) or graph.is_undirected()
    pairs = {frozenset(edge) for edge in EDGES}
    assert graph.num_edges == 2 * len(pairs)
    assert {frozenset(edge) for edge in graph.edge_index.t().tolist()} == pairs
    assert splits.train[0].mask.tolist() == [year <= 2017 for year in YEARS]
    assert splits.val[0].mask.tolist() == [year == 2018 for year in YEARS]
    assert graph.mask.tolist() == [year >= 2019 for year in YEARS]
    assert torch.equal(graph.mask, graph.test_mask)
    assert splits.train[0].x is graph.x


def test_periods_are_cumulative_directed_and_masked(data_dir: Path) -> None:
    splits = arxiv_ood(data_dir=data_dir)
    assert (len(splits.train), len(splits.val), len(splits.test)) == (1, 1, 3)
    assert "mask" not in splits.train[0]
    lowers = [None, 2011, 2014, 2016, 2018]
    uppers = [2011, 2014, 2016, 2018, 2020]
    for lower, upper, graph in zip(lowers, uppers, [*splits.train, *splits.val, *splits.test], strict=True):
        kept = [node for node, year in enumerate(YEARS) if year <= upper]
        edges = [(a, b) for a, b in EDGES if a in kept and b in kept]
        degree = {node: sum(node in edge for edge in edges) for node in kept}
        order = sorted(kept, key=lambda node: -degree[node])  # stable
        assert torch.equal(graph.x, torch.from_numpy(X[order]))  # raw
        assert graph.y.tolist() == [LABELS[node] for node in order]
        assert [(order[a], order[b]) for a, b in graph.edge_index.t().tolist()] == edges
        if lower is not None:
            assert graph.mask.tolist() == [YEARS[node] > lower for node in order]


def test_npz_and_zip_give_the_same(data_dir: Path, tmp_path: Path) -> None:
    expected = arxiv_ood(data_dir=data_dir)
    plain = tmp_path / "plain"
    plain.mkdir()
    edge_index = np.array(EDGES).T
    np.savez(plain / "arxiv.npz", x=X, edge_index=edge_index, y=np.array(LABELS)[:, None], year=np.array(YEARS))
    archive = tmp_path / "zip" / "arxiv.zip"
    archive.parent.mkdir()
    published(tmp_path / "unpacked", "arxiv")
    with zipfile.ZipFile(archive, "w") as file:
        for path in sorted((tmp_path / "unpacked").rglob("*.gz")):
            file.write(path, path.relative_to(tmp_path / "unpacked"))
    for folder in (plain, archive.parent, tmp_path / "unpacked"):
        loaded = arxiv_ood(data_dir=folder)
        for one, other in zip([*loaded.val, *loaded.test], [*expected.val, *expected.test], strict=True):
            assert torch.equal(one.x, other.x)
            assert torch.equal(one.edge_index, other.edge_index)
            assert torch.equal(one.mask, other.mask)


def test_measured_statistics_have_the_published_keys(data_dir: Path) -> None:
    for dataset in DATASETS.values():
        measure = dataset.measure
        assert measure is not None
        measured = measure(dataset.load(data_dir=data_dir))
        for name, values in dataset.published.items():
            assert set(values) <= set(measured[name])


@pytest.mark.parametrize(
    ("name", "rows", "message"),
    [
        ("raw/edge", ["0,1", "3,10"], "promises 13"),
        ("raw/edge", ["0,10", *(f"{a},{b}" for a, b in EDGES[1:])], "names node 10"),
        ("raw/edge", ["0,-1", *(f"{a},{b}" for a, b in EDGES[1:])], "names node -1"),
        ("raw/edge", ["0,1", "2"], "cannot be read as csv"),
        ("raw/node-label", ["1", "2"], "2 labels"),
        ("raw/node-feat", ["1,x,2"], "cannot be read as csv"),
        ("raw/node_year", ["1999"] * 10, "not the split by year"),
        ("split/time/valid", ["5"], "not the split by year"),
        ("raw/num-node-list", ["11"], "promises 11"),
    ],
)
def test_damaged_raw_files(data_dir: Path, name: str, rows: list[str], message: str) -> None:
    write_gz(data_dir / "ogbn_arxiv" / f"{name}.csv.gz", rows)
    with pytest.raises(GraphMendError, match=message):
        arxiv(data_dir=data_dir)


def test_truncated_gz_non_utf8_and_missing_files(data_dir: Path, cache: Path) -> None:
    path = data_dir / "ogbn_arxiv" / "raw" / "node-feat.csv.gz"
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(GraphMendError, match=r"node-feat\.csv\.gz cannot be read"):
        arxiv(data_dir=data_dir)
    path.write_bytes(gzip.compress(b"1,2\n3,\xff\n"))
    with pytest.raises(GraphMendError, match="UTF-8"):
        arxiv(data_dir=data_dir)
    path.unlink()
    with pytest.raises(GraphMendError, match=r"there is no file .*node-feat\.csv\.gz"):
        arxiv(data_dir=data_dir)
    assert not list(cache.rglob("*"))  # nothing half-written


def test_bad_npz(tmp_path: Path) -> None:
    np.savez(tmp_path / "arxiv.npz", x=X, edge_index=np.array(EDGES).T, y=np.array(LABELS))
    with pytest.raises(GraphMendError, match="no array year"):
        arxiv(data_dir=tmp_path)
    np.savez(tmp_path / "arxiv.npz", x=X, edge_index=np.array(EDGES).T, y=np.array(LABELS), year=np.full(10, 2000))
    with pytest.raises(GraphMendError, match="val_mask is empty"):
        arxiv(data_dir=tmp_path)
    with pytest.raises(GraphMendError, match="no paper has a year in"):
        arxiv_ood(data_dir=tmp_path)
    (tmp_path / "arxiv.npz").write_bytes(b"PK\x03\x04 cut")
    with pytest.raises(GraphMendError, match="not a readable"):
        arxiv(data_dir=tmp_path)
