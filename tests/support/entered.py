"""A pytest plugin that writes down which functions of the package a test file enters, and which of its tests fail.

``tests/mutants.py`` runs each test file once with it (``-p support.entered``) and then knows which files to ask about a
fault in a function. The variable ``ENTERED`` names the JSON file.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path
from types import CodeType, FrameType

import pytest

_codes: set[CodeType] = set()
_failed: set[str] = set()


def _note(frame: FrameType, event: str, _: object) -> None:
    _codes.add(frame.f_code)


def _start() -> None:
    threading.settrace(_note)
    sys.settrace(_note)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    _start()  # a test may have taken the tracer away


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.failed:
        _failed.add(report.nodeid)


def pytest_sessionfinish() -> None:
    sys.settrace(None)
    threading.settrace(None)  # type: ignore[arg-type]
    mark = f"{os.sep}src{os.sep}graphmend{os.sep}"
    inside = [code for code in _codes if mark in code.co_filename]
    names = sorted({f"{code.co_filename.split(mark)[1]}:{code.co_qualname}" for code in inside})
    Path(os.environ["ENTERED"]).write_text(json.dumps({"entered": names, "failed": sorted(_failed)}))


_start()
