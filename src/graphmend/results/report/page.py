"""Facts as one HTML page: nothing is loaded from elsewhere, and no part of a name is taken for markup.

The page's own rule (its content security policy) allows exactly its own style and script, identified by their digests,
and no request at all. Every text goes through Jinja's escaping, and numbers for the script are JSON in which ``<`` is
escaped, so that no name can end the element that it stands in.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphmend.errors import optional_module, printable, require
from graphmend.files.files import write_text
from graphmend.results import style
from graphmend.results.report import charts
from graphmend.results.report.facts import BINS, Facts, Map
from graphmend.results.report.gather import facts_of
from graphmend.results.report.look import policy, style_sheet, text_of

if TYPE_CHECKING:
    from graphmend.results.adaptation import Adaptation

__all__ = ["check_page", "render", "write_page", "write_report"]

_INSTALL = "install it with: pip install 'graphmend[report]'"
ENDINGS = (".html", ".htm")
LONGEST = 300  # characters of a name or a sentence from elsewhere


def write_report(path: str | Path, result: Adaptation, y: Any = None, mask: Any = None, title: str = "") -> None:
    """Write the page of a result; see :meth:`graphmend.Adaptation.report`."""
    check_page(path)
    write_page(path, facts_of(result, y, mask, title))


def write_page(path: str | Path, facts: Facts) -> None:
    """Write a page of facts, completely or not at all."""
    write_text(path, render("page.html.j2", facts=facts, map_data=_map_data(facts.map)))


def check_page(path: str | Path) -> None:
    """Raise, before any work is done, unless a page can be made and its name is valid."""
    _environment()
    ending = Path(path).suffix.lower()
    require(ending in ENDINGS, f"a report is a page (got {str(path)!r}); end the name with .html")


def render(template: str, **values: Any) -> str:
    """A page from one of the templates in this folder."""
    css, script = style_sheet(), text_of("script.js")
    page: str = (
        _environment().get_template(template).render(css=css, script=script, policy=policy(css, script), **values)
    )
    return page


@functools.cache
def _environment() -> Any:
    jinja2 = optional_module("jinja2", "a report", _INSTALL)
    made = jinja2.Environment(
        loader=jinja2.FunctionLoader(text_of),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_without_controls,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"colour": _colour, "short": _short, "number": _number, "percent": _percent}
    made.globals |= {"charts": charts, "bins": BINS}
    return made


def _colour(group: int) -> str:
    """The name of a class's colour in the style sheet."""
    return f"c{min(group, style.CLASSES)}"


def _short(text: str) -> str:
    """A text from elsewhere, cut off if it is very long."""
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}\N{HORIZONTAL ELLIPSIS}"


def _without_controls(value: Any) -> Any:
    """Every text from elsewhere without the characters that would reorder or hide text around it."""
    return printable(value) if type(value) is str else value


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"


def _percent(value: float) -> str:
    return f"{value:.1%}"


def _map_data(drawn: Map | None) -> dict[str, Sequence[Any]] | None:
    if drawn is None:
        return None
    return {
        "nodes": drawn.nodes,
        "before": drawn.before,
        "after": drawn.after,
        "old": drawn.old,
        "new": drawn.new,
        "changed": drawn.changed,
        "sure": drawn.sure,
        "around": drawn.around,
        "circle": drawn.circle,
        "moved": drawn.rows_changed,
        "last": (style.CLASSES if drawn.has_classes else -1,),
    }
