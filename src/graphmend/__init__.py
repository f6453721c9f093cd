"""GraphMend: mend the graph, keep the model.

A frozen graph neural network predicts better on a repaired test graph::

    import graphmend
    card = graphmend.card(model, train_data)         # once, when the model is trained
    result = graphmend.mend(model, data, card=card)  # whenever there is a new graph
    print(result.verdict)
    result.data, result.logits, result.patch
"""

import logging
from typing import TYPE_CHECKING

from graphmend.version import __version__ as __version__

logging.getLogger(__name__).addHandler(logging.NullHandler())  # who wants to read the log adds a handler of their own

if TYPE_CHECKING:
    from graphmend.adapters.airgnn_tune import AirGNNTune
    from graphmend.adapters.align import Align
    from graphmend.adapters.fine_tune import FineTune
    from graphmend.adapters.gate import Gate
    from graphmend.adapters.gtrans import GTrans
    from graphmend.adapters.identity import Identity
    from graphmend.adapters.impute import Impute
    from graphmend.adapters.jaccard import JaccardFilter
    from graphmend.adapters.purify import Purify
    from graphmend.adapters.reweight import Reweight
    from graphmend.adapters.tent import Tent
    from graphmend.cards import SourceCard
    from graphmend.errors import GraphMendError, UnsupportedLayerError
    from graphmend.files.graph_files import load_graph, save_graph
    from graphmend.graph.limits import Limits
    from graphmend.mending import Mend, card, mend, mend_each
    from graphmend.model import FrozenGNN
    from graphmend.results.adaptation import Adaptation
    from graphmend.results.patch import Patch
    from graphmend.results.results import Failure, Results
    from graphmend.results.verdict import Verdict
    from graphmend.shards.folder import open_graph
else:
    _HOMES = {
        "Adaptation": "results.adaptation",
        "AirGNNTune": "adapters.airgnn_tune",
        "Align": "adapters.align",
        "Failure": "results.results",
        "FineTune": "adapters.fine_tune",
        "FrozenGNN": "model",
        "GTrans": "adapters.gtrans",
        "Gate": "adapters.gate",
        "GraphMendError": "errors",
        "Identity": "adapters.identity",
        "Impute": "adapters.impute",
        "JaccardFilter": "adapters.jaccard",
        "Limits": "graph.limits",
        "Mend": "mending",
        "Patch": "results.patch",
        "Purify": "adapters.purify",
        "Results": "results.results",
        "Reweight": "adapters.reweight",
        "SourceCard": "cards",
        "Tent": "adapters.tent",
        "UnsupportedLayerError": "errors",
        "Verdict": "results.verdict",
        "card": "mending",
        "load_graph": "files.graph_files",
        "mend": "mending",
        "mend_each": "mending",
        "open_graph": "shards.folder",
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
    "AirGNNTune",
    "Align",
    "Failure",
    "FineTune",
    "FrozenGNN",
    "GTrans",
    "Gate",
    "GraphMendError",
    "Identity",
    "Impute",
    "JaccardFilter",
    "Limits",
    "Mend",
    "Patch",
    "Purify",
    "Results",
    "Reweight",
    "SourceCard",
    "Tent",
    "UnsupportedLayerError",
    "Verdict",
    "card",
    "load_graph",
    "mend",
    "mend_each",
    "open_graph",
    "save_graph",
]
