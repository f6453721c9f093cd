"""The work of 'graphmend list': members of the registries, with a summary and what they need."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Mapping
from typing import NamedTuple

import typer
from rich.table import Table

from graphmend.adapters import ADAPTERS
from graphmend.cli.console import PlainConsole, plain_text
from graphmend.cli.lab import lab
from graphmend.results.scores import METRICS
from graphmend.surrogates import SLAPS, SURROGATES, Moments, Supervised
from graphmend.surrogates.registry import NEEDS as SURROGATE_NEEDS
from graphmend.transforms import PURIFIERS, VIEWS

UNNAMED = {"moments": Moments, "slaps": SLAPS, "supervised": Supervised}
"""Surrogates that cannot be made by name alone."""

NEEDS: dict[str, dict[str, str]] = {
    "adapters": {"gate": "a source card for a full examination"},
    "surrogates": SURROGATE_NEEDS,
    "metrics": {"roc_auc": "nodes of at least two classes"},
}
"""What a member needs beyond what its whole family does; an adapter says so itself."""


class Member(NamedTuple):
    """One line of the list."""

    name: str
    summary: str
    needs: str


def registries() -> dict[str, Mapping[str, object]]:
    """What each family holds at this moment."""
    return {
        "adapters": ADAPTERS,
        "surrogates": {**SURROGATES, **UNNAMED},
        "views": VIEWS,
        "purifiers": PURIFIERS,
        "metrics": METRICS,
        **lab("registries").REGISTRIES,
    }


def run_list(families: Mapping[str, str], as_json: bool) -> None:
    """Print these families, each under its heading."""
    all_members = registries()
    listed = {family: [_member(family, *item) for item in sorted(all_members[family].items())] for family in families}
    if as_json:
        typer.echo(json.dumps({family: [member._asdict() for member in rows] for family, rows in listed.items()}))
        return
    console = PlainConsole()
    for position, (family, rows) in enumerate(listed.items()):
        if position:
            console.print()
        _print(console, family, families[family], rows)


def first_sentence(text: str | None) -> str:
    """The first sentence of a docstring as plain text."""
    return re.split(r"(?<=[.?!])\s+(?=[A-Z])", plain_text((text or "").partition("\n\n")[0]))[0]


def _member(family: str, name: str, member: object) -> Member:
    registries = lab("registries")
    if family == "datasets":
        return Member(name, *registries.about_dataset(member))
    needs = {**NEEDS, **registries.NEEDS}.get(family, {})
    own = ", and ".join(filter(None, (needs.get(name) or getattr(member, "needs", ""), _tasks_needed(member))))
    return Member(name, first_sentence(inspect.getdoc(member)), own)


def _tasks_needed(member: object) -> str:
    """The tasks that an adapter serves, if these are not all of them."""
    tasks = getattr(member, "tasks", None)
    return f"the task {' or '.join(tasks)}" if isinstance(tasks, tuple) else ""


def _print(console: PlainConsole, family: str, about: str, rows: list[Member]) -> None:
    heading = console.render_str(f"{family}: {about}")
    heading.stylize("bold", 0, len(family))
    console.print(heading)
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column()
    for member in rows:
        table.add_row(f"  {member.name}", f"{member.summary} Needs {member.needs}." if member.needs else member.summary)
    console.print(table)
