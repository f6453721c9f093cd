"""Data sets that stand in for others, and what a table has to say about them."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["GENERATED", "STAND_INS", "data_notes"]

STAND_INS = {
    "elliptic-size": "elliptic",
    "arxiv-size-ood": "arxiv-ood",
    "fb100-standin": "fb100",
    "arxiv-size": "arxiv",
}
"""Sets that stand in for others, with the set whose settings and published numbers they have."""

GENERATED = {"elliptic-size": "Elliptic", "arxiv-size-ood": "OGB-Arxiv", "arxiv-size": "OGB-Arxiv"}
"""Generated sets, with what they are in place of."""


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
    if "fb100" in names:
        notes.append("In fb100, Rutgers89 and Oklahoma97 stand in for Penn94 and Texas80 where those are missing.")
    return notes
