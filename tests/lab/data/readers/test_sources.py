"""Where data comes from: the order of places, downloads, checksums, the cache, and what is said when it fails."""

from __future__ import annotations

import hashlib
import http.client
import io
import urllib.request
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from graphmend.errors import GraphMendError
from graphmend.lab.data.published.arxiv import arxiv
from graphmend.lab.data.published.arxiv_votes import arxiv_votes
from graphmend.lab.data.published.citation import citation
from graphmend.lab.data.published.elliptic import elliptic
from graphmend.lab.data.published.fb100 import fb100
from graphmend.lab.data.published.photo import photo_graph
from graphmend.lab.data.published.planetoid import planetoid, planetoid_graph
from graphmend.lab.data.published.twitch import twitch
from graphmend.lab.data.readers.sources import Source, cache_dir, cached_arrays, data_dirs, download, find, locate
from support.processes import start_python
from support.real_data import nowhere as nowhere_fixture

nowhere = nowhere_fixture
urlopen = urllib.request.urlopen


def temporary_files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.name.startswith(".")]


def write_cora(folder: Path, label: int, **changes: object) -> Path:
    """A graph of four nodes in our own layout whose labels say where it was read."""
    folder.mkdir(parents=True, exist_ok=True)
    arrays: dict[str, object] = {
        "x_data": np.ones(4, dtype=np.float32),
        "x_indices": np.arange(4, dtype=np.int16),
        "x_indptr": np.arange(5, dtype=np.int32),
        "x_shape": np.array([4, 6]),
        "y": np.full(4, label),
        "edge_index": np.array([[0, 1, 2, 3], [1, 0, 3, 2]], dtype=np.int32),
        **{f"{part}_mask": np.arange(4) == i for i, part in enumerate(("train", "val", "test"))},
        **changes,
    }
    path = folder / "planetoid_cora.npz"
    np.savez_compressed(path, **{name: np.asarray(value) for name, value in arrays.items()})
    return path


def test_the_directory_given_comes_first_then_the_variable_then_the_cache(
    nowhere: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = tmp_path / "env"
    write_cora(cache_dir() / "data", 3)
    assert planetoid_graph("cora", nowhere).y[0] == 3
    write_cora(env, 2)
    monkeypatch.setenv("GRAPHMEND_DATA", str(env))
    assert planetoid_graph("cora", nowhere).y[0] == 2
    write_cora(nowhere, 1)
    assert planetoid_graph("cora", nowhere).y[0] == 1
    assert planetoid_graph("cora").y[0] == 2
    assert data_dirs(nowhere) == [nowhere, env, cache_dir() / "data"]
    assert find(["b", "planetoid_cora.npz"], nowhere) == nowhere / "planetoid_cora.npz" and find("b", nowhere) is None


def test_the_cache_is_where_it_is_told_to_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHMEND_CACHE", str(tmp_path / "here"))
    assert cache_dir() == tmp_path / "here"
    monkeypatch.delenv("GRAPHMEND_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_dir() == tmp_path / "xdg" / "graphmend"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_dir() == Path.home() / ".cache" / "graphmend"


def test_a_download_is_checked_and_kept_in_the_cache(nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("urllib.request.urlopen", urlopen)
    origin = nowhere / "origin.bin"
    origin.write_bytes(b"published")
    right = hashlib.sha256(b"published").hexdigest()
    source = Source("folder/file.bin", origin.as_uri(), right)
    target = cache_dir() / "data" / "folder" / "file.bin"
    with pytest.raises(GraphMendError, match=r"folder/file\.bin has the checksum .*, not 000000000000"):
        download(Source(source.path, source.url, "0" * 64))
    assert not target.exists() and not temporary_files(cache_dir())
    assert locate(source, nowhere) == target and target.read_bytes() == b"published"
    origin.unlink()
    assert locate(source, nowhere) == target  # from the cache from now on


@pytest.mark.parametrize(
    "load, file",
    [
        (lambda folder: planetoid("cora", data_dir=folder), "ind.cora.x"),
        (photo_graph, "amazon_electronics_photo.npz"),
        (lambda folder: twitch(data_dir=folder), "DE/musae_DE_edges.csv"),
        (lambda folder: fb100(data_dir=folder), "facebook100/Penn94.mat"),
        (lambda folder: citation(data_dir=folder), "acmv9.mat"),
        (lambda folder: arxiv(data_dir=folder), "arxiv.zip"),
        (lambda folder: elliptic(data_dir=folder), "elliptic_bitcoin_dataset/elliptic_txs_features.csv.zip"),
        (lambda folder: arxiv_votes(data_dir=folder), "arxiv_votes.npz"),
    ],
)
def test_without_a_network_one_sentence_says_which_file_goes_where(
    nowhere: Path, load: Callable[[Path], object], file: str
) -> None:
    with pytest.raises(GraphMendError) as caught:
        load(nowhere)
    text = str(caught.value)
    if file != "arxiv_votes.npz":  # which has no address
        assert text.startswith("cannot download https://") and "no network" in text
    assert text.endswith(f"put the file at {file} below GRAPHMEND_DATA or --data-dir")
    assert not cache_dir().exists() or not list(cache_dir().rglob("*.*"))


class Body(io.BytesIO):
    """What a server sends; an error of the network comes after it, if there is one."""

    def __init__(self, content: bytes, headers: dict[str, str], error: Exception | None = None) -> None:
        super().__init__(content)
        self.headers, self.error = headers, error

    def read(self, size: int | None = -1) -> bytes:
        piece = super().read(size)
        if not piece and self.error is not None:
            raise self.error
        return piece


WHOLE, LONG = b"published", {"Content-Length": "9"}
CUT: dict[str, tuple[Body, str]] = {
    "cut": (Body(WHOLE[:5], LONG), "ended after 5 of 9 bytes"),
    "longer": (Body(WHOLE * 2, LONG), "ended after 18 of 9 bytes"),
    "of no length": (Body(WHOLE, {}), "does not say how long the file is"),
    "cut in a chunk": (Body(WHOLE[:5], LONG, http.client.IncompleteRead(b"x")), "cannot download .*IncompleteRead"),
    "reset": (Body(WHOLE[:5], LONG, ConnectionResetError("reset by peer")), "cannot download .*reset by peer"),
    "of a bad status": (Body(b"", LONG, http.client.BadStatusLine("?")), "cannot download .*BadStatusLine"),
}


@pytest.mark.parametrize("body, said", CUT.values(), ids=CUT)
def test_what_was_cut_is_not_kept(nowhere: Path, monkeypatch: pytest.MonkeyPatch, body: Body, said: str) -> None:
    """A cached part of a file would be read again and again."""
    monkeypatch.setattr("urllib.request.urlopen", lambda *_, **__: body)
    with pytest.raises(GraphMendError, match=said) as caught:
        download(Source("file.bin", "https://nowhere.invalid/file.bin"))
    assert str(caught.value).endswith("put the file at file.bin below GRAPHMEND_DATA or --data-dir")
    assert not [path for path in cache_dir().rglob("*") if path.is_file()]


@pytest.mark.parametrize("error", [http.client.BadStatusLine("?"), http.client.InvalidURL("x"), TimeoutError("slow")])
def test_an_error_of_the_network_is_told_in_a_sentence(
    nowhere: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("urllib.request.urlopen", fails)
    with pytest.raises(GraphMendError, match=r"cannot download https://.*; put the file"):
        download(Source("file.bin", "https://nowhere.invalid/file.bin"))


def test_a_file_without_an_address(nowhere: Path) -> None:
    with pytest.raises(
        GraphMendError, match=r"a\.csv is not here and has no address to download it from; put the file"
    ):
        locate(Source("a.csv"), nowhere)
    with pytest.raises(GraphMendError, match="cannot download no-address"):
        locate(Source("a.csv", "no-address"), nowhere)


DAMAGE: dict[str, tuple[dict[str, object], str]] = {
    "node out of range": ({"edge_index": [[0, 4], [4, 0]]}, "names node 4, but the nodes are 0 to 3"),
    "negative node": ({"edge_index": [[0, -1], [-1, 0]]}, "names node -1"),
    "edges of one row": ({"edge_index": [[0, 1]]}, r"edge_index has shape \(1, 2\), not \(2, E\)"),
    "feature out of range": ({"x_indices": [0, 1, 2, 6]}, "broken compressed rows"),
    "rows that end early": ({"x_indptr": [0, 1]}, "broken compressed rows"),
    "not finite": ({"x_data": np.array([1, 1, np.nan, 1], dtype=np.float32)}, "features that are not finite"),
    "too few labels": ({"y": [0, 1]}, r"labels of shape \(2,\) for 4 nodes"),
    "mask of numbers": ({"val_mask": [0, 1, 0, 0]}, "val_mask is not one truth value per node"),
    "objects": ({"y": np.array([None, 1, 2, 3], dtype=object)}, r"is not a readable \.npz of plain arrays"),
}


@pytest.mark.parametrize("changes, said", DAMAGE.values(), ids=DAMAGE.keys())
def test_a_wrong_array_is_named(nowhere: Path, changes: dict[str, object], said: str) -> None:
    write_cora(nowhere, 0, **changes)
    with pytest.raises(GraphMendError, match=said) as caught:
        planetoid("cora", data_dir=nowhere)
    assert "planetoid_cora.npz" in str(caught.value) and "delete the file and fetch it again" in str(caught.value)


def test_a_truncated_npz(nowhere: Path) -> None:
    path = write_cora(nowhere, 0)
    whole = path.read_bytes()
    for length in (0, 10, len(whole) // 2, len(whole) - 10):
        path.write_bytes(whole[:length])
        with pytest.raises(GraphMendError, match=r"planetoid_cora\.npz is not a readable \.npz of plain arrays"):
            planetoid("cora", data_dir=nowhere)
    np.savez(path, y=np.zeros(3))
    with pytest.raises(GraphMendError, match=r"planetoid_cora\.npz has no array x_data and no x_indices"):
        planetoid("cora", data_dir=nowhere)


def test_the_cache_holds_whole_files_or_none(nowhere: Path) -> None:
    calls = []

    def build() -> dict[str, object]:
        calls.append(1)
        return {"a": np.arange(3)}

    def failing() -> dict[str, object]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cached_arrays("kind", "key", failing)
    assert not list(cache_dir().rglob("*.npz"))
    for _ in range(2):
        assert cached_arrays("kind", "key", build)["a"].tolist() == [0, 1, 2]
    assert len(calls) == 1 and not temporary_files(cache_dir())
    cached_arrays("kind", "other key", build)
    files = list((cache_dir() / "kind").iterdir())
    assert len(calls) == 2 and len(files) == 2
    for file in files:
        file.write_bytes(file.read_bytes()[:50])  # damaged by something else
    assert cached_arrays("kind", "key", build)["a"].tolist() == [0, 1, 2] and len(calls) == 3


def work_through(place: Path) -> None:
    """Build and download twenty things, as another process does at the same time."""
    checksum = hashlib.sha256(place.read_bytes()).hexdigest()
    for i in range(20):
        arrays = cached_arrays("kind", f"key {i}", lambda i=i: {"a": np.arange(10_000) * i})  # type: ignore[misc]
        path = download(Source(f"file {i}", place.as_uri(), checksum))
        assert arrays["a"][-1] == 9_999 * i and path.read_bytes() == place.read_bytes()


def test_two_processes_at_once_both_succeed(nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("urllib.request.urlopen", urlopen)
    place = nowhere / "published"
    place.write_bytes(b"go" * 1000)
    code = (
        "import sys, test_sources as t; print('ready', flush=True); t.work_through(t.Path(sys.argv[1])); print('done')"
    )
    with start_python(code, str(place)) as other:
        assert other.stdout is not None and other.stdout.readline() == "ready\n"
        work_through(place)
        assert other.communicate(timeout=60)[0] == "done\n" and other.returncode == 0
    assert len(list((cache_dir() / "kind").iterdir())) == 20 and not temporary_files(cache_dir())
