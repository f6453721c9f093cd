"""Facts as one page of HTML: nothing is loaded from elsewhere, and nothing that a name holds is taken for markup.

The page's own rule (its content security policy) allows exactly its own style and script, told by their digests, and
no request at all. Every text goes through Jinja's escaping, and numbers for the script are JSON in which ``<`` is
escaped, so that no name can end the element that it stands in.
"""

from __future__ import annotations

import base64
import functools
import hashlib
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphmend.errors import optional_module, printable, require
from graphmend.files.files import write_text
from graphmend.results import style
from graphmend.results.report import charts
from graphmend.results.report.facts import BINS, Facts, Map
from graphmend.results.report.gather import facts_of

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
    """Write a page of facts, all of it or nothing."""
    write_text(path, render("page.html.j2", facts=facts, map_data=_map_data(facts.map)))


def check_page(path: str | Path) -> None:
    """Raise, before any work is done, unless a page can be made and the name is that of one."""
    _environment()
    ending = Path(path).suffix.lower()
    require(ending in ENDINGS, f"a report is a page (got {str(path)!r}); end the name with .html")


def render(template: str, **values: Any) -> str:
    """A page from one of the templates in this folder."""
    css, script = _text("style.css") + _palette(), _text("script.js")
    policy = (
        f"default-src 'none'; style-src '{_digest(css)}'; script-src '{_digest(script)}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    page: str = _environment().get_template(template).render(css=css, script=script, policy=policy, **values)
    return page


@functools.cache
def _environment() -> Any:
    jinja2 = optional_module("jinja2", "a report", _INSTALL)
    made = jinja2.Environment(
        loader=jinja2.FunctionLoader(_text),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_without_controls,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"colour": _colour, "short": _short, "number": _number, "percent": _percent}
    made.globals |= {"charts": charts, "bins": BINS}
    return made


def _text(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _palette() -> str:
    """The colours of classes, lighter on a dark page."""
    light = "".join(f"--c{k}:{colour};" for k, colour in enumerate((*style.COLOURS, style.OTHERS)))
    dark = "".join(f"--c{k}:{_lighter(colour)};" for k, colour in enumerate((*style.COLOURS, style.MUTED)))
    fills = "".join(f".c{k}{{fill:var(--c{k})}}" for k in range(style.CLASSES + 1))
    return f":root{{{light}}}@media (prefers-color-scheme:dark){{:root{{{dark}}}}}{fills}\n"


def _lighter(colour: str, share: float = 0.3) -> str:
    parts = [int(colour[place : place + 2], 16) for place in (1, 3, 5)]
    return "#" + "".join(f"{round(part + share * (255 - part)):02x}" for part in parts)


def _colour(group: int) -> str:
    """The name of a class's colour in the style sheet."""
    return f"c{min(group, style.CLASSES)}"


def _short(text: str) -> str:
    """A text from elsewhere, cut off where it is endless."""
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}\N{HORIZONTAL ELLIPSIS}"


def _without_controls(value: Any) -> Any:
    """Every text from elsewhere without the characters that steer what is written around it."""
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
