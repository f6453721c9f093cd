"""GraphMend: mend the graph, keep the model.

A frozen graph neural network predicts better on a repaired test graph::

    import graphmend
    card = graphmend.card(model, train_data)         # once, when the model is trained
    result = graphmend.mend(model, data, card=card)  # whenever there is a new graph
    print(result.verdict)
    result.data, result.logits, result.patch
"""

from typing import TYPE_CHECKING

from graphmend.version import __version__ as __version__

if TYPE_CHECKING:
    from graphmend.adapters.gate import Gate
    from graphmend.adapters.gtrans import GTrans
    from graphmend.adapters.identity import Identity
    from graphmend.cards import SourceCard, card
    from graphmend.errors import GraphMendError, UnsupportedLayerError
    from graphmend.files.graph_files import load_graph, save_graph
    from graphmend.graph.limits import Limits
    from graphmend.mending import Mend, mend
    from graphmend.model import FrozenGNN
    from graphmend.results.adaptation import Adaptation
    from graphmend.results.patch import Patch
    from graphmend.results.verdict import Verdict
else:
    _HOMES = {
        "Adaptation": "results.adaptation",
        "FrozenGNN": "model",
        "GTrans": "adapters.gtrans",
        "Gate": "adapters.gate",
        "GraphMendError": "errors",
        "Identity": "adapters.identity",
        "Limits": "graph.limits",
        "Mend": "mending",
        "Patch": "results.patch",
        "SourceCard": "cards",
        "UnsupportedLayerError": "errors",
        "Verdict": "results.verdict",
        "card": "cards",
        "load_graph": "files.graph_files",
        "mend": "mending",
        "save_graph": "files.graph_files",
    }

    def __getattr__(name):
        """Import a name, or a package such as ``graphmend.lab.backbones``, when it is first used: torch takes seconds
        to load."""
        from importlib import import_module
        from importlib.util import find_spec

        if name in _HOMES:
            value = getattr(import_module(f"graphmend.{_HOMES[name]}"), name)
        elif name.isidentifier() and not name.startswith("_") and find_spec(f"graphmend.{name}") is not None:
            value = import_module(f"graphmend.{name}")
        else:
            raise AttributeError(f"module 'graphmend' has no attribute {name!r}")
        globals()[name] = value
        return value

    def __dir__():
        """What there is, whether it was used before or not."""
        return sorted({*globals(), *_HOMES})


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
    "load_graph",
    "mend",
    "save_graph",
]
