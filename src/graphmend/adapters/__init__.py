"""Adapters: ``(model, data) -> Adaptation``, the caller's model and graph are left as they were."""

from graphmend.adapters.airgnn_tune import AirGNNTune
from graphmend.adapters.align import Align
from graphmend.adapters.base import Adapter, Change, Task
from graphmend.adapters.fine_tune import FineTune
from graphmend.adapters.gtrans import GTrans
from graphmend.adapters.identity import Identity
from graphmend.adapters.impute import Impute
from graphmend.adapters.jaccard import JaccardFilter
from graphmend.adapters.purify import Purify
from graphmend.adapters.registry import ADAPTERS
from graphmend.adapters.reweight import Reweight
from graphmend.adapters.sequence import Sequence
from graphmend.adapters.tent import Tent
from graphmend.engine.report import Stopped

__all__ = [
    "ADAPTERS",
    "Adapter",
    "AirGNNTune",
    "Align",
    "Change",
    "FineTune",
    "GTrans",
    "Identity",
    "Impute",
    "JaccardFilter",
    "Purify",
    "Reweight",
    "Sequence",
    "Stopped",
    "Task",
    "Tent",
]
