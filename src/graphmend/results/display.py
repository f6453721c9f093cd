"""Results as a few lines of text and as small tables for notebooks."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Any

__all__ = ["html_table", "text_lines"]


def text_lines(title: str, rows: Iterable[tuple[str, Any]]) -> str:
    """A title and one indented line per row, the values below each other."""
    rows = list(rows)
    width = max((len(name) for name, _ in rows), default=0)
    return "\n".join([title, *(f"  {name:<{width}}  {value}" for name, value in rows)])


def html_table(title: str, rows: Iterable[Iterable[Any]], head: Iterable[str] = (), note: str = "") -> str:
    """A table for a notebook; every text in it is escaped.

    Args:
        title: Its caption.
        rows: Its cells; the first of each row is a heading.
        head: Headings of the columns, if they need any.
        note: A sentence below the caption.
    """
    caption = f"<b>{_text(title)}</b>" + (f"<br>{_text(note)}" if note else "")
    top = "".join(f"<th style='text-align:left'>{_text(name)}</th>" for name in head)
    lines = [f"<tr>{top}</tr>"] if top else []
    for first, *others in rows:
        cells = "".join(f"<td style='text-align:left'>{_text(value)}</td>" for value in others)
        lines.append(f"<tr><th style='text-align:left'>{_text(first)}</th>{cells}</tr>")
    return f"<table><caption style='text-align:left'>{caption}</caption>{''.join(lines)}</table>"


def _text(value: Any) -> str:
    return escape(str(value), quote=True)
