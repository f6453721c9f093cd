"""What a data set is to the command line and the experiments."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from graphmend.datasets.splits import Splits


class Loader(Protocol):
    """Loads a data set; further keyword arguments are its own options."""

    def __call__(self, *, seed: int = 0, data_dir: str | Path | None = None) -> Splits:
        """The splits for run seed ``seed``, from the files below ``data_dir`` (or wherever they are found)."""
        ...


@dataclass(frozen=True)
class Presence:
    """What of a data set is here, told without loading it.

    Args:
        loaded: What the data set will call itself once it is loaded.
        missing: Nothing when it can be loaded; else what is missing for each of the layouts it may come in.
        stand_ins: Graphs that are missing, and the ones that stand in for them.
    """

    loaded: str
    missing: list[list[str]]
    stand_ins: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Dataset:
    """One entry of the catalogue.

    Args:
        name: As users type it.
        shift: The kind of shift between training and test graphs, in a few words.
        load: The loader.
        metric: ``accuracy``, ``roc_auc`` or ``macro_f1``.
        files: Paths below a data directory, any one group of which is enough: our ``.npz`` layout or the published one.
        published: Statistics to check against: per graph name, a dict with nodes, edges, features, classes, ...
        measure: The same statistics measured on loaded splits.
        generated: Not real data; every table that uses it says so.
        note: What a reader of the catalogue should know.
        presence: What is here of it below a data directory, where ``files`` alone do not tell.
    """

    name: str
    shift: str
    load: Loader
    metric: str = "accuracy"
    files: tuple[tuple[str, ...], ...] = ()
    published: dict[str, dict[str, Any]] = field(default_factory=dict)
    measure: Callable[[Splits], dict[str, dict[str, Any]]] | None = None
    generated: bool = False
    note: str = ""
    presence: Callable[[str | Path | None], Presence] | None = None
