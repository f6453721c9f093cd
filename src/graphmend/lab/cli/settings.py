"""Options of a trainer or a backbone alone, given as ``--set NAME=VALUE`` and typed like the arguments they set."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from typing import Any, get_args, get_type_hints

from graphmend.errors import GraphMendError, choose, listed, require
from graphmend.lab.backbones import BACKBONES
from graphmend.lab.training import TRAINERS, Trainer

SHARED = {field.name for field in fields(Trainer)}
"""Settings of all trainers."""

SHAPE = ("in_channels", "hidden_channels", "out_channels", "num_layers", "dropout", "batch_norm")
"""Arguments of all backbones."""

FLAGS = {*SHARED, *SHAPE} - {"in_channels", "out_channels"}
"""What has an option of the command line to itself."""

WORDS = {bool: "true or false", int: "a whole number", float: "a number", str: "a text", type(None): "none"}
TRUTH = {"true": True, "false": False}


def own_settings(texts: Iterable[str], trainer: str, backbone: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The options of the trainer, and those of the backbone, that ``NAME=VALUE`` texts set.

    An option that both have is called ``trainer.NAME`` or ``backbone.NAME``.

    Args:
        texts: As they were typed.
        trainer: The name of the trainer.
        backbone: The name of the backbone.
    """
    known = {"trainer": trainer_options(trainer), "backbone": backbone_options(backbone)}
    there = f"the trainer {trainer} has {listed(known['trainer']) or 'none'}"
    there += f", the backbone {backbone} has {listed(known['backbone']) or 'none'}"
    chosen: dict[str, dict[str, Any]] = {"trainer": {}, "backbone": {}}
    for text in texts:
        name, equals, value = text.partition("=")
        require(bool(name and equals), f"--set takes NAME=VALUE, such as weight=0.5 (got {text!r})")
        whose, _, option = name.rpartition(".")
        owners = [owner for owner, options in known.items() if option in options and whose in ("", owner)]
        remedy = f"use --{name.replace('_', '-')}" if name in FLAGS else there
        require(len(owners) > 0, f"--set has no option {name!r}; {remedy}")
        both = f"trainer.{option}=... or backbone.{option}=..."
        require(len(owners) == 1, f"--set {name} could be of the trainer or of the backbone; write {both}")
        (owner,) = owners
        require(option not in chosen[owner], f"--set {name} is given twice; leave one of them out")
        chosen[owner][option] = _typed(option, value, known[owner][option])
    return chosen["trainer"], chosen["backbone"]


def trainer_options(name: str) -> dict[str, Any]:
    """The options of a trainer alone, by name, with their types."""
    return {option: kind for option, kind in _arguments(choose("trainer", name, TRAINERS)) if option not in SHARED}


def backbone_options(name: str) -> dict[str, Any]:
    """The options of a backbone alone, by name, with their types."""
    return {option: kind for option, kind in _arguments(choose("backbone", name, BACKBONES)) if option not in SHAPE}


def _arguments(made: type) -> Iterable[tuple[str, Any]]:
    """The arguments of a constructor, with their types; without an annotation, that of the default value."""
    try:
        hints = get_type_hints(made if is_dataclass(made) else made.__init__)  # type: ignore[misc]
    except NameError:  # an annotation that only a type checker can read
        hints = {}
    for name, parameter in inspect.signature(made).parameters.items():
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            yield name, hints.get(name, type(parameter.default))


def _typed(name: str, text: str, kind: Any) -> Any:
    """The value that a text stands for."""
    kinds = get_args(kind) or (kind,)
    if type(None) in kinds and text.lower() == "none":
        return None
    if bool in kinds and text.lower() in TRUTH:
        return TRUTH[text.lower()]
    for number in (int, float, str):
        try:
            if number in kinds:
                return number(text)
        except ValueError:
            continue
    known = [WORDS[each] for each in kinds if each in WORDS]
    require(bool(known), f"{name} cannot be set from the command line; set it in Python")
    raise GraphMendError(f"{name} must be {' or '.join(known)} (got {text!r})")
