"""How pages look: one style sheet, the colours of classes, and the rule that nothing is loaded."""

from __future__ import annotations

import base64
import hashlib
from importlib.resources import files

from graphmend.results import style

__all__ = ["policy", "style_sheet", "text_of"]


def text_of(name: str) -> str:
    """A file of this folder."""
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def style_sheet() -> str:
    """The style of all pages, with the colours of classes: ``c0`` and so on fill, ``s0`` and so on draw lines."""
    return text_of("style.css") + _palette()


def policy(css: str, script: str = "") -> str:
    """The content security policy of a page: its own style and script, told by their digests, and no request at all."""
    scripts = f"script-src '{_digest(script)}'; " if script else ""
    return (
        f"default-src 'none'; style-src '{_digest(css)}'; {scripts}img-src data:; base-uri 'none'; form-action 'none'"
    )


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _palette() -> str:
    """The colours of classes, lighter on a dark page."""
    light = "".join(f"--c{k}:{colour};" for k, colour in enumerate((*style.COLOURS, style.OTHERS)))
    dark = "".join(f"--c{k}:{_lighter(colour)};" for k, colour in enumerate((*style.COLOURS, style.MUTED)))
    rules = "".join(f".c{k}{{fill:var(--c{k})}}.s{k}{{stroke:var(--c{k})}}" for k in range(style.CLASSES + 1))
    return f":root{{{light}}}@media (prefers-color-scheme:dark){{:root{{{dark}}}}}{rules}\n"


def _lighter(colour: str, share: float = 0.3) -> str:
    parts = [int(colour[place : place + 2], 16) for place in (1, 3, 5)]
    return "#" + "".join(f"{round(part + share * (255 - part)):02x}" for part in parts)
