"""One call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import nn
from torch_geometric.data import Data

from graphmend.cards.make import card as make_card
from graphmend.cards.source_card import SourceCard
from graphmend.errors import require
from graphmend.gate.gate import Gate
from graphmend.results.adaptation import Adaptation


def mend(
    model: nn.Module,
    data: Data,
    adapter: Callable[..., Adaptation] | None = None,
    *,
    card: SourceCard | None = None,
    source: Data | Sequence[Data] | None = None,
    **call: Any,
) -> Adaptation:
    """Mend a graph for a frozen model, if there is something to mend: ``result = mend(model, data, card=card)``.

    Without an adapter the :class:`~graphmend.gate.Gate` decides what is done, and ``result.verdict`` says why. It knows
    far more with a source card; without one it acts only where the evidence is plain.

    Args:
        model: Any trained PyG module; it is left as it was.
        data: The test graph; it is left as it was.
        adapter: A method, if it is not for the gate to choose: :class:`~graphmend.GTrans`, for example.
        card: What the model saw in training, from :func:`graphmend.card`.
        source: The graph the model was trained on, or a list of them, to make a card from on the way.
        call: ``limits``, ``seed``, ``progress``, ``callback`` and ``mode``, see :class:`graphmend.adapters.Adapter`.

    Returns:
        An :class:`~graphmend.Adaptation` with ``data`` (the mended graph), ``logits``, the reversible ``patch`` and the
        ``verdict``.
    """
    require(card is None or source is None, "give a card or the source to make one from, not both")
    adapter = Gate() if adapter is None else adapter
    if source is not None:
        card = make_card(model, source, embedding=getattr(adapter, "embedding", None))
    if card is not None:
        call["card"] = card
    return adapter(model, data, **call)
