"""The adapter of 'graphmend mend' with the settings that were given."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

from torch import Tensor

from graphmend.adapters import ADAPTERS, Adapter
from graphmend.cli.settings import LOSS, settings
from graphmend.errors import choose
from graphmend.surrogates import Supervised, Surrogate, surrogate_class
from graphmend.transforms import view_of

__all__ = ["adapter_with"]


def adapter_with(name: str, values: dict[str, Any], arrays: dict[str, Tensor]) -> Adapter:
    """An adapter with its settings.

    Args:
        name: The adapter.
        values: The values of all its settings.
        arrays: The contents of arrays that some settings name; without them, the adapter is not yet for any graph.
    """
    given = {
        setting.name: arrays.get(setting.name) if setting.kind == "array" else values[setting.name]
        for setting in settings()[name]
        if setting not in LOSS and values[setting.name] is not None
    }
    if any(values.get(setting.name, setting.default) != setting.default for setting in LOSS):
        given["surrogate"] = _surrogate(values, arrays.get("label_mask"))
    return choose("adapter", name, ADAPTERS)(**given)


def _surrogate(values: dict[str, Any], labelled: Tensor | None) -> Surrogate:
    kind: Any = surrogate_class(values["surrogate"])
    takes_view = is_dataclass(kind) and "view" in (own.name for own in fields(kind))
    loss: Surrogate = kind(view_of(values["view"])) if takes_view else kind()
    return loss if labelled is None else Supervised(labelled) + float(values["surrogate_weight"]) * loss
