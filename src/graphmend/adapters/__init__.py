"""Adapters: ``(model, data) -> Adaptation``, the caller's model and graph are left as they were."""

from graphmend.adapters.base import Adapter, Change, Task
from graphmend.adapters.gtrans import GTrans
from graphmend.adapters.identity import Identity
from graphmend.adapters.registry import ADAPTERS
from graphmend.adapters.sequence import Sequence
from graphmend.engine.report import Stopped

__all__ = ["ADAPTERS", "Adapter", "Change", "GTrans", "Identity", "Sequence", "Stopped", "Task"]
