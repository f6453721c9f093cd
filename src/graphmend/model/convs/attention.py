r"""Convolutions with attention over the neighbours, where an edge has a presence.

.. math:: \alpha_e = \frac{r_e \exp(s_e)}{\sum_{e' \to i} r_{e'} \exp(s_{e'})}

with the layer's own scores :math:`s`: an absent edge takes no share of the attention.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.nn import MessagePassing

from graphmend.engine.gat import attend
from graphmend.engine.gatv2 import attend_v2
from graphmend.engine.neighbours import at_sources, at_targets, edge_softmax, incoming_sum, spmm
from graphmend.errors import require
from graphmend.model.convs.edges import FLOOR, Edges, power

__all__ = ["gat_conv", "gatv2_conv", "transformer_conv"]


def gat_conv(
    conv: MessagePassing,
    presence: Tensor,
    x: Tensor,
    edge_index: Tensor,
    edge_attr: Tensor | None = None,
    size: tuple[int, int] | None = None,
    return_attention_weights: bool | None = None,
) -> Tensor:
    """``GATConv``: scores ``leaky_relu(a_src W x_j + a_dst W x_i + a_edge W_e e)``."""
    require(not return_attention_weights, _NO_ATTENTION)
    edges = _edges(conv, Edges.of(presence, x, edge_index, size=size))
    source, target = (conv.lin, conv.lin) if conv.lin is not None else (conv.lin_src, conv.lin_dst)
    value: Tensor = source(x).view(-1, conv.heads, conv.out_channels)
    query = value if source is target else target(x).view_as(value)
    left, right = (value * conv.att_src).sum(-1), (query * conv.att_dst).sum(-1)
    plain = conv.add_self_loops and (edge_attr is None or conv.lin_edge is None)
    if plain and not (conv.training and conv.dropout > 0):
        out = attend(edges.adjacency, value, left, right, edges.presence, conv.negative_slope)
        return _merge_heads_and_add(conv, out, x)
    score, loop_score = _from_both_ends(edges, left, right), left + right
    if edge_attr is not None and conv.lin_edge is not None:
        attr, loop_attr = _attributes(conv, edges, edge_attr)
        weight = conv.lin_edge.weight.view(conv.heads, conv.out_channels, -1)
        weight = (weight * conv.att_edge.squeeze(0).unsqueeze(-1)).sum(1)
        score, loop_score = score + F.linear(attr, weight), loop_score + F.linear(loop_attr, weight)
    score, loop_score = (F.leaky_relu(s, conv.negative_slope) for s in (score, loop_score))
    out, _ = _attend(conv, edges, value, score, loop_score if conv.add_self_loops else None)
    return _merge_heads_and_add(conv, out, x)


def gatv2_conv(
    conv: MessagePassing,
    presence: Tensor,
    x: Tensor,
    edge_index: Tensor,
    edge_attr: Tensor | None = None,
    return_attention_weights: bool | None = None,
) -> Tensor:
    """``GATv2Conv``: scores ``a leaky_relu(W_l x_j + W_r x_i + W_e e)``."""
    require(not return_attention_weights, _NO_ATTENTION)
    edges = _edges(conv, Edges.of(presence, x, edge_index))
    value: Tensor = conv.lin_l(x).view(-1, conv.heads, conv.out_channels)
    query = value if conv.share_weights else conv.lin_r(x).view_as(value)
    if conv.add_self_loops and edge_attr is None and not (conv.training and conv.dropout > 0):
        attention = conv.att.view(conv.heads, conv.out_channels)
        out = attend_v2(edges.adjacency, value, query, attention, edges.presence, conv.negative_slope)
        return _merge_heads_and_add(conv, out, x)
    hidden, loop_hidden = _from_both_ends(edges, value, query), value + query
    if edge_attr is not None:
        require(conv.lin_edge is not None, "GATv2Conv got edge_attr but was made without edge_dim")
        attr, loop_attr = _attributes(conv, edges, edge_attr)
        hidden = hidden + conv.lin_edge(attr).view_as(hidden)
        loop_hidden = loop_hidden + conv.lin_edge(loop_attr).view_as(loop_hidden)
    score, loop_score = ((F.leaky_relu(h, conv.negative_slope) * conv.att).sum(-1) for h in (hidden, loop_hidden))
    out, _ = _attend(conv, edges, value, score, loop_score if conv.add_self_loops else None)
    return _merge_heads_and_add(conv, out, x)


def transformer_conv(
    conv: MessagePassing,
    presence: Tensor,
    x: Tensor,
    edge_index: Tensor,
    edge_attr: Tensor | None = None,
    return_attention_weights: bool | None = None,
) -> Tensor:
    """``TransformerConv``: scores ``<W_q x_i, W_k x_j + W_e e> / sqrt(d)``, messages ``W_v x_j + W_e e``."""
    require(return_attention_weights is None, _NO_ATTENTION)
    require(
        (edge_attr is None) == (conv.lin_edge is None),
        "TransformerConv must be given edge_attr exactly if it was made with edge_dim"
        f" (got edge_dim={conv.edge_dim} and {'no ' if edge_attr is None else ''}edge_attr)",
    )
    edges = Edges.of(presence, x, edge_index)
    query, key, value = (
        lin(x).view(-1, conv.heads, conv.out_channels) for lin in (conv.lin_query, conv.lin_key, conv.lin_value)
    )
    key = at_sources(edges.adjacency, key.flatten(1)).view(-1, conv.heads, conv.out_channels)
    attr = None
    if edge_attr is not None:
        attr = conv.lin_edge(edges.adjacency.order(edge_attr)).view_as(key)
        key = key + attr
    query = at_targets(edges.adjacency, query.flatten(1)).view_as(key)
    score = (query * key).sum(-1) / math.sqrt(conv.out_channels)
    out, attention = _attend(conv, edges, value, score, None)
    if attr is not None:
        out = out + incoming_sum(edges.adjacency, attention.unsqueeze(-1) * attr)
    out = out.flatten(1) if conv.concat else out.mean(dim=1)
    if not conv.root_weight:
        return out
    root: Tensor = conv.lin_skip(x)
    if conv.lin_beta is None:
        return out + root
    beta: Tensor = conv.lin_beta(torch.cat([out, root, out - root], dim=-1)).sigmoid()
    return beta * root + (1 - beta) * out


_NO_ATTENTION = "return_attention_weights is not supported while edges are learned: leave it out"


def _edges(conv: MessagePassing, edges: Edges) -> Edges:
    """GAT layers that add self-loops put one at every node in place of those among the edges."""
    return edges.without_loops() if conv.add_self_loops else edges


def _from_both_ends(edges: Edges, source: Tensor, target: Tensor) -> Tensor:
    adjacency, shape = edges.adjacency, source.shape[1:]
    both = at_sources(adjacency, source.flatten(1)) + at_targets(adjacency, target.flatten(1))
    return both.view(-1, *shape)


def _attributes(conv: MessagePassing, edges: Edges, edge_attr: Tensor) -> tuple[Tensor, Tensor]:
    """The attributes of the edges in row order, and those ``conv.fill_value`` makes for the self-loops."""
    adjacency = edges.adjacency
    attr = adjacency.order(edge_attr.view(-1, 1) if edge_attr.dim() == 1 else edge_attr)
    if not isinstance(conv.fill_value, str):
        fill = torch.as_tensor(conv.fill_value, dtype=attr.dtype, device=attr.device)
        return attr, fill.expand(adjacency.num_nodes, attr.size(1))
    loop_attr = incoming_sum(adjacency, edges.presence.unsqueeze(-1) * attr)
    if conv.fill_value == "mean":
        loop_attr = loop_attr * power(edges.degree(), -1.0).unsqueeze(-1)
    return attr, loop_attr


def _attend(
    conv: MessagePassing, edges: Edges, value: Tensor, score: Tensor, loop_score: Tensor | None
) -> tuple[Tensor, Tensor]:
    """The attention-weighted sum of the neighbours' values, ``(N, heads, channels)``, and the attention."""
    adjacency = edges.adjacency
    attention, loop = edge_softmax(adjacency, score, edges.presence, loop_score)
    if loop is None:  # the first edge of a node would take all attention at once, so there is no useful gradient
        empty = edges.degree() <= FLOOR
        attention = attention.masked_fill(empty.index_select(0, adjacency.row).unsqueeze(-1), 0.0)
    attention = F.dropout(attention, conv.dropout, conv.training)
    heads = zip(attention.t().contiguous(), value.unbind(1), strict=True)
    out = torch.stack([spmm(adjacency, share, head) for share, head in heads], dim=1)
    if loop is not None:
        out = out + F.dropout(loop, conv.dropout, conv.training).unsqueeze(-1) * value
    return out, attention


def _merge_heads_and_add(conv: MessagePassing, out: Tensor, x: Tensor) -> Tensor:
    """Concatenate or average the heads; add the residual connection and the bias."""
    out = out.flatten(1) if conv.concat else out.mean(dim=1)
    if conv.res is not None:
        out = out + conv.res(x)
    return out if conv.bias is None else out + conv.bias
