"""Adapters by name."""

from __future__ import annotations

from os import PathLike
from typing import Any

from graphmend.adapters.airgnn_tune import AirGNNTune
from graphmend.adapters.align import Align
from graphmend.adapters.base import Adapter, check_adapter
from graphmend.adapters.fine_tune import FineTune
from graphmend.adapters.gate import Gate
from graphmend.adapters.gtrans import GTrans
from graphmend.adapters.identity import Identity
from graphmend.adapters.impute import Impute
from graphmend.adapters.jaccard import JaccardFilter
from graphmend.adapters.purify import Purify
from graphmend.adapters.reweight import Reweight
from graphmend.adapters.tent import Tent
from graphmend.cards.source_card import SourceCard
from graphmend.errors import GraphMendError, choose, require

__all__ = ["ADAPTERS", "adapter_of"]

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
"""Every adapter by the name that options take.

Example:
    >>> from graphmend.adapters import ADAPTERS
    >>> ADAPTERS["gtrans"].__name__
    'GTrans'
"""


def adapter_of(adapter: Any) -> Any:
    """An adapter from an adapter, its class or its name in :data:`ADAPTERS`; ``None`` stands for the gate.

    Example:
        >>> adapter_of("gtrans") == adapter_of(GTrans) == GTrans()
        True
    """
    is_card = isinstance(adapter, (SourceCard, PathLike)) or (
        isinstance(adapter, str) and adapter.endswith(".safetensors")
    )
    require(not is_card, "the third argument is the adapter; give a card by its name: mend(model, data, card=...)")
    if adapter is None:
        return Gate()
    if isinstance(adapter, str):
        adapter = choose("adapter", adapter, ADAPTERS)
    if not (isinstance(adapter, type) and callable(getattr(adapter, "propose", None))):
        return check_adapter(adapter)
    try:
        return adapter()
    except TypeError as error:
        name = adapter.__name__
        raise GraphMendError(f"{name} cannot be made without arguments ({error}); give {name}(...)") from error
