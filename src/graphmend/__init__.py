"""GraphMend: mend the graph, keep the model.

A frozen graph neural network predicts better on a repaired test graph::

    import graphmend
    card = graphmend.card(model, train_data)         # once, when the model is trained
    result = graphmend.mend(model, data, card=card)  # whenever there is a new graph
    print(result.verdict)
    result.data, result.logits, result.patch
"""

from graphmend.adapters.gtrans import GTrans
from graphmend.adapters.identity import Identity
from graphmend.cards import SourceCard, card
from graphmend.errors import GraphMendError, UnsupportedLayerError
from graphmend.frozen import FrozenGNN
from graphmend.gate import Gate
from graphmend.graph.limits import Limits
from graphmend.mending import Mend, mend
from graphmend.results.adaptation import Adaptation
from graphmend.results.patch import Patch
from graphmend.results.verdict import Verdict
from graphmend.version import __version__ as __version__

__all__ = [
    "Adaptation",
    "FrozenGNN",
    "GTrans",
    "Gate",
    "GraphMendError",
    "Identity",
    "Limits",
    "Mend",
    "Patch",
    "SourceCard",
    "UnsupportedLayerError",
    "Verdict",
    "card",
    "mend",
]
