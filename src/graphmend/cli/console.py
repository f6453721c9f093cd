"""Printing, on standard output and in the log: every text appears as it is, on any terminal."""

from __future__ import annotations

import logging
import re
from typing import Any

import typer
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table
from rich.text import Text

from graphmend.errors import printable

__all__ = ["PlainConsole", "has_terminal", "log_to_stderr", "plain_table", "plain_text", "show_log"]


ASCII = {ord("→"): "->", ord("±"): "+-"}
"""Replacements for our own signs on terminals that do not know them."""


class PlainConsole(Console):
    """A console without markup, emoji and colours in numbers, which prints control characters as escapes."""

    def __init__(self) -> None:
        super().__init__(markup=False, emoji=False, highlight=False)

    def render_str(self, text: str, **options: Any) -> Text:
        """How every text of a line or a table is rendered."""
        text = text if self.encoding.startswith("utf") else text.translate(ASCII)
        return super().render_str(printable(text, keep="\n"), **options)

    def say(self, name: str, sentence: str) -> None:
        """A name in bold and a sentence, on a line that the terminal wraps."""
        self.print(self.render_str(name, style="bold"), end="", soft_wrap=True)
        self.print(f": {sentence}", soft_wrap=True)


def plain_table(title: str, caption: str | None = None, gap: int = 2) -> Table:
    """A table without frames, which fits into a narrow terminal.

    Args:
        title: What stands above it.
        caption: What stands below it.
        gap: The number of spaces between columns.
    """
    return Table(title=title, caption=caption, box=SIMPLE, padding=(0, gap - 1, 0, 0), show_edge=False)


def plain_text(text: str) -> str:
    """A paragraph of a docstring on one line, without markup and the addresses of papers."""
    text = re.sub(r",? ?https?://[^\s)]+", "", " ".join(text.split()))
    return re.sub(r":\w+:`~?(?:[\w.]+\.)?([^`]*)`|``([^`]*)``", lambda match: match[1] or match[2], text)


def has_terminal() -> bool:
    """Whether standard error is a terminal, so that a progress bar is seen."""
    return Console(stderr=True).is_terminal


class _StandardError(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        typer.echo(f"{record.levelname.lower()}: {printable(record.getMessage())}", err=True)


def log_to_stderr(quiet: bool, verbose: int = 0) -> int:
    """Route the library's log to standard error, one line per message; the level is returned.

    Args:
        quiet: Whether nothing but errors is shown.
        verbose: 1 shows what is decided, 2 why.
    """
    levels = (logging.WARNING, logging.INFO, logging.DEBUG)
    level = logging.ERROR if quiet else levels[min(verbose, 2)]
    show_log(level)
    return level


def show_log(level: int) -> None:
    """Show messages of this level and above, in this process."""
    log = logging.getLogger("graphmend")
    log.handlers = [_StandardError()]
    log.setLevel(level)
