"""Values that nobody expects, and arguments for any callable, most of them sensible."""

from __future__ import annotations

import inspect
import math
import random
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

VALUES: dict[str, Callable[[], Any]] = {
    "None": lambda: None,
    "text": lambda: "x",
    "empty text": lambda: "",
    "True": lambda: True,
    "False": lambda: False,
    "-1": lambda: -1,
    "0": lambda: 0,
    "1": lambda: 1,
    "2": lambda: 2,
    "0.5": lambda: 0.5,
    "1.5": lambda: 1.5,
    "-0.1": lambda: -0.1,
    "tiny": lambda: 1e-300,
    "NaN": lambda: math.nan,
    "infinity": lambda: math.inf,
    "complex": lambda: 1j,
    "NumPy integer": lambda: np.int64(2),
    "NumPy float": lambda: np.float32(0.5),
    "NumPy NaN": lambda: np.float64("nan"),
    "NumPy bool": lambda: np.True_,
    "NumPy array": lambda: np.ones(3),
    "tensor 1.0": lambda: torch.tensor(1.0),
    "tensor of three": lambda: torch.tensor([1.0, 2.0, 3.0]),
    "empty tensor": lambda: torch.empty(0),
    "boolean tensor": lambda: torch.ones(5, dtype=torch.bool),
    "list": lambda: [],
    "list of text": lambda: ["x"],
    "dictionary": lambda: {},
    "object": object,
    "type": lambda: int,
    "bytes": lambda: b"x",
}
HUGE: dict[str, Callable[[], Any]] = {
    "10**9": lambda: 10**9,
    "10**30": lambda: 10**30,
    "-10**30": lambda: -(10**30),
    "1e300": lambda: 1e300,
    "10**400": lambda: 10**400,
}
SEEDS: dict[str, Callable[[], Any]] = {
    "True": lambda: True,
    "-1": lambda: -1,
    "2**32": lambda: 2**32,
    "2**63 - 1": lambda: 2**63 - 1,
    "2**63": lambda: 2**63,
    "2**64": lambda: 2**64,
    "NumPy integer": lambda: np.int64(3),
    "1.0": lambda: 1.0,
    "None": lambda: None,
    "text": lambda: "0",
}
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
    """A value with what to call it, for an argument of this name."""
    if name == "seed" or name.endswith("_seed"):
        kind = rng.choice(list(SEEDS))
        return kind, SEEDS[kind]()
    pool = VALUES if is_costly(name) else {**VALUES, **HUGE}
    if name == "callback":  # what a function of the caller's own does is for the caller to see
        pool = {kind: make for kind, make in pool.items() if not callable(make())}
    kind = rng.choice(list(pool))
    return kind, pool[kind]()


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
