"""Everything a user can see of a model, a graph and the random number generators, to be compared."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.data import Data


def snapshot(model: nn.Module) -> list[Any]:
    """Everything a user can see of a model: identities, contents, flags."""
    out: list[Any] = []
    for name, module in model.named_modules():
        out += [name, module.training]
        for key, value in sorted(vars(module).items()):
            out += [key, id(value)]
            if isinstance(value, (dict, list, set)):
                out += [[(k, id(value[k])) for k in value] if isinstance(value, dict) else list(value)]
            if isinstance(value, Tensor):
                out += [value.detach().clone()]
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        out += [name, id(tensor), tensor.detach().clone(), tensor.requires_grad, tensor.is_leaf]
        out += [None if tensor.grad is None else tensor.grad.clone()]
    return out


def generator_states() -> list[Any]:
    """Those of torch, Python and NumPy."""
    _, keys, *rest = np.random.get_state()  # noqa: NPY002
    return [torch.get_rng_state(), random.getstate(), torch.from_numpy(keys.copy()), *rest]


def state_of(model: nn.Module, data: Data) -> list[Any]:
    """Generators, graph and model."""
    out = generator_states()
    for name, value in data.to_dict().items():
        out += [name, id(value), value.clone(), value._version, value.requires_grad]
    return out + snapshot(model)


def assert_same(before: list[Any], after: list[Any]) -> None:
    assert len(before) == len(after)
    for a, b in zip(before, after, strict=True):
        assert torch.equal(a, b) if isinstance(a, Tensor) else a == b


class Boom(Exception):
    """An error that only a test raises."""
