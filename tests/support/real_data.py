"""Where the tests find real data: GRAPHMEND_DATA, or a directory beside the checkout; else they are skipped."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def data_home() -> Path | None:
    named = os.environ.get("GRAPHMEND_DATA")
    if named:
        return Path(named)
    beside = sorted(ROOT.parent.glob("*/data/planetoid_cora.npz"))
    return beside[0].parent if beside else None


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path | None]:
    """The library is pointed to the real data, if there are any, and to a fresh cache."""
    folder = data_home()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRAPHMEND_DATA", str(folder or ""))
        patch.setenv("GRAPHMEND_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield folder


@pytest.fixture(scope="module")
def home(places: Path | None) -> Path:
    """The directory with the real data."""
    if places is None or not places.is_dir():
        pytest.skip("no real data here; set GRAPHMEND_DATA")
    return places


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty data directory with an empty cache, no network and no other place to look in."""
    monkeypatch.delenv("GRAPHMEND_DATA", raising=False)
    monkeypatch.setenv("GRAPHMEND_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("urllib.request.urlopen", _no_network)
    folder = tmp_path / "data"
    folder.mkdir()
    return folder


def _no_network(*args: object, **kwargs: object) -> None:
    raise OSError("no network")
