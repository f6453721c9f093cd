"""Surrogate losses, which take the place of the missing test labels.

``Supervised(train_mask) + 0.01 * Contrastive(DropEdge(0.5))`` is a surrogate like any other.
"""

from graphmend.surrogates.adgcl import ADGCL
from graphmend.surrogates.base import Backbone, Custom, Scaled, Sum, Surrogate, embed_views
from graphmend.surrogates.contrastive import Contrastive
from graphmend.surrogates.entropy import Entropy
from graphmend.surrogates.moments import Moments
from graphmend.surrogates.reconstruction import Reconstruction
from graphmend.surrogates.registry import SURROGATES, surrogate_class, surrogate_of
from graphmend.surrogates.slaps import SLAPS
from graphmend.surrogates.supervised import Supervised

__all__ = [
    "ADGCL",
    "SLAPS",
    "SURROGATES",
    "Backbone",
    "Contrastive",
    "Custom",
    "Entropy",
    "Moments",
    "Reconstruction",
    "Scaled",
    "Sum",
    "Supervised",
    "Surrogate",
    "embed_views",
    "surrogate_class",
    "surrogate_of",
]
