"""Surrogates by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from torch import Tensor
from torch_geometric.data import Data

import graphmend.contracts as contracts
from graphmend.errors import GraphMendError, choose, require, shown
from graphmend.surrogates.adgcl import ADGCL
from graphmend.surrogates.base import Backbone, Custom, OfContract, Surrogate
from graphmend.surrogates.contrastive import Contrastive
from graphmend.surrogates.entropy import Entropy
from graphmend.surrogates.reconstruction import Reconstruction

SURROGATES: dict[str, type[Surrogate]] = {
    "adgcl": ADGCL,
    "contrastive": Contrastive,
    "entropy": Entropy,
    "reconstruction": Reconstruction,
}
"""Those that can be made by name alone.

Example:
    >>> from graphmend.surrogates import SURROGATES
    >>> "contrastive" in SURROGATES
    True
"""

NEEDS = {
    "moments": "a source card; pass Moments(graphmend.card(model, train_data))",
    "slaps": "an auto-encoder that has seen the training graph; pass SLAPS.fit(train_data)",
    "supervised": "a mask of the nodes whose labels may be used; pass Supervised(mask)",
}
"""What the other losses need, by the name that a user may try."""


def surrogate_class(name: str) -> type[Surrogate]:
    """The class of a surrogate that can be made by name alone.

    Example:
        >>> from graphmend.surrogates import surrogate_class
        >>> surrogate_class("entropy").__name__
        'Entropy'
    """
    is_known = name in SURROGATES or name not in NEEDS
    require(is_known, f"the surrogate {name!r} cannot be made by name: it needs {NEEDS.get(name)}")
    return choose("surrogate", name, SURROGATES)


def surrogate_of(spec: contracts.Surrogate | str | Callable[[Backbone, Data], Tensor]) -> Surrogate:
    """A surrogate from anything that keeps the contract, from a name or from a function ``(model, data) -> scalar``.

    Example:
        >>> from graphmend.surrogates import surrogate_of
        >>> type(surrogate_of("contrastive")).__name__
        'Contrastive'
    """
    if isinstance(spec, Surrogate):
        return spec
    if callable(getattr(spec, "terms", None)) and not isinstance(spec, type):
        return OfContract(cast(contracts.Surrogate, spec))
    if isinstance(spec, str):
        return surrogate_class(spec)()
    if callable(spec):
        return Custom(spec)
    raise GraphMendError(
        "a surrogate is one of graphmend.surrogates, its name, has terms(model, data, generator) -> dict of tensors, "
        f"or is a function (model, data) -> scalar (got {shown(spec)})"
    )
