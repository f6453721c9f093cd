"""One call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Unpack

from torch import nn
from torch_geometric.data import Data

from graphmend.adapters.base import call, check_adapter
from graphmend.adapters.case import Options
from graphmend.adapters.gate import Gate
from graphmend.cards.make import card as make_card
from graphmend.contracts import Adapter
from graphmend.errors import require
from graphmend.results.adaptation import Adaptation

__all__ = ["Mend", "mend"]


def mend(
    model: nn.Module,
    data: Data,
    adapter: Adapter | Callable[..., Adaptation] | None = None,
    *,
    source: Data | Sequence[Data] | None = None,
    **options: Unpack[Options],
) -> Adaptation:
    """Mend a graph for a frozen model, if there is something to mend: ``result = mend(model, data, card=card)``.

    Without an adapter the :class:`~graphmend.adapters.gate.Gate` decides what is done, and ``result.verdict`` says why.
    It knows far more with a source card; without one it acts only where the evidence is plain.

    Args:
        model: Any trained PyG module; it is left as it was.
        data: The test graph; it is left as it was. Where features are missing (NaN), the mended graph has them filled.
        adapter: A method, if it is not for the gate to choose: :class:`~graphmend.GTrans`, for example.
        source: The graph the model was trained on, or a list of them, to make a card from on the way.
        options: ``card`` (what the model saw in training, from :func:`graphmend.card`), ``limits``, ``seed``,
            ``progress``, ``callback``, ``mode`` and ``task`` (what the model's rows are, where that cannot be told:
            ``"classes"``, ``"labels"``, ``"numbers"`` or ``"embedding"``), see :class:`graphmend.adapters.Adapter`.

    Returns:
        An :class:`~graphmend.Adaptation` with ``data`` (the mended graph), ``logits``, the reversible ``patch`` and the
        ``verdict``.
    """
    adapter = Gate() if adapter is None else check_adapter(adapter)
    if source is not None:
        given = options.get("card") is not None
        require(not given, "give a card or the source to make one from, not both")
        embedding, task = getattr(adapter, "embedding", None), options.get("task")
        options["card"] = make_card(model, source, embedding=embedding, task=task)
    return call(adapter, model, data, **options)


class Mend:
    """:func:`mend` as a transform from graph to graph, for ``torch_geometric.transforms.Compose`` and data sets.

    Only the mended graph comes back. Where the verdict, the logits or the patch matter, call :func:`mend`.

    Args:
        model: Any trained PyG module; it is left as it was.
        adapter: A method; the gate decides when ``None``.
        options: ``card``, ``limits``, ``seed``, ``mode`` and ``task``, as in :func:`mend`.

    Example:
        >>> import torch
        >>> import torch_geometric.transforms as T
        >>> from graphmend.lab.backbones import GCN
        >>> data = Data(x=torch.rand(4, 3), edge_index=torch.tensor([[0, 1, 2], [1, 2, 3]]))
        >>> T.Compose([T.NormalizeFeatures(), Mend(GCN(3, 8, 2))])(data)
        Data(x=[4, 3], edge_index=[2, 3])
    """

    def __init__(
        self, model: nn.Module, adapter: Adapter | Callable[..., Adaptation] | None = None, **options: Any
    ) -> None:
        require(isinstance(model, nn.Module), f"the model must be a torch.nn.Module (got {type(model).__name__})")
        self.model, self.options = model, options
        self.adapter = Gate() if adapter is None else check_adapter(adapter)

    def __call__(self, data: Data) -> Data:
        """The mended graph; the input is left as it was."""
        return mend(self.model, data, self.adapter, **self.options).data

    def __repr__(self) -> str:
        return f"Mend({type(self.model).__name__}, {self.adapter!r})"
