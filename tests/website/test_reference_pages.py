"""The reference has a page for each public name, with an example that names it and runs as it stands."""

from __future__ import annotations

import doctest
import re
from pathlib import Path
from typing import Any

import pytest

import graphmend
from support.website import site_module

NAMES = site_module("public_names").public_names()
by_name = pytest.mark.parametrize("name", NAMES, ids=str)


def test_every_public_name_is_listed_once() -> None:
    assert {name.name for name in NAMES if name.package == "graphmend"} == set(graphmend.__all__)
    assert len({str(name) for name in NAMES}) == len(NAMES) > 150
    folded = [name.page.casefold() for name in NAMES]
    assert len(set(folded)) == len(folded), "two pages would be one file on a disk that ignores capitals"


@by_name
def test_a_name_has_a_docstring_and_an_example_that_names_it(name: Any) -> None:
    assert name.docstring, f"{name} has no docstring"
    assert "+SKIP" not in name.docstring, f"the example of {name} is not run"
    assert re.search(rf"\b{name.name}\b", name.example), (
        f"the docstring of {name} has no example (>>>) that uses {name.name}"
    )


@by_name
def test_the_example_of_a_name_runs(name: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In an empty namespace, as a reader would who copies it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GRAPHMEND_CACHE", str(tmp_path / "cache"))
    test = doctest.DocTestParser().get_doctest(name.docstring, {}, str(name), None, None)
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    told: list[str] = []
    failed, _ = doctest.DocTestRunner(optionflags=flags, verbose=False).run(test, out=told.append)
    assert not failed, "".join(told)
