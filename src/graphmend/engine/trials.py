"""Does a loss give the same numbers with shared features as without? Tried once per model and loss."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphmend.contracts import Backbone, Surrogate
from graphmend.engine.linear_maps import LinearMaps, RowGradient
from graphmend.engine.shared_features import SharedFeatures

__all__ = ["scalar", "total_of", "why_features_are_not_shared", "with_clones"]

_ROWS = 4096  # rows of a gradient that are compared at a time
_TOLERANCE = 1e-3  # times the norm of a gradient; a gradient along another path differs by far more


def why_features_are_not_shared(model: Backbone, surrogate: Surrogate, data: Data, seed: int) -> str | None:
    """Why the loss needs ordinary features, or ``None`` if loss and gradients are the same with shared ones.

    A loss may, for example, differentiate by the features itself, or write into them.

    Args:
        model: The frozen model.
        surrogate: The loss.
        data: A graph on which the loss can be computed, with a presence per edge as ``edge_weight``, or without.
        seed: Seed of the views; both ways get the same ones.
    """
    x = data.x.detach().clone().requires_grad_()
    plain = _gradients(model, surrogate, data, x, seed, shared=False)
    if x._version > 0 or not torch.equal(x, data.x):
        return "the loss writes into the features"  # products computed before would not follow
    try:
        shared = _gradients(model, surrogate, data, data.x.detach().clone().requires_grad_(), seed, shared=True)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    for name, (scale, difference) in {
        "loss": _compared(plain.loss, shared.loss),
        "gradient of the features": _compared_rows(plain.features, shared.features, x),
        "gradient of the edges": _compared(plain.edges, shared.edges),
    }.items():
        if not difference <= _TOLERANCE * max(scale, 1e-6):
            return f"the {name} differs by {difference:.1e} of {scale:.1e}"
    return None


class _Gradients(NamedTuple):
    loss: Tensor
    features: RowGradient
    edges: Tensor


def _gradients(model: Backbone, surrogate: Surrogate, data: Data, x: Tensor, seed: int, *, shared: bool) -> _Gradients:
    graph = copy.copy(data)
    with_clones(graph)
    maps, weight = LinearMaps(x), data.get("edge_weight")
    graph.x = SharedFeatures.of(maps) if shared else x
    variables = []
    if weight is not None:
        graph.edge_weight = weight.detach().clone().requires_grad_()
        variables.append(graph.edge_weight)
    loss = _seeded(lambda generator: total_of(surrogate.terms(model, graph, generator), x.device), x.device, seed)
    none = torch.zeros((), dtype=x.dtype, device=x.device)
    if not loss.requires_grad:
        return _Gradients(loss.detach(), RowGradient(None, None, None), none)
    edges = torch.autograd.grad(loss, variables, allow_unused=True, retain_graph=True) if variables else ()
    if shared:
        features = maps.gradient(loss)
    else:
        features = RowGradient(torch.autograd.grad(loss, x, allow_unused=True)[0], None, None)
    return _Gradients(loss.detach(), features, edges[0] if edges and edges[0] is not None else none)


def with_clones(graph: Data) -> dict[str, tuple[Tensor, int]]:
    """Replace the user's tensors in a graph by clones; all tensors of it with their versions."""
    for name, value in graph.to_dict().items():
        if isinstance(value, Tensor) and name not in ("x", "edge_index", "edge_weight"):
            graph[name] = value.clone()
    tensors = {name: value for name, value in graph.to_dict().items() if isinstance(value, Tensor) and name != "x"}
    return {name: (value, value._version) for name, value in tensors.items()}


def _compared(a: Tensor, b: Tensor) -> tuple[float, float]:
    """The norm of a tensor, and that of its difference to another one."""
    return float(torch.linalg.vector_norm(a)), float(torch.linalg.vector_norm(a - b))


def _compared_rows(a: RowGradient, b: RowGradient, x: Tensor) -> tuple[float, float]:
    """The same for gradients of features, a block of rows at a time."""
    norms = []
    for start in range(0, x.size(0), _ROWS):
        stop = min(start + _ROWS, x.size(0))
        norms.append(_compared(*(gradient.rows(start, stop, torch.empty_like(x[start:stop])) for gradient in (a, b))))
    scale, difference = (math.hypot(*parts) for parts in zip(*norms, strict=True))
    return scale, difference


def total_of(terms: Mapping[str, Any], device: torch.device) -> Tensor:
    """The sum of the terms of a loss."""
    return torch.stack([scalar(value, device) for value in terms.values()]).sum()


def scalar(value: Any, device: torch.device) -> Tensor:
    """A number as a tensor without dimensions."""
    return value.reshape(()) if isinstance(value, Tensor) else torch.as_tensor(value, device=device).reshape(())


def _seeded(function: Callable[[torch.Generator], Tensor], device: torch.device, seed: int) -> Tensor:
    """Run with a generator of its own and with the global ones seeded, which are restored afterwards."""
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []), torch.enable_grad():
        torch.default_generator.manual_seed(seed)
        if device.type == "cuda":
            torch.cuda.manual_seed(seed)
        return function(torch.Generator(device=device).manual_seed(seed))
