"""One call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import nn
from torch_geometric.data import Data

from graphmend.adapters.gate.gate import Gate
from graphmend.cards.make import card as make_card
from graphmend.cards.source_card import SourceCard
from graphmend.errors import require, shown
from graphmend.results.adaptation import Adaptation

__all__ = ["Mend", "mend"]


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

    Without an adapter the :class:`~graphmend.adapters.gate.Gate` decides what is done, and ``result.verdict`` says why.
    It knows far more with a source card; without one it acts only where the evidence is plain.

    Args:
        model: Any trained PyG module; it is left as it was.
        data: The test graph; it is left as it was. Where features are missing (NaN), the mended graph has them filled.
        adapter: A method, if it is not for the gate to choose: :class:`~graphmend.GTrans`, for example.
        card: What the model saw in training, from :func:`graphmend.card`.
        source: The graph the model was trained on, or a list of them, to make a card from on the way.
        call: ``limits``, ``seed``, ``progress``, ``callback`` and ``mode``, see :class:`graphmend.adapters.Adapter`.

    Returns:
        An :class:`~graphmend.Adaptation` with ``data`` (the mended graph), ``logits``, the reversible ``patch`` and the
        ``verdict``.
    """
    require(card is None or source is None, "give a card or the source to make one from, not both")
    adapter = _callable(adapter)
    if source is not None:
        card = make_card(model, source, embedding=getattr(adapter, "embedding", None))
    if card is not None:
        call["card"] = card
    return adapter(model, data, **call)


def _callable(adapter: Callable[..., Adaptation] | None) -> Callable[..., Adaptation]:
    """The gate where there is no adapter."""
    require(adapter is None or callable(adapter), f"an adapter is one of graphmend.adapters (got {shown(adapter)})")
    return Gate() if adapter is None else adapter


class Mend:
    """:func:`mend` as a transform from graph to graph, for ``torch_geometric.transforms.Compose`` and data sets.

    Only the mended graph comes back. Where the verdict, the logits or the patch matter, call :func:`mend`.

    Args:
        model: Any trained PyG module; it is left as it was.
        adapter: A method; the gate decides when ``None``.
        call: ``card``, ``limits``, ``seed`` and ``mode``, as in :func:`mend`.

    Example:
        >>> import torch
        >>> import torch_geometric.transforms as T
        >>> from graphmend.lab.backbones import GCN
        >>> data = Data(x=torch.rand(4, 3), edge_index=torch.tensor([[0, 1, 2], [1, 2, 3]]))
        >>> T.Compose([T.NormalizeFeatures(), Mend(GCN(3, 8, 2))])(data)
        Data(x=[4, 3], edge_index=[2, 3])
    """

    def __init__(self, model: nn.Module, adapter: Callable[..., Adaptation] | None = None, **call: Any) -> None:
        require(isinstance(model, nn.Module), f"the model must be a torch.nn.Module (got {type(model).__name__})")
        self.model, self.adapter, self.call = model, _callable(adapter), call

    def __call__(self, data: Data) -> Data:
        """The mended graph; the input is left as it was."""
        return mend(self.model, data, self.adapter, **self.call).data

    def __repr__(self) -> str:
        return f"Mend({type(self.model).__name__}, {self.adapter!r})"
