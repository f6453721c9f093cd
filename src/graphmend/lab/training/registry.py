"""Trainers by name."""

from __future__ import annotations

from typing import Any

from graphmend.errors import GraphMendError, choose
from graphmend.lab.training.base import Trainer
from graphmend.lab.training.dann import DANN
from graphmend.lab.training.eerm import EERM
from graphmend.lab.training.erm import ERM
from graphmend.lab.training.sr_gnn import SRGNN
from graphmend.lab.training.uda_gcn import UDAGCN

__all__ = ["TRAINERS", "trainer_of"]

TRAINERS: dict[str, type[Trainer]] = {
    "dann": DANN,
    "eerm": EERM,
    "erm": ERM,
    "sr_gnn": SRGNN,
    "uda_gcn": UDAGCN,
}
"""Every trainer by name.

Example:
    >>> from graphmend.lab.training import TRAINERS
    >>> TRAINERS["erm"].__name__
    'ERM'
"""


def trainer_of(name: str, **options: Any) -> Trainer:
    """A trainer by name; ``options`` are those of its constructor.

    Example:
        >>> from graphmend.lab.training import trainer_of
        >>> trainer_of("erm", epochs=10).epochs
        10
    """
    trainer = choose("trainer", name, TRAINERS)
    try:
        return trainer(**options)
    except TypeError as error:
        raise GraphMendError(f"trainer {name!r} does not take these options: {error}") from error
