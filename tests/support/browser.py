"""A real browser for the tests of pages: whatever Chromium the machine has, through Playwright."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

WIDTHS = (360, 1600)
SCHEMES = ("light", "dark")
LEAST = 4.5  # contrast of text

CONTRAST = """() => {
  const parse = (text) => { const n = text.match(/[0-9.]+/g).map(Number); return n.length < 4 ? [...n, 1] : n; };
  const linear = (v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const light = (c) => c.slice(0, 3).map((v) => linear(v / 255))
    .reduce((sum, v, k) => sum + v * [0.2126, 0.7152, 0.0722][k], 0);
  const behind = (element) => {
    for (let e = element; e; e = e.parentElement) {
      const c = parse(getComputedStyle(e).backgroundColor);
      if (c[3] === 1) return c;
    }
    return [255, 255, 255, 1];
  };
  const poor = [], walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  let texts = 0;
  while (walker.nextNode()) {
    const text = walker.currentNode, element = text.parentElement;
    if (!text.textContent.trim() || !element.checkVisibility() || element.closest("script, style")) continue;
    const look = getComputedStyle(element), svg = element.closest("svg");
    const ink = parse(svg ? look.fill : look.color), paper = behind(element);
    const mixed = ink.slice(0, 3).map((v, k) => v * ink[3] + paper[k] * (1 - ink[3]));
    const [a, b] = [light(mixed), light(paper)].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    texts += 1;
    if (ratio < LEAST) poor.push(`${ratio.toFixed(2)}: ${text.textContent.trim().slice(0, 40)}`);
  }
  return [texts, poor];
}""".replace("LEAST", str(LEAST))

REACHABLE = """() => {
  const all = [...document.querySelectorAll("a[href], button, input, summary, select, textarea, [tabindex='0']")];
  all.forEach((element, k) => { element.dataset.key = k; });
  return all.filter((element) => element.checkVisibility() && !element.disabled).map((element) => element.dataset.key);
}"""


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser; the test is skipped, with the reason, where there is none."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not here")
    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if path is None:
        pytest.skip("no Chromium here; on Debian: apt-get install chromium")
    with sync_api.sync_playwright() as play:
        browser = play.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@contextmanager
def opened(browser: Any, path: Path, width: int = 1600, scheme: str = "light") -> Iterator[Any]:
    """A page that opens from disk; at the end it must not have complained, asked for anything or said anything."""
    page = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
    said: list[str] = []
    page.on("console", lambda message: said.append(f"console: {message.text}"))
    page.on("pageerror", lambda error: said.append(f"error: {error}"))
    page.on("dialog", lambda dialog: (said.append(f"dialog: {dialog.message}"), dialog.dismiss()))
    page.on("request", lambda request: said.append(f"request: {request.url[:80]}"))
    page.goto(path.as_uri())
    yield page
    assert said == [f"request: {path.as_uri()[:80]}"]
    page.close()


def check_layout(page: Any, width: int) -> None:
    """Nothing is wider than the screen: whoever reads need not scroll to the side."""
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    outside = """(width) => [...document.querySelectorAll("body *")].filter((e) => e.checkVisibility()
        && !e.closest(".scroll, pre, .skip, svg, .hidden") && e.getBoundingClientRect().right > width + 0.5)
        .map((e) => e.outerHTML.slice(0, 80))"""
    assert page.evaluate(outside, width) == []


def check_contrast(page: Any) -> None:
    """All text can be read."""
    texts, poor = page.evaluate(CONTRAST)
    assert texts > 20 and poor == []


def check_keyboard(page: Any) -> None:
    """The tab key reaches all that can be used, and one sees where it is."""
    wanted, reached = page.evaluate(REACHABLE), []
    for _ in range(len(wanted) + 5):
        page.keyboard.press("Tab")
        key, outline = page.evaluate(
            "() => [document.activeElement.dataset.key, getComputedStyle(document.activeElement).outlineStyle]"
        )
        if key is not None:
            assert outline != "none", f"no outline at {key}"
            reached.append(key)
    assert set(reached) >= set(wanted) and wanted


def check_names(page: Any) -> None:
    """What can be used has a name for a screen reader, headings have an order, and pictures a text."""
    nameless = """() => [...document.querySelectorAll("button, input, a[href], summary, [role=img], [role=region]")]
        .filter((e) => !(e.textContent.trim() || e.getAttribute("aria-label") || e.getAttribute("aria-labelledby")
            || (e.labels && e.labels.length))).map((e) => e.outerHTML.slice(0, 80))"""
    assert page.evaluate(nameless) == []
    levels = page.evaluate("[...document.querySelectorAll('h1, h2, h3, h4')].map((h) => Number(h.tagName[1]))")
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(b - a <= 1 for a, b in itertools.pairwise(levels))
    assert page.evaluate("document.documentElement.lang") == "en" and page.title()
