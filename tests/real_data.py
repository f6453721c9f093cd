"""Where the tests find real data: GRAPHMEND_DATA, or a directory beside the checkout; else they are skipped."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def data_home() -> Path | None:
    named = os.environ.get("GRAPHMEND_DATA")
    if named:
        return Path(named)
    beside = sorted(ROOT.parent.glob("*/data/planetoid_cora.npz"))
    return beside[0].parent if beside else None


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The directory with the real data, which the library is pointed to; its cache is a fresh directory."""
    found = data_home()
    if found is None or not found.is_dir():
        pytest.skip("no real data here; set GRAPHMEND_DATA")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRAPHMEND_DATA", str(found))
        patch.setenv("GRAPHMEND_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield found


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
