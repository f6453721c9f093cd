"""Every page of the gallery runs as it stands, from an empty folder; what it asserts holds."""

from __future__ import annotations

import ast
import importlib.util
import runpy
from pathlib import Path

import pytest

from graphmend.adapters import ADAPTERS
from support.website import ROOT

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def missing_packages(example: Path) -> list[str]:
    """What an example imports and is not installed."""
    nodes = list(ast.walk(ast.parse(example.read_text(encoding="utf-8"))))
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module}
    return sorted({name.split(".")[0] for name in names if importlib.util.find_spec(name.split(".")[0]) is None})


def test_the_gallery_has_a_page_for_each_of_these() -> None:
    assert {example.stem for example in EXAMPLES} >= {
        *("quick_start", "own_model", "no_labels_no_card", "ask", "attack", "many_graphs", "stream", "scale"),
        *("heterogeneous", "own_method", "serving", "transform", "training_tools"),
    }


# Lightning itself uses what torch has deprecated, and says that a loader of one graph has no workers
@pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning", "ignore:.*does not have many workers:UserWarning")
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.stem)
def test_an_example_runs(example: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = missing_packages(example)
    if missing:
        pytest.skip(f"needs {', '.join(missing)}: pip install 'graphmend[docs]'")
    monkeypatch.chdir(tmp_path)
    registered = dict(ADAPTERS)
    runpy.run_path(str(example))
    assert registered == ADAPTERS, "an example must not leave anything behind"
