"""Formulas as MathML, which browsers draw by themselves: no script, no font and no request."""

from __future__ import annotations

import html
import re

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.writers.html5 import HTML5Translator

BIG = re.compile(r"\\[bB]igg?[lr]?(?![a-z])")
"""Sizes of brackets, which MathML finds by itself."""
LOG = logging.getLogger(__name__)


def inline(writer: HTML5Translator, node: nodes.math) -> None:
    """Write a formula within a line."""
    writer.body.append(drawn(node, as_block=False))
    raise nodes.SkipNode


def display(writer: HTML5Translator, node: nodes.math_block) -> None:
    """Write a formula on a line of its own."""
    writer.body.append(f'<div class="math">{drawn(node, as_block=True)}</div>')
    raise nodes.SkipNode


def drawn(node: nodes.TextElement, as_block: bool) -> str:
    """A formula as MathML; one that cannot be read is a warning, and is shown as it is written."""
    formula = BIG.sub("", node.astext())
    try:
        return tex2mathml(formula, as_block=as_block)
    except MathError as error:
        LOG.warning("the formula %s cannot be drawn: %s", formula, error, location=node)
        return f"<code>{html.escape(formula)}</code>"


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.add_html_math_renderer("mathml", (inline, None), (display, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
