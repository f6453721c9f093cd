"""Adapters from the command line: which there are, and which options go with which."""

from __future__ import annotations

import logging
from dataclasses import fields, is_dataclass, replace
from typing import Any

import typer
from torch import nn
from torch_geometric.data import Data

from graphmend.adapters import ADAPTERS, Adapter, GTrans
from graphmend.errors import UnsupportedLayerError, choose, listed, require
from graphmend.gate import Gate
from graphmend.results.adaptation import Adaptation
from graphmend.surrogates import Supervised, Surrogate, surrogate_class
from graphmend.transforms import view_of

LOSS = ("surrogate", "view", "label_mask", "surrogate_weight")
"""Options that make up the surrogate loss."""

GATE = "gate"


def methods() -> dict[str, type[Adapter]]:
    """Every adapter by name, the gate included."""
    return {**ADAPTERS, GATE: Gate}


def options_of(name: str) -> set[str]:
    """The options that an adapter takes, by the names of its fields."""
    kind = choose("adapter", name, methods())
    known: set[str] = {field.name for field in fields(kind)} if is_dataclass(kind) else set()
    return known | set(LOSS) if "surrogate" in known else known


def applying(name: str, options: dict[str, Any], context: typer.Context) -> dict[str, Any]:
    """Those of the options that the adapter has; one that was given and does not apply is an error.

    Args:
        name: The adapter.
        options: Options of all adapters with their values.
        context: Tells the options that were given from those with their default value.
    """
    known = options_of(name)
    for option, value in options.items():
        source = context.get_parameter_source(option)
        is_default = source is None or source.name in ("DEFAULT", "DEFAULT_MAP")
        flag = f"--{option.replace('_', '-')}"
        remedy = "add --adapter gtrans, or leave the option out" if option in options_of("gtrans") else "leave it out"
        require(option in known or is_default, f"{flag} {value} does not apply to --adapter {name}; {remedy}")
    return {option: value for option, value in options.items() if option in known}


def adapter_of(name: str, options: dict[str, Any], data: Data | None = None) -> Adapter:
    """The adapter with its options; labels are looked up in the graph, if there is one."""
    settings = {option: value for option, value in options.items() if option not in LOSS}
    if "surrogate" in options:
        settings["surrogate"] = _surrogate(options, data)
    return choose("adapter", name, methods())(**settings)


def _surrogate(spec: dict[str, Any], data: Data | None) -> Surrogate:
    kind: Any = surrogate_class(spec["surrogate"])
    takes_view = is_dataclass(kind) and any(field.name == "view" for field in fields(kind))
    loss: Surrogate = kind(view_of(spec["view"])) if takes_view else kind()
    name = spec["label_mask"]
    if name is None or data is None:
        return loss
    mask = data.get(name)
    require(mask is not None, f"the graph has no mask {name!r}; it has {listed(data.keys())}")
    require(data.get("y") is not None, f"--label-mask {name} needs labels, but the graph has no y")
    return Supervised(mask) + float(spec["surrogate_weight"]) * loss


def adapt(adapter: Adapter, net: nn.Module, data: Data, **call: Any) -> Adaptation:
    """Mend; where a layer cannot take edge weights, the features alone."""
    try:
        return adapter(net, data, **call)
    except UnsupportedLayerError as error:
        has_both = isinstance(adapter, GTrans) and adapter.feature_steps > 0
        require(has_both, str(error).replace("edge_steps=0", "--edge-steps 0 with --feature-steps"))
        assert isinstance(adapter, GTrans)
        logging.getLogger(__name__).warning("mending features only: %s", error)
        return replace(adapter, edge_steps=0)(net, data, **call)
