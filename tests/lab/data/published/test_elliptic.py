from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.metrics import f1_score

from graphmend.errors import GraphMendError
from graphmend.lab.data.published.elliptic import FOLDER, GROUPS, elliptic, grouped_scores

STEPS = 49
PER_STEP = 3
CODES = ("1", "2", "unknown")  # the three transactions of every step, in this order


def published(folder: Path) -> Path:
    """49 steps of three transactions a -> b -> c in the published format; ids and file orders are no help."""
    base = folder / FOLDER
    base.mkdir(parents=True)
    rng = np.random.default_rng(0)
    rows, classes, edges = [], [], []
    for step in range(1, STEPS + 1):
        ids = [1_000_000 - 10 * step + k for k in range(PER_STEP)]
        for k, tx in enumerate(ids):
            features = ",".join(f"{value:.6f}" for value in [step + k / 10, *rng.standard_normal(164)])
            rows.append(f"{tx},{step},{features}")
            classes.append(f"{tx},{CODES[k]}")
        edges += [f"{ids[0]},{ids[1]}", f"{ids[1]},{ids[2]}", f"{ids[0]},{ids[1]}"]  # the last one repeated
        if step > 1:
            edges.append(f"{ids[0]},{ids[0] + 10}")  # into the step before
    rng.shuffle(classes)
    (base / "elliptic_txs_features.csv").write_text("\n".join(rows) + "\n")
    (base / "elliptic_txs_classes.csv").write_text("\n".join(["txId,class", *classes]) + "\n")
    (base / "elliptic_txs_edgelist.csv").write_text("\n".join(["txId1,txId2", *edges]) + "\n")
    return folder


@pytest.fixture
def data_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GRAPHMEND_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("GRAPHMEND_DATA", raising=False)
    return published(tmp_path / "data")


def edit(data_dir: Path, name: str, old: str, new: str) -> None:
    path = data_dir / FOLDER / f"elliptic_txs_{name}.csv"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def test_steps_labels_and_edges(data_dir: Path) -> None:
    splits = elliptic(data_dir=data_dir)
    assert (len(splits.train), len(splits.val), len(splits.test)) == (5, 5, 33)
    assert (splits.metric, splits.task) == ("macro_f1", "binary")
    graphs = [*splits.train, *splits.val, *splits.test]
    for step, graph in zip(range(7, 50), graphs, strict=True):
        assert graph.x.shape == (3, 165) and graph.x.dtype == torch.float32
        assert torch.allclose(graph.x[:, 0], step + torch.tensor([0.0, 0.1, 0.2]))
        assert graph.y.tolist() == [1, 0, -1]
        assert graph.mask.tolist() == [True, True, False]
        assert graph.edge_index.tolist() == [[0, 1], [1, 2]]  # directed, own step, once
    assert splits.meta["nodes"] == 147 and splits.meta["edges"] == 3 * 49 + 48
    assert (splits.meta["illicit"], splits.meta["licit"]) == (49, 49)
    assert splits.meta["generated"] is False


def test_cache_gives_the_same(data_dir: Path, tmp_path: Path) -> None:
    first = elliptic(data_dir=data_dir)
    assert len(list((tmp_path / "cache" / "elliptic").glob("*.npz"))) == 1
    second = elliptic(data_dir=data_dir)
    assert torch.equal(first.test[3].x, second.test[3].x)
    edit(data_dir, "classes", ",1\n", ",2\n")
    assert elliptic(data_dir=data_dir).meta["licit"] == 50  # another file, not the old cache
    assert [path for path in (tmp_path / "cache" / "elliptic").iterdir() if path.suffix != ".npz"] == []


def test_zipped_files_are_read(data_dir: Path) -> None:
    expected = elliptic(data_dir=data_dir)
    for path in list((data_dir / FOLDER).glob("*.csv")):
        with zipfile.ZipFile(path.with_suffix(".csv.zip"), "w") as archive:
            archive.write(path, path.name)
        path.unlink()
    loaded = elliptic(data_dir=data_dir)
    assert torch.equal(loaded.val[0].x, expected.val[0].x)


def test_groups_pool_their_nodes(data_dir: Path) -> None:
    splits = elliptic(data_dir=data_dir)
    assert [len(group) for group in GROUPS] == [1] + [4] * 8
    assert [index for group in splits.meta["groups"] for index in group] == list(range(33))
    generator = torch.Generator().manual_seed(0)
    logits = [torch.randn(3, 2, generator=generator) for _ in splits.test]
    scores = grouped_scores(logits, splits)
    for group, value in zip(GROUPS, scores, strict=True):
        y = np.concatenate([[1, 0] for _ in group])
        predicted = np.concatenate([logits[index][:2].argmax(1).numpy() for index in group])
        assert value == pytest.approx(f1_score(y, predicted, average="macro"))
    assert grouped_scores(logits, splits, rounded=True) == [round(value, 2) for value in scores]
    with pytest.raises(GraphMendError, match="one logits tensor per test graph"):
        grouped_scores(logits[:5], splits)


@pytest.mark.parametrize(
    ("name", "old", "new", "message"),
    [
        ("classes", "txId,class", "txId,label", "no column 'class'"),
        ("edgelist", "txId1,txId2", "from,to", "no column 'txId1'"),
        ("classes", ",unknown", ",3", "class code '3'"),
        ("edgelist", "999990,999991", "999990,5", "names transaction 5,"),
        ("classes", "999990,1", "999991,1", "lacks 1 of 147"),
        ("features", "999990,1,1.000000,", "999990,1,", "cannot be read as csv"),
        ("features", "999990,1,1.000000,", "999990,1,1.000000,0.5,", "cannot be read as csv"),
        ("features", "999990,1,1.000000,", "999990,1,many,", "many"),
        ("features", "999990,1,1.000000,", "999990,1,nan,", "NaN"),
        ("features", "999990,1,", "999990,1.5,", "whole number"),
        ("features", "999991,1,", "999990,1,", "twice"),
    ],
)
def test_damaged_csv_is_one_sentence(data_dir: Path, name: str, old: str, new: str, message: str) -> None:
    edit(data_dir, name, old, new)
    with pytest.raises(GraphMendError, match=message):
        elliptic(data_dir=data_dir)


def test_missing_step_empty_file_and_other_encodings(data_dir: Path) -> None:
    features = data_dir / FOLDER / "elliptic_txs_features.csv"
    text = features.read_text()
    features.write_text("")
    with pytest.raises(GraphMendError, match="holds no rows"):
        elliptic(data_dir=data_dir)
    features.write_bytes(text.encode().replace(b"999990", b"99999\xe9", 1))
    with pytest.raises(GraphMendError, match="UTF-8"):
        elliptic(data_dir=data_dir)
    features.write_text(text.replace(",12,", ",11,"))
    with pytest.raises(GraphMendError, match="time step 12"):
        elliptic(data_dir=data_dir)
