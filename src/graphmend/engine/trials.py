"""Does a loss give the same numbers with shared features as without? Tried once per model and loss."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphmend.contracts import Backbone, Surrogate
from graphmend.engine.linear_maps import LinearMaps
from graphmend.engine.shared_features import SharedFeatures

__all__ = ["why_features_are_not_shared"]

_LOG = logging.getLogger(__name__)
_TOLERANCE = 1e-3  # of the norm of a gradient; a gradient that takes another way differs by far more


def why_features_are_not_shared(model: Backbone, surrogate: Surrogate, data: Data, seed: int) -> str | None:
    """Why the loss needs ordinary features, or ``None`` if loss and gradients are the same with shared ones.

    A loss may, for example, differentiate by the features itself, or write into them.

    Args:
        model: The frozen model.
        surrogate: The loss.
        data: A graph on which the loss can be computed, with a presence per edge as ``edge_weight``, or without.
        seed: Seed of the views; both ways get the same ones.
    """
    x, again = (data.x.detach().clone().requires_grad_() for _ in range(2))
    plain = _loss_and_gradients(model, surrogate, data, x, seed, shared=False)
    if x._version > 0 or not torch.equal(x, data.x):
        return "the loss writes into the features"  # products computed before would not follow
    try:
        shared = _loss_and_gradients(model, surrogate, data, again, seed, shared=True)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    names = ("loss", "gradient of the features", "gradient of the edges")
    for name, a, b in zip(names, plain, shared, strict=True):
        scale = max(float(torch.linalg.vector_norm(a)), 1e-6)
        difference = float(torch.linalg.vector_norm(a - b))
        if not difference <= _TOLERANCE * scale:
            return f"the {name} differs by {difference:.1e} of {scale:.1e}"
    return None


def _loss_and_gradients(
    model: Backbone, surrogate: Surrogate, data: Data, x: Tensor, seed: int, *, shared: bool
) -> list[Tensor]:
    graph = copy.copy(data)
    maps, weight = LinearMaps(x), data.get("edge_weight")
    graph.x = SharedFeatures.of(maps) if shared else x
    variables = []
    if weight is not None:
        graph.edge_weight = weight.detach().clone().requires_grad_()
        variables.append(graph.edge_weight)
    loss = _seeded(lambda generator: _total(surrogate.terms(model, graph, generator)), x.device, seed)
    if not loss.requires_grad:
        return [loss.detach(), torch.zeros(()), torch.zeros(())]
    edges = torch.autograd.grad(loss, variables, allow_unused=True, retain_graph=True) if variables else ()
    if shared:
        features = maps.gradient(loss).rows(0, x.size(0), torch.empty_like(x))
    else:
        direct = torch.autograd.grad(loss, x, allow_unused=True)[0]
        features = torch.zeros_like(x) if direct is None else direct
    for_edges = edges[0] if edges and edges[0] is not None else torch.zeros(())
    return [loss.detach(), features, for_edges]


def _total(terms: dict[str, Any]) -> Tensor:
    return torch.stack([torch.as_tensor(value).reshape(()) for value in terms.values()]).sum()


def _seeded(function: Callable[[torch.Generator], Tensor], device: torch.device, seed: int) -> Tensor:
    """Run with a generator of its own and with the global ones, which are given back as they were, seeded."""
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []), torch.enable_grad():
        torch.default_generator.manual_seed(seed)
        if device.type == "cuda":
            torch.cuda.manual_seed(seed)
        return function(torch.Generator(device=device).manual_seed(seed))
