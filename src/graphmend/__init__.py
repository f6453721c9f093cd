"""GraphMend: mend the graph, keep the model.

A frozen graph neural network predicts better on a repaired test graph::

    import graphmend
    result = graphmend.mend(model, data)
    result.data, result.logits, result.patch
"""

from graphmend.adapters.gtrans import GTrans
from graphmend.adapters.identity import Identity
from graphmend.errors import GraphMendError, UnsupportedLayerError
from graphmend.frozen import FrozenGNN
from graphmend.graph.limits import Limits
from graphmend.mending import mend
from graphmend.results.adaptation import Adaptation
from graphmend.results.patch import Patch
from graphmend.version import __version__ as __version__

__all__ = [
    "Adaptation",
    "FrozenGNN",
    "GTrans",
    "GraphMendError",
    "Identity",
    "Limits",
    "Patch",
    "UnsupportedLayerError",
    "mend",
]
