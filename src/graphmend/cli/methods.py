"""Adapters from the command line: which there are, and which options go with which."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

from torch import Tensor

from graphmend.adapters import ADAPTERS, Adapter
from graphmend.adapters.gate import Gate
from graphmend.cli.mend_options import GATE
from graphmend.errors import GraphMendError, choose
from graphmend.surrogates import Supervised, Surrogate, surrogate_class
from graphmend.transforms import view_of

LOSS = ("surrogate", "view", "label_mask", "surrogate_weight")
"""Options that make up the surrogate loss."""


def methods() -> dict[str, type[Adapter]]:
    """Every adapter by name, the gate included."""
    return {**ADAPTERS, GATE: Gate}


def options_of(name: str) -> set[str]:
    """The options that an adapter takes, by the names of its fields."""
    kind = choose("adapter", name, methods())
    known: set[str] = {field.name for field in fields(kind)} if is_dataclass(kind) else set()
    return known | set(LOSS) if "surrogate" in known else known


def applying(name: str, options: dict[str, Any], given: set[str]) -> dict[str, Any]:
    """Those of the options that the adapter has; one that was given and does not apply is an error.

    Args:
        name: The adapter.
        options: Options of all adapters with their values.
        given: Those that do not just have their default value.
    """
    known = options_of(name)
    for option in sorted(given - known):
        flag = f"--{option.replace('_', '-')}"
        remedy = "add --adapter gtrans, or leave the option out" if option in options_of("gtrans") else "leave it out"
        raise GraphMendError(f"{flag} {options[option]} does not apply to --adapter {name}; {remedy}")
    chosen = {option: value for option, value in options.items() if option in known}
    if "budget" in chosen:
        chosen["budget"] = parse_budget(chosen["budget"])
    return chosen


def parse_budget(text: str) -> float | int:
    """``0.05`` is a fraction, ``100`` a count."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    raise GraphMendError(f"budget must be a fraction such as 0.05 or a count such as 100 (got {text!r})")


def adapter_of(name: str, options: dict[str, Any], labelled: Tensor | None = None) -> Adapter:
    """The adapter with its options.

    Args:
        name: The adapter.
        options: Its options, as :func:`applying` returned them.
        labelled: The nodes of a graph whose labels may be used.
    """
    settings = {option: value for option, value in options.items() if option not in LOSS}
    if "surrogate" in options:
        settings["surrogate"] = _surrogate(options, labelled)
    return choose("adapter", name, methods())(**settings)


def _surrogate(spec: dict[str, Any], labelled: Tensor | None) -> Surrogate:
    kind: Any = surrogate_class(spec["surrogate"])
    takes_view = is_dataclass(kind) and any(field.name == "view" for field in fields(kind))
    loss: Surrogate = kind(view_of(spec["view"])) if takes_view else kind()
    return loss if labelled is None else Supervised(labelled) + float(spec["surrogate_weight"]) * loss
