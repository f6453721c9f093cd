"""Stock PyG convolutions in which every edge has a presence between 0 and 1.

Presence 0 equals the edge being removed from ``edge_index``, presence 1 the layer's own output, both to float
rounding, and the gradient for presences and features is finite everywhere. A self-loop always has presence 1.
Caches of ``cached=True`` layers are neither read nor written.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from torch import Tensor
from torch_geometric.nn import (
    APPNP,
    ChebConv,
    GATConv,
    GATv2Conv,
    GCNConv,
    GINConv,
    GraphConv,
    MessagePassing,
    SAGEConv,
    SGConv,
    TAGConv,
    TransformerConv,
)
from torch_geometric.nn.aggr import MeanAggregation, SumAggregation

from graphmend.errors import UnsupportedLayerError
from graphmend.model.convs.attention import gat_conv, gatv2_conv, transformer_conv
from graphmend.model.convs.neighbours import gin_conv, graph_conv, sage_conv
from graphmend.model.convs.spectral import appnp, cheb_conv, gcn_conv, sg_conv, tag_conv

__all__ = ["CONVOLUTIONS", "STREAMED", "Rule", "weighted_forward", "why_unsupported"]


class Rule(NamedTuple):
    """How one type of convolution is computed with presences, and whether it may average."""

    forward: Callable[..., Tensor]
    may_average: bool = False


CONVOLUTIONS: dict[type, Rule] = {
    APPNP: Rule(appnp),
    ChebConv: Rule(cheb_conv),
    GATConv: Rule(gat_conv),
    GATv2Conv: Rule(gatv2_conv),
    GCNConv: Rule(gcn_conv),
    GINConv: Rule(gin_conv, may_average=True),
    GraphConv: Rule(graph_conv, may_average=True),
    SAGEConv: Rule(sage_conv, may_average=True),
    SGConv: Rule(sg_conv),
    TAGConv: Rule(tag_conv),
    TransformerConv: Rule(transformer_conv),
}
"""By exact type: a subclass may compute something else."""

STREAMED = {APPNP, GCNConv, GINConv, GraphConv, SAGEConv, SGConv, TAGConv}
"""Convolutions that need no number per edge if all edges count alike."""

_HOOKS = ("_propagate_", "_message_", "_aggregate_", "_edge_update_")


def why_unsupported(conv: MessagePassing) -> str | None:
    """Why :func:`weighted_forward` cannot compute this layer, or ``None`` if it can."""
    name = type(conv).__name__
    if type(conv) not in CONVOLUTIONS:
        return f"{name} has no edge weights"
    may_average = CONVOLUTIONS[type(conv)].may_average
    aggregations = (SumAggregation, MeanAggregation) if may_average else (SumAggregation,)
    if type(conv.aggr_module) not in aggregations:
        remedy = "a sum or a mean" if may_average else "a sum"
        return f"{name} with aggr={conv.aggr!r} has no edge weights: only {remedy} can fade an edge out"
    if conv.flow != "source_to_target":
        return f"{name} with flow={conv.flow!r} has no edge weights: only flow='source_to_target' has"
    if conv.decomposed_layers > 1:
        return f"{name} with decomposed_layers={conv.decomposed_layers} has no edge weights: set it to 1"
    if conv.explain or any(hooks for key, hooks in vars(conv).items() if key.startswith(_HOOKS)):
        return f"{name} has hooks or an explanation mask in its message passing, which edge weights would bypass"
    fills_loops = getattr(conv, "add_self_loops", False) and getattr(conv, "edge_dim", None) is not None
    if fills_loops and isinstance(conv.fill_value, str) and conv.fill_value not in ("mean", "add", "sum"):
        return (
            f"{name} with fill_value={conv.fill_value!r} has no edge weights: only a sum or a mean can fade an edge out"
        )
    return None


def weighted_forward(conv: MessagePassing, presence: Tensor) -> Callable[..., Tensor]:
    """A function with the call signature of ``conv.forward`` in which edge ``e`` exists to the degree ``presence[e]``.

    Args:
        conv: A layer for which :func:`why_unsupported` returns ``None``.
        presence: Values in ``[0, 1]``, one per column of the ``edge_index`` the function will be called with.

    Example:
        >>> forward = weighted_forward(conv, torch.ones(edge_index.size(1)))
        >>> torch.allclose(forward(x, edge_index), conv(x, edge_index))
        True
    """
    reason = why_unsupported(conv)
    if reason is not None:
        raise UnsupportedLayerError(f"{reason}; edge_steps=0 still works")
    return partial(CONVOLUTIONS[type(conv)].forward, conv, presence)
