"""Values that nobody expects, and arguments for any callable, most of them sensible."""

from __future__ import annotations

import copy
import inspect
import math
import random
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from graphmend.errors import shown


class Thing:
    """Something of somebody's own."""

    def __repr__(self) -> str:
        return "a thing"


VALUES: tuple[Any, ...] = (
    *(None, "x", "", True, False, -1, 0, 1, 2, 0.5, 1.5, -0.1, 1e-300, math.nan, math.inf, 1j, b"x", int),
    *(np.int64(2), np.float32(0.5), np.float64("nan"), np.True_, np.ones(3), [], ["x"], {}, Thing()),
    *(torch.tensor(1.0), torch.tensor([1.0, 2.0, 3.0]), torch.empty(0), torch.ones(5, dtype=torch.bool)),
)
HUGE: tuple[Any, ...] = (10**9, 10**30, -(10**30), 1e300, 10**400)
SEEDS: tuple[Any, ...] = (True, -1, 2**32, 2**63 - 1, 2**63, 2**64, np.int64(3), 1.0, None, "0")
COSTLY = ("steps", "epochs", "samples", "length", "layers", "hops", "iterations", "rounds", "repeats", "halves")
"""Parts of the names of numbers that cost time in proportion: whoever asks for a billion steps has to wait for them."""
CHEAP: dict[str, int] = {"steps": 2, "epochs": 2, "num_samples": 2}
"""What replaces expensive defaults."""
WORDS = (
    "adam", "adamw", "sign", "gradient", "existing", "random_block", "delete", "reverse", "relative", "absolute",
    "gaussian", "swap", "outlier", "cosine", "jaccard", "auto", "eager", "tanh_margin", "masked_cross_entropy",
    "adaptive", "official", "port", "contrastive", "drop_edge", "accuracy", "macro_f1", "roc_auc", "multiclass",
    "binary", "a", "conv1", "layers.0",
)  # fmt: skip
"""Choices that some option has, and names of modules."""


def is_costly(name: str) -> bool:
    return any(part in name for part in COSTLY)


def odd_value(rng: random.Random, name: str = "") -> tuple[str, Any]:
    """A value of its own with what to call it, for an argument of this name."""
    pool = VALUES if is_costly(name) else (*VALUES, *HUGE)
    if name == "seed" or name.endswith("_seed"):
        pool = SEEDS
    if name == "callback":  # what a function of the caller's own does is for the caller to see
        pool = tuple(value for value in pool if not callable(value))
    value = copy.deepcopy(rng.choice(pool))
    return shown(value, 30), value


def arguments(
    rng: random.Random, function: Callable[..., Any], given: Mapping[str, Any], oddness: float = 0.25
) -> tuple[str, dict[str, Any]]:
    """Keyword arguments for a function or a class: those given, cheap ones, and here and there an odd one.

    Args:
        rng: Source of all choices.
        function: What is to be called.
        given: Arguments that have no sensible default, used as far as the function has them.
        oddness: The share of odd ones.
    """
    chosen: dict[str, Any] = {}
    told: list[str] = []
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD) or name.startswith("_"):
            continue
        if name in given:
            chosen[name] = given[name]
        elif name in CHEAP:
            chosen[name] = CHEAP[name]
        if rng.random() < oddness and name not in ("model", "data"):
            if isinstance(parameter.default, str) and rng.random() < 0.6:
                kind = chosen[name] = rng.choice(WORDS)
            elif isinstance(parameter.default, int | float) and rng.random() < 0.4:
                kind = chosen[name] = rng.choice((0, 1, 2, 0.1, 0.5, 1.0))
            else:
                kind, chosen[name] = odd_value(rng, name)
            told.append(f"{name}={kind}")
    return ", ".join(told), chosen
