"""The page of a stream in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from graphmend.monitor import Monitor
from graphmend.monitor.page import page as page_of
from support.browser import (
    SCHEMES,
    WIDTHS,
    check_contrast,
    check_keyboard,
    check_layout,
    check_names,
    chromium,
    opened,
)
from support.streams import broken_rows, graph, model_and_card

NAMES = ["<script>alert(1)</script>", "\u202egnp.exe\u2066", "a" * 10_000]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as made:
        yield made


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    with Monitor(*model_and_card(), mends=False) as monitor:
        (folder / "empty.html").write_text(page_of(monitor), encoding="utf-8")
        for seed in range(45):
            monitor.update(graph(seed), f"day {seed}")
        (folder / "calm.html").write_text(page_of(monitor), encoding="utf-8")
        for seed in range(15):
            monitor.update(broken_rows(seed), NAMES[seed % len(NAMES)])
        monitor.update(ValueError(NAMES[0]), NAMES[2])
        assert monitor.alarm is not None
        (folder / "alarm.html").write_text(page_of(monitor, NAMES[0]), encoding="utf-8")
    return {path.stem: path for path in folder.iterdir()}


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", ["empty", "calm", "alarm"])
def test_it_is_quiet_fits_and_can_be_read(
    name: str, width: int, scheme: str, browser: Any, pages: dict[str, Path]
) -> None:
    with opened(browser, pages[name], width, scheme) as page:
        check_layout(page, width)
        check_contrast(page)
        check_names(page)
        check_keyboard(page)
        assert page.locator("polyline").count() == (0 if name == "empty" else 5)
