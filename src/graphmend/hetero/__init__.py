"""Heterogeneous graphs: a ``HeteroData`` gets its card and is mended one node type at a time, with one patch in all."""

from graphmend.hetero.card import HeteroCard, hetero_card, read_any_card
from graphmend.hetero.mending import mend_hetero
from graphmend.hetero.patch import HeteroPatch, fingerprint_of_any, read_any_patch
from graphmend.hetero.result import HeteroAdaptation

__all__ = [
    "HeteroAdaptation",
    "HeteroCard",
    "HeteroPatch",
    "fingerprint_of_any",
    "hetero_card",
    "mend_hetero",
    "read_any_card",
    "read_any_patch",
]
