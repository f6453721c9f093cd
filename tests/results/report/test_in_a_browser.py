"""The page of a result in a real browser: it is quiet, can be read, fits the screen, and all of it can be used."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from graphmend import GTrans, Results, mend
from graphmend.lab.backbones import GCN
from graphmend.results.report.facts import Gauge
from graphmend.results.report.gather import facts_of
from graphmend.results.report.page import write_page
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
from support.gate_cases import card_of, moved, planted, trained
from support.graphs import labelled
from support.hetero_cases import broken, papers
from support.hetero_cases import trained as trained_on_papers

pytest.importorskip("jinja2")
HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=https://example.org/x onerror=alert(1)>',
    "\u202egnp.exe\u2066 \u0645\u0631\u062d\u0628\u0627",
    "a" * 10_000,
    "<a href=https://example.org>" * 300,
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as made:
        yield made


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A page of each kind."""
    folder = tmp_path_factory.mktemp("pages")
    torch.manual_seed(0)
    data = labelled(40)
    GTrans(steps=10, lr_feature=0.5)(GCN(5, 8, 3), data).report(folder / "steps.html", data.y)
    net, card = trained("sage"), card_of("sage")
    changed = mend(net, moved(planted(1)), card=card)
    changed.report(folder / "changed.html", planted(1).y, title="today.npz")
    alone = mend(net, planted(1), card=card)
    alone.report(folder / "alone.html")
    bad = planted(3)
    bad.x[0, 0] = float("inf")
    Results([*mend(net, [planted(1), moved(planted(1)), bad], card=card)]).report(folder / "many.html")
    types, type_card = trained_on_papers("HeteroConv")
    mend(types, broken(papers(), "paper"), card=type_card).report(folder / "types.html")
    return {path.stem: path for path in folder.iterdir()}


KINDS = ("steps", "changed", "alone", "many", "types")


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", KINDS)
def test_it_is_quiet_and_fits_the_screen(name: str, width: int, browser: Any, pages: dict[str, Path]) -> None:
    with opened(browser, pages[name], width) as page:
        for panel in page.locator("details").all():
            panel.evaluate("e => { e.open = true; }")
        check_layout(page, width)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("name", KINDS)
def test_all_text_can_be_read(name: str, scheme: str, browser: Any, pages: dict[str, Path]) -> None:
    with opened(browser, pages[name], scheme=scheme) as page:
        check_contrast(page)


@pytest.mark.parametrize("name", KINDS)
def test_the_keyboard_reaches_everything_and_all_has_a_name(name: str, browser: Any, pages: dict[str, Path]) -> None:
    with opened(browser, pages[name]) as page:
        check_names(page)
        check_keyboard(page)


def test_the_slider_moves_the_points(browser: Any, pages: dict[str, Path]) -> None:
    with opened(browser, pages["changed"]) as page:
        pixels = "document.getElementById('map').toDataURL()"
        after = page.evaluate(pixels)
        page.focus("#time")
        page.keyboard.press("Home")
        assert page.input_value("#time") == "0" and page.evaluate(pixels) != after
        assert page.get_attribute("#time", "aria-valuetext").startswith("0 %")
        page.keyboard.press("End")
        assert page.evaluate(pixels) == after


def test_a_node_shows_its_neighbourhood_by_number_and_by_click(browser: Any, pages: dict[str, Path]) -> None:
    result = mend(trained("sage"), moved(planted(1)), card=card_of("sage"))
    facts = facts_of(result)
    assert facts.map is not None and len(facts.map.nodes) == 400
    closely = {node.node for node in facts.nodes}
    plain = next(node for node in range(400) if node not in closely and facts.map.around[node][0] > 1)
    with opened(browser, pages["changed"], 360) as page:
        page.fill("#wanted", str(plain))
        page.press("#wanted", "Enter")
        said = page.inner_text("#said")
        total, *rest = facts.map.around[plain]
        assert said.startswith(f"Node {plain}: class ") and f"{total} neighbours" in said and "result.explain" in said
        assert page.locator("#around circle:not(.ring)").count() == min(total, 12) + 1
        drawn = page.locator("#around text").all_text_contents()
        assert drawn == [str(other) for other in rest[::4]]

        node = next(iter(closely - {facts.nodes[0].node}))
        box = page.locator("#map").bounding_box()
        x, y = facts.map.after[2 * node], facts.map.after[2 * node + 1]
        unit, edge = box["width"] * 0.94 / 1000, box["width"] * 0.03
        page.locator("#map").click(position={"x": edge + unit * x, "y": box["width"] - edge - unit * y})
        shown = page.inner_text("#said")
        chosen = int(shown.split(":")[0].removeprefix("Node "))
        near = [facts.map.after[2 * chosen] - x, facts.map.after[2 * chosen + 1] - y]
        assert sum(value * value for value in near) ** 0.5 * unit < 24, "the node that was clicked, or one beside it"
        page.fill("#wanted", str(node))
        page.press("#wanted", "Enter")
        assert page.locator(f"#node-{node}").get_attribute("open") is not None, "its explanation opens"
        page.fill("#wanted", "399999")
        page.evaluate("document.getElementById('wanted').max = ''")
        page.press("#wanted", "Enter")
        assert "not among" in page.inner_text("#said")


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_names_are_inert(name: str, width: int, browser: Any, tmp_path: Path) -> None:
    result = mend(trained("sage"), moved(planted(1)), card=card_of("sage"))
    facts = facts_of(result, title=name)
    change = replace(facts.changes[0], name=name)
    gauge = Gauge(name, "1", "at least 0", "found", True, True, 0.7)
    write_page(
        tmp_path / "page.html",
        replace(facts, sentence=name, next_step=name, gauges=(gauge,), changes=(change,), made=((name, name),)),
    )
    with opened(browser, tmp_path / "page.html", width) as page:
        check_layout(page, width)
        assert page.locator("img").count() == 0 and page.locator("a").count() == 1
        assert page.locator("h2").first.evaluate("e => getComputedStyle(e).direction") == "ltr"
