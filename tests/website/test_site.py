"""What can be said about the site without building it; ``make docs`` builds it and fails at every warning."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from support.website import ROOT, site_module

DOCS = ROOT / "docs"
PAGES = [*DOCS.glob("*.md"), *(DOCS / "how-to").glob("*.md"), DOCS / "results" / "beyond.md"]


def listed() -> set[str]:
    """The pages that a table of contents names."""
    found = set()
    for page in PAGES:
        for block in re.findall(r"^```\{toctree\}\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S):
            entries = [line for line in block.splitlines() if line and not line.startswith(":")]
            found |= {re.sub(r".*<(.*)>", r"\1", entry) for entry in entries}
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_page_is_in_a_table_of_contents(page: Path) -> None:
    assert str(page.relative_to(DOCS).with_suffix("")) in listed() | {"index"}


def test_a_table_of_contents_names_pages_that_are_there() -> None:
    built = {"api/index", "gallery/index", "results/tables/*"}
    assert not {name for name in listed() - built if not (DOCS / f"{name}.md").exists()}


def test_links_that_lead_nowhere_and_requests_to_others_are_found(tmp_path: Path) -> None:
    (tmp_path / "_static").mkdir()
    (tmp_path / "_static" / "theme.html").write_text("<a href='{{ template }}'>")
    (tmp_path / "b c.html").write_text("<h1 id='here'>")
    (tmp_path / "a.html").write_text(
        "<p id=top><a href='b%20c.html#here'></a><a href='#top'></a><a href='https://example.org'></a>"
        "<a href='b%20c.html#there'></a><a href='none.html'></a><script src='https://example.org/x.js'></script>"
        "<link rel='canonical' href='https://example.org'>"
    )
    assert list(site_module("links").wrong_links(tmp_path)) == [
        "a.html loads https://example.org/x.js",
        "a.html links to b%20c.html#there, and there is no such place on that page",
        "a.html links to none.html, and there is no such file",
    ]
