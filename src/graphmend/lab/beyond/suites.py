"""Suites: which sets, models and seeds are measured together.

*readme* is what the numbers of the README rest on. *trust* has what it lacks, so that a rule cannot flatter: halves of
graphs, dense and small graphs, broken and missing rows at all shares, models of other people, and cards of models that
were trained on every node. A suite also decides which targets a source has (:mod:`graphmend.lab.beyond.targets`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from graphmend.lab.beyond.models import BACKBONES, OWN, STOCK
from graphmend.lab.beyond.sources import HALVES, SETS, Source

__all__ = ["FAULTY", "SUITES", "Suite", "chosen"]

FAULTY = ("cora", "citeseer", "pubmed", "photo", "cora-dense", "tiny", "wine")  # whole graphs with faults of all kinds
SHIFTED = ("cora-ood", "citation-acmv9", "citation-citationv1", "photo-ood", "digits-shift", "csbm", "twitch-e")
ONE_SEED = ("arxiv-votes-ood",)


@dataclass(frozen=True)
class Suite:
    """Which models of which sets.

    Args:
        backbones: The backbones of each set, the most important set first.
        seeds: How many run seeds there are by default.
    """

    backbones: dict[str, tuple[str, ...]]
    seeds: int


SUITES: dict[str, Suite] = {
    "readme": Suite({name: tuple(OWN) for name in list(SETS)[: list(SETS).index("arxiv-size-0.25") + 1]}, seeds=5),
    "trust": Suite(
        {
            **{name: tuple(BACKBONES) for name in (*FAULTY, *HALVES)},
            **{name: tuple(STOCK) for name in SHIFTED},
            "arxiv-votes-ood": tuple(BACKBONES),
        },
        seeds=2,
    ),
}


def chosen(
    suite: str,
    *,
    names: Iterable[str] | None = None,
    backbones: Iterable[str] | None = None,
    seeds: int | None = None,
) -> Iterator[Source]:
    """The sources of a suite, set by set and seed by seed, so that the splits of neighbours are the same.

    Args:
        suite: A key of :data:`SUITES`.
        names: Only these sets; all when ``None``.
        backbones: Only these backbones; all when ``None``.
        seeds: Run seeds, counted from 0; those of the suite when ``None``.
    """
    whole = SUITES[suite]
    count = whole.seeds if seeds is None else seeds
    for name, kinds in whole.backbones.items():
        for seed in range(min(count, 1) if name in ONE_SEED else count):
            for kind in kinds:
                if (names is None or name in names) and (backbones is None or kind in backbones):
                    yield Source(name, kind, seed)
