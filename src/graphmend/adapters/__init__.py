"""Adapters: each proposes a change of a graph or of a model; the caller's model and graph are left as they were."""

from graphmend.adapters.airgnn_tune import AirGNNTune
from graphmend.adapters.align import Align
from graphmend.adapters.base import Adapter, Sequence
from graphmend.adapters.case import Case
from graphmend.adapters.fine_tune import FineTune
from graphmend.adapters.gate import Gate
from graphmend.adapters.gtrans import GTrans
from graphmend.adapters.identity import Identity
from graphmend.adapters.impute import Impute
from graphmend.adapters.jaccard import JaccardFilter
from graphmend.adapters.purify import Purify
from graphmend.adapters.registry import ADAPTERS
from graphmend.adapters.reweight import Reweight
from graphmend.adapters.tent import Tent
from graphmend.engine.report import Stopped
from graphmend.results.proposal import Proposal

__all__ = [
    "ADAPTERS",
    "Adapter",
    "AirGNNTune",
    "Align",
    "Case",
    "FineTune",
    "GTrans",
    "Gate",
    "Identity",
    "Impute",
    "JaccardFilter",
    "Proposal",
    "Purify",
    "Reweight",
    "Sequence",
    "Stopped",
    "Tent",
]
