"""Surrogates by name."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor
from torch_geometric.data import Data

from graphmend.errors import GraphMendError, choose
from graphmend.surrogates.base import Backbone, Custom, Surrogate
from graphmend.surrogates.contrastive import Contrastive

SURROGATES: dict[str, type[Surrogate]] = {"contrastive": Contrastive}
"""Those that can be made by name alone; :class:`Supervised` needs a mask, :class:`Moments` a source card."""


def surrogate_of(spec: Surrogate | str | Callable[[Backbone, Data], Tensor]) -> Surrogate:
    """A surrogate from an instance, a name or a function ``(model, data) -> scalar``."""
    if isinstance(spec, Surrogate):
        return spec
    if isinstance(spec, str):
        return choose("surrogate", spec, SURROGATES)()
    if callable(spec):
        return Custom(spec)
    raise GraphMendError(f"a surrogate is a Surrogate, a name or a function (model, data) -> scalar (got {spec!r})")
