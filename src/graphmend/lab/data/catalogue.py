"""The entry of a data set in the catalogue that the command line and the experiments use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from graphmend.lab.data.splits import Splits


class Loader(Protocol):
    """Loads a data set; further keyword arguments are its own options."""

    def __call__(self, *, seed: int = 0, data_dir: str | Path | None = None) -> Splits:
        """The splits for run seed ``seed``, from files below ``data_dir`` or one of the other data directories."""
        ...


@dataclass(frozen=True)
class Availability:
    """Which files of a data set are available, determined without loading it.

    Args:
        loaded: The name that the data set will have in ``meta`` once it is loaded.
        missing: Empty if it can be loaded; otherwise the missing files of each layout in which it is published.
        stand_ins: Missing graphs, with those that replace them.

    Example:
        >>> from graphmend.lab.data import DATASETS, Availability, availability
        >>> availability(DATASETS["wine"]) == Availability("wine", [])
        True
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
        files: Groups of paths below a data directory: our ``.npz`` layout and the published one. One group suffices.
        published: Statistics to check against: per graph name, a dict with nodes, edges, features, classes, ...
        measure: The same statistics measured on loaded splits.
        generated: Whether it is not real data, which every table that uses it must say.
        note: A remark for readers of the catalogue.
        availability: Which files are available below a data directory, for sets where ``files`` do not decide it.

    Example:
        >>> from graphmend.lab.data import DATASETS, Dataset
        >>> def load_own(*, seed=0, data_dir=None):
        ...     return DATASETS["wine"].load()
        >>> own = Dataset("own", "none", load_own)
        >>> own.load().train[0].num_nodes
        178
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
    availability: Callable[[str | Path | None], Availability] | None = None
