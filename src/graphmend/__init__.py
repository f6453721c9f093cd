"""GraphMend: mend the graph, keep the model.

A frozen graph neural network predicts better on a repaired test graph::

    import graphmend
    result = graphmend.mend(model, data)
    result.data, result.logits, result.patch
"""

from graphmend import heap as heap  # before the first tensor

# isort: split

from graphmend.adaptation import Adaptation, Identity
from graphmend.errors import GraphMendError, UnsupportedLayerError
from graphmend.frozen import FrozenGNN
from graphmend.gtrans import GTrans
from graphmend.limits import Limits
from graphmend.mend import mend
from graphmend.patch import Patch

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
__version__ = "0.1.0"
