"""One call."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from torch import nn
from torch_geometric.data import Data

from graphmend.adapters.gtrans import GTrans
from graphmend.errors import UnsupportedLayerError
from graphmend.results.adaptation import Adaptation

_LOG = logging.getLogger(__name__)


def mend(model: nn.Module, data: Data, adapter: Callable[..., Adaptation] | None = None, **call: Any) -> Adaptation:
    """Mend a graph for a frozen model: ``result = mend(model, data)``.

    Without an adapter this is :class:`~graphmend.GTrans` with its defaults; where a layer of the model cannot take edge
    weights, features alone are mended and a warning is logged.

    Args:
        model: Any trained PyG module; it is left as it was.
        data: The test graph; it is left as it was.
        adapter: An adapter, if the defaults will not do.
        call: ``limits``, ``seed``, ``progress``, ``callback`` and ``mode``, see :class:`graphmend.adapters.Adapter`.

    Returns:
        An :class:`~graphmend.Adaptation` with ``data`` (the mended graph), ``logits`` and the reversible ``patch``.
    """
    if adapter is not None:
        return adapter(model, data, **call)
    try:
        return GTrans()(model, data, **call)
    except UnsupportedLayerError as error:
        _LOG.warning("mending features only: %s", error)
        return GTrans(edge_steps=0)(model, data, **call)
