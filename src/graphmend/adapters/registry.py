"""Adapters by name."""

from __future__ import annotations

from graphmend.adapters.align import Align
from graphmend.adapters.base import Adapter
from graphmend.adapters.gtrans import GTrans
from graphmend.adapters.identity import Identity
from graphmend.adapters.impute import Impute
from graphmend.adapters.purify import Purify
from graphmend.adapters.reweight import Reweight

__all__ = ["ADAPTERS"]

ADAPTERS: dict[str, type[Adapter]] = {
    "align": Align,
    "gtrans": GTrans,
    "identity": Identity,
    "impute": Impute,
    "purify": Purify,
    "reweight": Reweight,
}
