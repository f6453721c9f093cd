"""Surrogate losses: what stands in for the test labels that nobody has.

``Supervised(train_mask) + 0.01 * Contrastive(DropEdge(0.5))`` is a surrogate like any other.
"""

from graphmend.surrogates.base import Backbone, Custom, Scaled, Sum, Surrogate, embed_views
from graphmend.surrogates.contrastive import Contrastive
from graphmend.surrogates.moments import Moments
from graphmend.surrogates.registry import SURROGATES, surrogate_of
from graphmend.surrogates.supervised import Supervised

__all__ = [
    "SURROGATES",
    "Backbone",
    "Contrastive",
    "Custom",
    "Moments",
    "Scaled",
    "Sum",
    "Supervised",
    "Surrogate",
    "embed_views",
    "surrogate_of",
]
