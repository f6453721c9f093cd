"""Adapters by name."""

from __future__ import annotations

from graphmend.adapters.airgnn_tune import AirGNNTune
from graphmend.adapters.align import Align
from graphmend.adapters.base import Adapter
from graphmend.adapters.fine_tune import FineTune
from graphmend.adapters.gate import Gate
from graphmend.adapters.gtrans import GTrans
from graphmend.adapters.identity import Identity
from graphmend.adapters.impute import Impute
from graphmend.adapters.jaccard import JaccardFilter
from graphmend.adapters.purify import Purify
from graphmend.adapters.reweight import Reweight
from graphmend.adapters.tent import Tent

__all__ = ["ADAPTERS"]

ADAPTERS: dict[str, type[Adapter]] = {
    "airgnn_tune": AirGNNTune,
    "align": Align,
    "fine_tune": FineTune,
    "gate": Gate,
    "gtrans": GTrans,
    "identity": Identity,
    "impute": Impute,
    "jaccard": JaccardFilter,
    "purify": Purify,
    "reweight": Reweight,
    "tent": Tent,
}
