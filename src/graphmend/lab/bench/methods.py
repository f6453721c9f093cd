"""Adapters and surrogates from plain JSON settings."""

from __future__ import annotations

from typing import Any

from torch_geometric.data import Data

from graphmend.adapters import ADAPTERS, Adapter
from graphmend.adapters.gate import Gate
from graphmend.errors import choose
from graphmend.lab.data.splits import Splits
from graphmend.surrogates import SURROGATES, Supervised, Surrogate
from graphmend.surrogates.slaps import SLAPS
from graphmend.transforms import VIEWS

__all__ = ["adapter_from", "surrogate_from"]


def adapter_from(settings: dict[str, Any], data: Data, splits: Splits) -> Adapter:
    """An adapter for one graph.

    Args:
        settings: ``name``, ``surrogate`` (see :func:`surrogate_from`) and whatever the adapter's constructor takes.
            ``surrogate_weight`` puts the surrogate with that weight beside the loss of the training nodes.
            ``validation`` is the name of a mask of the graph, for adapters that choose by labels.
        data: The graph.
        splits: For surrogates that are fitted to training graphs.
    """
    options = dict(settings)
    kind: Any = choose("adapter", options.pop("name"), {**ADAPTERS, "gate": Gate})
    weight, surrogate = options.pop("surrogate_weight", None), options.pop("surrogate", None)
    if surrogate is not None or weight is not None:
        loss = surrogate_from(surrogate or {"name": "contrastive"}, splits)
        if weight is not None:
            known = Supervised(data.train_mask)
            loss = known + float(weight) * loss if weight else known
        options["surrogate"] = loss
    if "validation" in options:
        options["validation"] = data[options["validation"]]
    made: Adapter = kind(**options)
    return made


def surrogate_from(settings: dict[str, Any], splits: Splits) -> Surrogate:
    """A surrogate: its ``name``, a ``view`` with a name of its own, and whatever its constructor takes."""
    options = dict(settings)
    name = options.pop("name")
    if name == "slaps":
        return SLAPS.fit(splits.train[0], **options)
    if "view" in options:
        view = dict(options["view"])
        kind: Any = choose("view", view.pop("name"), VIEWS)
        options["view"] = kind(**view)
    made: Surrogate = choose("surrogate", name, SURROGATES)(**options)
    return made
