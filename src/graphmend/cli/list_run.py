"""The work of 'graphmend list': members of the registries, with a summary and what they need."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Mapping
from typing import NamedTuple

import typer
from rich.table import Table

from graphmend.cli.console import PlainConsole
from graphmend.cli.list import FAMILIES
from graphmend.cli.methods import methods
from graphmend.datasets.catalogue import Dataset
from graphmend.datasets.registry import DATASETS
from graphmend.datasets.shifts import SHIFTS
from graphmend.metrics import METRICS
from graphmend.nn import BACKBONES
from graphmend.surrogates import SLAPS, SURROGATES, Moments, Supervised
from graphmend.surrogates.registry import NEEDS as SURROGATE_NEEDS
from graphmend.training import TRAINERS
from graphmend.transforms import ATTACKS, CORRUPTIONS, PURIFIERS, VIEWS

UNNAMED = {"moments": Moments, "slaps": SLAPS, "supervised": Supervised}
"""Surrogates that cannot be made by name alone."""

TEST_GRAPHS = "the test graphs, without labels"
NEEDS: dict[str, dict[str, str]] = {
    "trainers": {
        "dann": TEST_GRAPHS,
        "eerm": "memory for N x N numbers per view, unless candidates is set",
        "sr_gnn": TEST_GRAPHS,
        "uda_gcn": f"the backbone dual_gcn, and {TEST_GRAPHS}",
    },
    "adapters": {
        "airgnn_tune": "the backbone airgnn, and labels of some nodes",
        "align": "a source card, or batch normalisation behind the first layer",
        "gate": "a source card for a full examination",
        "purify": "a source card",
        "reweight": "a source card",
        "tent": "batch normalisation",
    },
    "surrogates": SURROGATE_NEEDS,
    "attacks": {"grbcd": "the trained model", "prbcd": "the trained model"},
    "metrics": {"roc_auc": "nodes of at least two classes"},
}
"""What a member needs beyond what its whole family does."""


class Member(NamedTuple):
    """One line of the list."""

    name: str
    summary: str
    needs: str


def registries() -> dict[str, Mapping[str, object]]:
    """What each family holds at this moment."""
    return {
        "backbones": BACKBONES,
        "trainers": TRAINERS,
        "adapters": methods(),
        "surrogates": {**SURROGATES, **UNNAMED},
        "views": VIEWS,
        "corruptions": CORRUPTIONS,
        "purifiers": PURIFIERS,
        "attacks": ATTACKS,
        "datasets": DATASETS,
        "shifts": SHIFTS,
        "metrics": METRICS,
    }


def run_list(families: list[str], as_json: bool) -> None:
    """Print these families."""
    known = registries()
    found = {family: [_member(family, *item) for item in sorted(known[family].items())] for family in families}
    if as_json:
        typer.echo(json.dumps({family: [member._asdict() for member in rows] for family, rows in found.items()}))
        return
    console = PlainConsole()
    for position, (family, rows) in enumerate(found.items()):
        if position:
            console.print()
        _print(console, family, rows)


def first_sentence(text: str | None) -> str:
    """The first sentence of a docstring as plain text, without the addresses of papers."""
    paragraph = " ".join((text or "").partition("\n\n")[0].split())
    sentence = re.split(r"(?<=[.?!])\s+(?=[A-Z])", paragraph)[0]
    sentence = re.sub(r",? ?https?://[^\s)]+", "", sentence)
    return re.sub(r":\w+:`~?(?:[\w.]+\.)?([^`]*)`|``([^`]*)``", lambda found: found[1] or found[2], sentence)


def _member(family: str, name: str, member: object) -> Member:
    if isinstance(member, Dataset):
        has_files = bool(member.files) or member.availability is not None
        summary = f"{member.shift[:1].upper()}{member.shift[1:]}{'; generated' if member.generated else ''}."
        return Member(name, summary, "its files, see 'graphmend data list'" if has_files else "")
    return Member(name, first_sentence(inspect.getdoc(member)), NEEDS.get(family, {}).get(name, ""))


def _print(console: PlainConsole, family: str, rows: list[Member]) -> None:
    heading = console.render_str(f"{family}: {FAMILIES[family]}")
    heading.stylize("bold", 0, len(family))
    console.print(heading)
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column()
    for member in rows:
        table.add_row(f"  {member.name}", f"{member.summary} Needs {member.needs}." if member.needs else member.summary)
    console.print(table)
