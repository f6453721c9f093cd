"""Adapters by name."""

from __future__ import annotations

from graphmend.adapters.base import Adapter
from graphmend.adapters.gtrans import GTrans
from graphmend.adapters.identity import Identity

__all__ = ["ADAPTERS"]

ADAPTERS: dict[str, type[Adapter]] = {"gtrans": GTrans, "identity": Identity}
