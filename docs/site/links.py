"""Says which links of the built site lead nowhere, and which pages ask another host for something.

python docs/site/links.py build/docs/html
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADED = {("script", "src"), ("img", "src"), ("iframe", "src"), ("source", "src"), ("link", "href")}
"""What a browser fetches without being asked."""
ONLY_NAMED = {"canonical", "index", "search", "next", "prev"}
"""Kinds of ``<link>`` that nothing is fetched for."""


class Page(HTMLParser):
    """The places of a page that a link may name, and its links."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.places: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        """Keep what a tag names and where it leads."""
        given = {name: value or "" for name, value in attributes}
        self.places |= {given[name] for name in ("id", "name") if name in given}
        for name in ("href", "src"):
            if name in given:
                self.links.append(given[name])
                if (tag, name) in LOADED and given.get("rel") not in ONLY_NAMED:
                    self.loaded.append(given[name])


def wrong_links(site: Path) -> Iterator[str]:
    """A sentence for each link within the site that leads nowhere, and for each request to another host."""
    files = [path for path in site.rglob("*.html") if "_static" not in path.parts]  # where the theme has templates
    pages = {path.resolve(): Page(path.read_text(encoding="utf-8")) for path in files}
    for path, page in sorted(pages.items()):
        name = path.relative_to(site.resolve())
        yield from (f"{name} loads {link}" for link in page.loaded if urlsplit(link).netloc)
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not target.exists():
                yield f"{name} links to {link}, and there is no such file"
            elif "_modules" in path.parts:
                continue  # source code leads back to a name under that of its file
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].places:
                yield f"{name} links to {link}, and there is no such place on that page"


if __name__ == "__main__":
    wrong = list(wrong_links(Path(sys.argv[1])))
    sys.exit("\n".join(wrong) if wrong else None)
