"""Heterogeneous graphs: a ``HeteroData`` is carded and mended one node type at a time, with one patch for the whole."""

from graphmend.hetero.card import HeteroCard, hetero_card
from graphmend.hetero.mending import mend_hetero
from graphmend.hetero.patch import HeteroPatch
from graphmend.hetero.result import HeteroAdaptation

__all__ = ["HeteroAdaptation", "HeteroCard", "HeteroPatch", "hetero_card", "mend_hetero"]
