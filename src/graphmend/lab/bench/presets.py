"""What is fixed in advance: search grids and released settings (``presets.toml``), the paper's results
(``paper.toml``), and which data sets stand in for others."""

from __future__ import annotations

import copy
import functools
import tomllib
from collections.abc import Iterable
from importlib.resources import files
from typing import Any

from graphmend.errors import choose

__all__ = [
    "DRAWN",
    "GENERATED",
    "RELEASED_NOTE",
    "STAND_INS",
    "SUBSTITUTED",
    "abnormal_settings",
    "attack_settings",
    "data_notes",
    "ood_settings",
    "own_or_stand_in",
    "paper",
    "preset",
    "presets",
]


def preset(*path: str) -> dict[str, Any]:
    """A table of ``presets.toml`` by the names that lead to it; an error lists the names that exist.

    Example:
        >>> from graphmend.lab.bench import preset
        >>> preset("gtrans", "ood", "cora-ood", "gcn")["lr_feature"]
        0.001
    """
    table: Any = _read("presets")
    for depth, name in enumerate(path):
        table = choose(" ".join(("preset", *path[:depth])), name, table)
    return copy.deepcopy(table)


def presets() -> dict[str, Any]:
    """Everything in ``presets.toml``.

    Example:
        >>> from graphmend.lab.bench import presets
        >>> "gtrans" in presets()
        True
    """
    return copy.deepcopy(_read("presets"))


def paper(name: str) -> dict[str, Any]:
    """The paper's numbers of one experiment.

    Example:
        >>> paper("ood_accuracy")["gcn"]["gtrans"]["cora-ood"]
        [94.66, 0.63]
    """
    table: dict[str, Any] = choose("table of the paper", name, _read("paper"))
    return copy.deepcopy(table)


@functools.cache
def _read(name: str) -> dict[str, Any]:
    return tomllib.loads(files("graphmend.lab.bench").joinpath(f"{name}.toml").read_text(encoding="utf-8"))


STAND_INS = {
    "elliptic-size": "elliptic",
    "arxiv-size-ood": "arxiv-ood",
    "fb100-standin": "fb100",
    "arxiv-size": "arxiv",
    "arxiv-votes-ood": "arxiv-ood",
    "arxiv-votes": "arxiv",
}
"""Sets that replace others, with the set whose settings and published numbers they use."""

GENERATED = {"elliptic-size": "Elliptic", "arxiv-size-ood": "OGB-Arxiv", "arxiv-size": "OGB-Arxiv"}
"""Generated sets, with what they are in place of."""

SUBSTITUTED = ("arxiv-votes", "arxiv-votes-ood")
"""Real graphs without their published features."""

DRAWN = ("cora-ood", "photo-ood", "elliptic-size", "arxiv-size-ood")
"""Sets under distribution shift of which something is drawn at random."""


def own_or_stand_in(tables: dict[str, Any], dataset: str, otherwise: Any = None) -> Any:
    """What a table has for a data set, or for the one that it replaces."""
    return tables.get(dataset, tables.get(STAND_INS.get(dataset, dataset), otherwise))


def data_notes(datasets: Iterable[str]) -> list[str]:
    """Sentences for the footer of a table.

    Example:
        >>> data_notes(["cora", "arxiv-size"])
        ['arxiv-size is generated data in place of OGB-Arxiv: its numbers do not compare with the paper's.']
    """
    names = tuple(dict.fromkeys(datasets))
    notes = [
        f"{name} is generated data in place of {GENERATED[name]}: its numbers do not compare with the paper's."
        for name in names
        if name in GENERATED
    ]
    notes += [
        f"{name} is the real OGB-Arxiv graph with substitute features, a language model's guesses of the class: scores "
        "do not compare with the paper's, edges do."
        for name in names
        if name in SUBSTITUTED
    ]
    if "fb100" in names:
        notes.append("In fb100, Rutgers89 and Oklahoma97 stand in for Penn94 and Texas80 where those are missing.")
    return notes


RELEASED_NOTE = (
    "GTrans has the settings of the released code for each data set and backbone; "
    "citation, which the paper does not have, has those of Cora."
)


def ood_settings(dataset: str, backbone: str = "gcn", **changes: Any) -> dict[str, Any]:
    """Distribution shift: released values; those of Cora for sets that the paper does not have."""
    tables = presets()["gtrans"]["ood"]
    own = own_or_stand_in(tables, dataset, tables["cora-ood"])[backbone]
    return {"name": "gtrans", **tables["common"], **own, **changes}


def abnormal_settings(dataset: str, **changes: Any) -> dict[str, Any]:
    """Abnormal features: the loss of the training nodes and, weighted, the surrogate."""
    tables = preset("gtrans", "abnormal")
    own = own_or_stand_in(tables, dataset, tables["cora"])
    return {"name": "gtrans", **tables["common"], **own, **changes}


def attack_settings(mode: str = "paper", **changes: Any) -> dict[str, Any]:
    """Structure attack: ``mode`` is ``"paper"`` (1 feature step, 4 edge steps) or ``"released"`` (4 and 1)."""
    return {"name": "gtrans", **preset("gtrans", "attack", "common"), **preset("gtrans", "attack", mode), **changes}
