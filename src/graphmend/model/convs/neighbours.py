r"""Convolutions that sum or average over the neighbours, where an edge has a presence.

.. math:: \mathrm{sum}_i = \sum_{e = (j \to i)} r_e w_e x_j, \qquad
          \mathrm{mean}_i = \mathrm{sum}_i \,/\, \sum_{e \to i} r_e \quad (0 \text{ without neighbours})

with presences :math:`r` and, for :class:`GraphConv`, the model's own weights :math:`w`.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor
from torch_geometric.nn import MessagePassing
from torch_geometric.nn.aggr import MeanAggregation

from graphmend.engine.cache import cached
from graphmend.engine.neighbours import at_targets
from graphmend.engine.propagation import Propagation
from graphmend.engine.streaming import StreamedHops
from graphmend.model.convs.edges import Aggregated, Edges, power

__all__ = ["gin_conv", "graph_conv", "sage_conv"]


def graph_conv(
    conv: MessagePassing,
    presence: Tensor,
    x: Tensor,
    edge_index: Tensor,
    edge_weight: Tensor | None = None,
    size: tuple[int, int] | None = None,
) -> Tensor:
    """``GraphConv``: ``W_rel aggregate(x) + W_root x``."""
    edges = Edges.of(presence, x, edge_index, edge_weight, size)
    out: Tensor = conv.lin_rel(Aggregated.of(x, lambda h, shift: _aggregate(conv, edges, h, shift))) + conv.lin_root(x)
    return out


def sage_conv(
    conv: MessagePassing,
    presence: Tensor,
    x: Tensor,
    edge_index: Tensor,
    size: tuple[int, int] | None = None,
) -> Tensor:
    """``SAGEConv``: ``W_l aggregate(x) + W_r x``, projected before and normalised after if the layer says so."""
    edges = Edges.of(presence, x, edge_index, size=size)
    source: Tensor = conv.lin(x).relu() if conv.project else x
    out: Tensor = conv.lin_l(Aggregated.of(source, lambda h, shift: _aggregate(conv, edges, h, shift)))
    if conv.root_weight:
        out = out + conv.lin_r(x)
    return F.normalize(out, p=2.0, dim=-1) if conv.normalize else out


def gin_conv(
    conv: MessagePassing,
    presence: Tensor,
    x: Tensor,
    edge_index: Tensor,
    size: tuple[int, int] | None = None,
) -> Tensor:
    """``GINConv``: ``nn((1 + eps) x + aggregate(x))``."""
    edges = Edges.of(presence, x, edge_index, size=size)

    def hop(h: Tensor, shift: Tensor | None) -> Tensor:
        return _aggregate(conv, edges, h, shift, add=(1 + conv.eps) * h)

    out: Tensor = conv.nn(Aggregated.of(x, hop))
    return out


def _aggregate(
    conv: MessagePassing, edges: Edges, x: Tensor, shift: Tensor | None, add: Tensor | None = None
) -> Tensor:
    if isinstance(conv.aggr_module, MeanAggregation):
        name = ("mean", edges.adjacency.num_nodes, edges.presence.dtype)
        propagate: Propagation | StreamedHops = cached(name, edges.origin, lambda: _mean(edges))
    else:  # not cached: it would keep the presences, which it refers to
        streamed = edges.streamed
        propagate = (
            Propagation(edges.adjacency, edges.weight) if streamed is None else StreamedHops(streamed, None, None)
        )
    return propagate(x, shift=shift, add=add)


def _mean(edges: Edges) -> Propagation | StreamedHops:
    streamed = edges.streamed
    if streamed is not None:
        return StreamedHops(streamed, power(streamed.crow.diff().to(edges.presence.dtype), -1.0), None)
    inverse = power(edges.degree(), -1.0)
    return Propagation(edges.adjacency, edges.weight * at_targets(edges.adjacency, inverse))
