"""A page is whole, small, and inert whatever names and sentences it is given."""

from __future__ import annotations

import html
import json
import re
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
import torch
from torch_geometric.data import Data

import graphmend
from graphmend import GTrans, Identity, mend
from graphmend.errors import GraphMendError
from graphmend.lab.backbones import GCN
from graphmend.results.report import page
from graphmend.results.report.facts import Facts, Gauge
from graphmend.results.report.gather import facts_of
from graphmend.results.report.index import Row, write_index
from support.gate_cases import card_of, moved, planted, trained
from support.graphs import labelled
from support.hetero_cases import broken, papers
from support.hetero_cases import trained as trained_on_papers

pytestmark = pytest.mark.usefixtures("one_thread")

HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</script><!--",
    "{{ 7 * 7 }} {% raw %}",
    "\u202egnp.exe\u2066",
    "line\nbreak\x00\x1b[31m",
    "a" * 10_000,
]


VOID = {"meta", "link", "br", "input", "img"}


class Tags(HTMLParser):
    """Which elements a page has, with their attributes, and whether every one of them is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.all: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.all.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.all.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def named(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.all if name == tag]


def some_facts() -> Facts:
    torch.manual_seed(0)
    data = labelled(40)
    return facts_of(GTrans(steps=10, lr_feature=0.5)(GCN(5, 8, 3), data), data.y)


def text_of(facts: Facts, path: Path) -> str:
    page.write_page(path, facts)
    return path.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_names_are_inert(name: str, tmp_path: Path) -> None:
    facts = some_facts()
    plain = Tags(text_of(facts, tmp_path / "plain.html"))
    gauge = Gauge(name, "1", "at least 0", "found", True, True, 0.7)
    change = replace(facts.changes[0], name=name)
    told = {"title": name, "sentence": name, "next_step": name, "graph": name}
    text = text_of(replace(facts, gauges=(gauge,), changes=(change,), **told), tmp_path / "page.html")
    tags = Tags(text)
    for tag in ("script", "img", "style", "iframe", "form", "link", "meta"):
        assert len(tags.named(tag)) == len(plain.named(tag))
    assert not any(attribute.startswith("on") for _, attributes in tags.all for attribute in attributes)
    assert "\x1b" not in text and "\x00" not in text and "\u202e" not in text
    index = tmp_path / "index.html"
    write_index(index, [Row(name, name, name, f"{name}.html"[:200])], name)
    assert len(Tags(index.read_text(encoding="utf-8")).named("script")) == 1


def test_the_data_of_the_script_cannot_end_its_element(tmp_path: Path) -> None:
    text = text_of(some_facts(), tmp_path / "page.html")
    (data,) = re.findall(r'<script type="application/json" id="map-data">(.*?)</script>', text, re.DOTALL)
    assert set(json.loads(data)) >= {"nodes", "before", "after"} and "<" not in data
    assert "\\u003c" in page.render("page.html.j2", facts=some_facts(), map_data={"nodes": "</script>"})


def test_nothing_is_asked_for_elsewhere(tmp_path: Path) -> None:
    text = text_of(some_facts(), tmp_path / "page.html")
    assert not re.search(r"https?://|@import|url\(|fetch\(|XMLHttpRequest|\bimport\b", text)
    tags = Tags(text)
    (policy,) = [m["content"] for m in tags.named("meta") if m.get("http-equiv") == "Content-Security-Policy"]
    assert policy is not None and "default-src 'none'" in policy and "unsafe" not in policy
    assert not any("style" in attributes for _, attributes in tags.all), "the policy forbids them"
    identifiers = [attributes["id"] for _, attributes in tags.all if "id" in attributes]
    assert len(identifiers) == len(set(identifiers))
    for _, attributes in tags.all:
        for name in ("aria-labelledby", "aria-describedby", "for"):
            assert name not in attributes or attributes[name] in identifiers


def test_a_page_says_what_was_decided_whatever_it_was(tmp_path: Path) -> None:
    net, card = trained("sage"), card_of("sage")
    for data in (planted(1), moved(planted(1))):
        result = mend(net, data, card=card)
        result.report(tmp_path / "page.html", data.y, title="today.npz")
        text = html.unescape((tmp_path / "page.html").read_text(encoding="utf-8"))
        assert result.verdict is not None
        assert result.decision in text and result.sentence in text and "today.npz" in text
        assert all(item.name in text and item.cells[1] in text for item in result.verdict.evidence)
        assert f"{result.compare(data.y).accuracy_after:.1%}" in text


def test_a_large_graph_makes_no_large_page(tmp_path: Path) -> None:
    nodes = 200_000
    rng = torch.Generator().manual_seed(0)
    data = Data(x=torch.randn(nodes, 8, generator=rng), edge_index=torch.randint(nodes, (2, 2 * nodes), generator=rng))
    data.x[::50] *= 1000
    torch.manual_seed(0)
    result = graphmend.mend(GCN(8, 8, 40), data, task="classes")
    result.report(tmp_path / "page.html")
    assert (tmp_path / "page.html").stat().st_size < 2_000_000


def test_many_graphs_have_an_index_and_a_page_each(tmp_path: Path) -> None:
    net, card = trained("sage"), card_of("sage")
    bad = planted(3)
    bad.x[0, 0] = float("inf")
    results = mend(net, [planted(1), moved(planted(1)), bad], card=card)
    results.report(tmp_path / "all", y=[None, planted(1).y, None], title="a week")
    assert sorted(file.name for file in (tmp_path / "all").iterdir()) == ["graph-0.html", "graph-1.html", "index.html"]
    index = Tags((tmp_path / "all" / "index.html").read_text(encoding="utf-8"))
    links = [attributes["href"] for attributes in index.named("a")]
    assert links == ["#main", "graph-0.html", "graph-1.html"]
    text = html.unescape((tmp_path / "all" / "index.html").read_text(encoding="utf-8"))
    assert "1 left alone" in text and "1 failed" in text and results.failures[0].reason[:100] in text
    assert "Did it help?" in (tmp_path / "all" / "graph-1.html").read_text(encoding="utf-8")
    results.report(tmp_path / "one.html")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["all", "one.html"]
    with pytest.raises(GraphMendError, match=r"y must be a list with one entry for each of the 3 graphs"):
        results.report(tmp_path / "two.html", y=planted(1).y)


def test_no_graphs_at_all(tmp_path: Path) -> None:
    graphmend.Results([]).report(tmp_path / "page.html")
    assert "0 graphs" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_a_graph_with_several_types_has_a_page(tmp_path: Path) -> None:
    net, card = trained_on_papers("HeteroConv")
    data = broken(papers(), "paper")
    result = mend(net, data, card=card)
    result.report(tmp_path / "page.html", data["paper"].y)
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert Tags(text) and "paper" in text and "Did it help?" in text and 'id="map-data"' not in text


def test_a_name_that_is_no_page(tmp_path: Path) -> None:
    with pytest.raises(GraphMendError, match=r"figure\.doc'\); end the name with \.html"):
        Identity()(GCN(5, 8, 3), labelled(20)).report(tmp_path / "figure.doc")
    assert list(tmp_path.iterdir()) == []


def test_without_jinja_there_is_a_remedy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    page._environment.cache_clear()
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(GraphMendError, match=r"a report needs jinja2 .*pip install 'graphmend\[report\]'"):
        Identity()(GCN(5, 8, 3), labelled(20)).report(tmp_path / "page.html")
