"""Weightings: how edges get a presence between 0 and 1 in a model that may know nothing of edge weights.

Each weighting takes a model, how to call it, a graph and the presences, and runs the model. Which one a model gets is
decided by trial runs, not by reading signatures: many layers accept weights and ignore them.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import MessagePassing
from torch_geometric.nn.aggr import SumAggregation

from graphmend.errors import UnsupportedLayerError, require
from graphmend.graph.edits import without_edges
from graphmend.model.call import Caller
from graphmend.model.convs.edges import FLOOR, computing_sums_at_once
from graphmend.model.convs.registry import CONVOLUTIONS, STREAMED, weighted_forward, why_unsupported

Weighting = Callable[[nn.Module, Caller, Data, Tensor], Any]


def patched(model: nn.Module, caller: Caller, data: Data, presence: Tensor) -> Any:
    """Every convolution computes with presences; the model's own weights pass through unchanged."""
    with ExitStack() as stack:
        for _, conv in convolutions(model):
            stack.enter_context(_forward_as(conv, weighted_forward(conv, presence)))
        return caller(data)


def patched_plainly(model: nn.Module, caller: Caller, data: Data, presence: Tensor) -> Any:
    """The same with every sum over neighbours computed immediately, for models that use it before a linear map."""
    with computing_sums_at_once():
        return patched(model, caller, data, presence)


def native(model: nn.Module, caller: Caller, data: Data, presence: Tensor) -> Any:
    """The model accepts edge weights itself: it gets its own weights times the presences."""
    graph = copy.copy(data)
    name = weight_name(caller, data)
    own = data.get(name)
    graph[name] = presence if own is None else own * presence.view(own.shape).to(own.dtype)
    return caller(graph)


def own_weights(model: nn.Module, caller: Caller, data: Data, presence: Tensor) -> Any:
    """Convolutions we do not know that take an ``edge_weight`` themselves get it; the others are hooked."""
    return _each_its_way(model, caller, data, presence, takes_weights)


def hooked(model: nn.Module, caller: Caller, data: Data, presence: Tensor) -> Any:
    """Messages are multiplied with presences on their way into a sum, for convolutions we do not know."""
    return _each_its_way(model, caller, data, presence, lambda _: False)


def _each_its_way(
    model: nn.Module, caller: Caller, data: Data, presence: Tensor, is_given_weights: Callable[[MessagePassing], bool]
) -> Any:
    def scale(module: MessagePassing, inputs: Any, message: Tensor) -> Tensor:
        lead = (1,) * (message.dim() + module.node_dim) if module.node_dim < 0 else ()
        return message * presence.to(message.dtype).view(*lead, -1, *(1,) * (message.dim() - 1 - len(lead)))

    with ExitStack() as stack:
        for _, conv in convolutions(model):
            if why_unsupported(conv) is None:
                stack.enter_context(_forward_as(conv, weighted_forward(conv, presence)))
            elif is_given_weights(conv):
                stack.enter_context(_forward_as(conv, _given_weights(conv, presence)))
            else:
                stack.callback(conv.register_message_forward_hook(scale).remove)
        return caller(data)


def _given_weights(conv: MessagePassing, presence: Tensor) -> Callable[..., Tensor]:
    """The layer's own forward with its weights times the presences.

    Edges of presence 0 are removed, because a layer that divides by a sum of weights has no finite gradient if all of
    them are 0.
    """
    forward, signature, keep = conv.forward, inspect.signature(conv.forward), presence > FLOOR

    def weighted(*args: Any, **kwargs: Any) -> Tensor:
        call = signature.bind(*args, **kwargs)
        edge_index, own = call.arguments["edge_index"], call.arguments.get("edge_weight")
        fits = isinstance(edge_index, Tensor) and edge_index.shape == (2, presence.numel())
        require(fits, "the model must pass its edge_index on unchanged")
        weight = presence if own is None else own * presence.view(own.shape).to(own.dtype)
        call.arguments["edge_index"], call.arguments["edge_weight"] = edge_index[:, keep], weight[keep]
        return forward(*call.args, **call.kwargs)  # type: ignore[no-any-return]

    return weighted


def takes_weights(conv: MessagePassing) -> bool:
    """Whether the forward of a layer has a parameter for edge weights; a trial shows what it does with them."""
    return {"edge_index", "edge_weight"} <= set(inspect.signature(conv.forward).parameters)


def filtered(model: nn.Module, caller: Caller, data: Data, presence: Tensor) -> Any:
    """Edges of presence 0 are removed; nothing between 0 and 1 is possible."""
    whole = not presence.requires_grad and bool(((presence == 0) | (presence == 1)).all())
    if not whole:
        raise UnsupportedLayerError(why_not(model))
    return caller(without_edges(data, presence > 0))


def weightings(model: nn.Module, caller: Caller, data: Data) -> Iterator[Weighting]:
    """The weightings worth trying on a model, best first."""
    reasons = [why_unsupported(conv) for _, conv in convolutions(model)]
    if reasons and not any(reasons):
        yield patched
        yield patched_plainly
    if caller.accepts(weight_name(caller, data)):
        yield native
    unknown = [conv for (_, conv), reason in zip(convolutions(model), reasons, strict=True) if reason is not None]
    if unknown and all(isinstance(conv.aggr_module, SumAggregation) for conv in unknown):
        yield hooked
        if any(map(takes_weights, unknown)):
            yield own_weights


def why_not(model: nn.Module, remedy: str = "edge_steps=0 still works", found: str | None = None) -> str:
    """The sentence that names the layers which keep edges from being learned.

    Args:
        model: The model.
        remedy: What to do instead.
        found: What trials have shown, as a part of a sentence about the model.
    """
    found = found or "it does not treat an edge of weight 0 as absent"
    reasons = {name: _why_not_through(conv, found) for name, conv in convolutions(model)}
    bad = [f"{name or 'the model'} ({reason})" for name, reason in reasons.items() if reason is not None]
    if not bad:
        bad = [f"{type(model).__name__} ({found})"]
    return f"edges cannot be learned through {', '.join(bad)}; {remedy}"


def _why_not_through(conv: MessagePassing, found: str) -> str | None:
    if type(conv) in CONVOLUTIONS or not takes_weights(conv):
        return why_unsupported(conv)
    if not isinstance(conv.aggr_module, SumAggregation):
        found = f"aggregates with {conv.aggr!r}: only a sum can fade an edge out"
    return f"{type(conv).__name__} takes edge weights, but {found}"


def weight_name(caller: Caller, data: Data) -> str:
    """The graph attribute that holds edge weights for this model."""
    if "edge_weight" in caller.extra or (caller.wants_data and data.get("edge_weight") is not None):
        return "edge_weight"
    attribute = data.get("edge_attr")
    scalar = attribute is not None and attribute.numel() == data.edge_index.size(1)
    if scalar or (not caller.wants_data and "edge_attr" in caller.extra and attribute is None):
        return "edge_attr"
    return "edge_weight"


def convolutions(model: nn.Module) -> list[tuple[str, MessagePassing]]:
    """All message passing layers by name."""
    return [(name, module) for name, module in model.named_modules() if isinstance(module, MessagePassing)]


def are_streamed(model: nn.Module) -> bool:
    """Whether all message passing layers of a model can read the edges of a mapped graph from the disk."""
    return all(type(conv) in STREAMED and not getattr(conv, "dropout", 0) for _, conv in convolutions(model))


@contextmanager
def _forward_as(conv: MessagePassing, forward: Callable[..., Tensor]) -> Iterator[None]:
    had = vars(conv).get("forward")
    conv.forward = forward
    try:
        yield
    finally:
        del conv.forward
        if had is not None:
            conv.forward = had
