r"""Convolutions that multiply with a normalised adjacency or Laplacian, where an edge has a presence.

The degrees count :math:`r_e w_e` like the entries themselves, so an absent edge is missing from both.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.nn import MessagePassing

from graphmend.engine.cache import cached
from graphmend.engine.neighbours import incoming_sum
from graphmend.engine.propagation import Propagation, normalised, pagerank
from graphmend.engine.streaming import StreamedAdjacency, StreamedHops
from graphmend.errors import require
from graphmend.model.convs.edges import Aggregated, Edges, power

__all__ = ["appnp", "cheb_conv", "gcn_conv", "sg_conv", "tag_conv"]


def gcn_conv(
    conv: MessagePassing, presence: Tensor, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None
) -> Tensor:
    """``GCNConv``: ``A_hat x W + b``."""
    propagate = _propagation(conv, Edges.of(presence, x, edge_index, edge_weight), conv.add_self_loops, conv.improved)
    trains_bias = conv.bias is not None and conv.bias.requires_grad
    out = propagate(conv.lin(x), shift=None if trains_bias else conv.bias)
    return out + conv.bias if trains_bias else out


def appnp(
    conv: MessagePassing, presence: Tensor, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None
) -> Tensor:
    r"""``APPNP``: :math:`x \leftarrow (1 - \alpha) \hat A x + \alpha x_0`, ``K`` times."""
    propagate = _propagation(conv, Edges.of(presence, x, edge_index, edge_weight), conv.add_self_loops)
    if not conv.training or isinstance(propagate, StreamedHops):
        return propagate.polynomial(x, pagerank(conv.K, conv.alpha, x.device).to(x.dtype))
    start = x
    for _ in range(conv.K):
        # as in the original layer, edges that one step drops stay dropped
        loop = None if propagate.loop is None else F.dropout(propagate.loop, conv.dropout)
        propagate = Propagation(propagate.adjacency, F.dropout(propagate.values, conv.dropout), loop)
        x = (1 - conv.alpha) * propagate(x) + conv.alpha * start
    return x


def sg_conv(
    conv: MessagePassing, presence: Tensor, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None
) -> Tensor:
    """``SGConv``: ``A_hat^K x W + b``."""
    propagate = _propagation(conv, Edges.of(presence, x, edge_index, edge_weight), conv.add_self_loops)
    power_only = torch.eye(conv.K + 1, dtype=x.dtype, device=x.device)[conv.K]

    def hop(h: Tensor, shift: Tensor | None) -> Tensor:
        out = propagate.polynomial(h, power_only)
        return out if shift is None else out + shift

    out: Tensor = conv.lin(Aggregated.of(x, hop))
    return out


def tag_conv(
    conv: MessagePassing, presence: Tensor, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None
) -> Tensor:
    """``TAGConv``: ``sum_k A_hat^k x W_k + b``, without self-loops."""
    propagate = _propagation(conv, Edges.of(presence, x, edge_index, edge_weight), add_self_loops=False)
    out: Tensor = conv.lins[-1](x)
    for lin in reversed(conv.lins[:-1]):  # Horner's rule, as narrow as the output
        out = propagate(out, add=lin(x))
    return out if conv.bias is None else out + conv.bias


def cheb_conv(
    conv: MessagePassing,
    presence: Tensor,
    x: Tensor,
    edge_index: Tensor,
    edge_weight: Tensor | None = None,
    batch: Tensor | None = None,
    lambda_max: Tensor | float | None = None,
) -> Tensor:
    """``ChebConv``: ``sum_k T_k(L_hat) x W_k + b`` with Chebyshev polynomials ``T_k``."""
    edges = Edges.of(presence, x, edge_index, edge_weight).without_loops()
    propagate = _scaled_laplacian(edges, conv.normalization, batch, lambda_max)
    before, current = x, x
    out: Tensor = conv.lins[0](x)
    for k, lin in enumerate(conv.lins[1:]):
        step = propagate(current)
        before, current = current, step if k == 0 else 2.0 * step - before
        out = out + lin(current)
    return out if conv.bias is None else out + conv.bias


def _propagation(
    conv: MessagePassing, edges: Edges, add_self_loops: bool, improved: bool = False
) -> Propagation | StreamedHops:
    """The adjacency a layer multiplies with, computed once for all layers that see the same edges."""
    streamed, normalizes = edges.streamed, getattr(conv, "normalize", True)
    if streamed is not None:
        key = ("streamed", normalizes, add_self_loops, edges.presence.dtype)
        return cached(key, edges.origin, lambda: _streamed(streamed, normalizes, add_self_loops, edges.presence.dtype))
    if not normalizes:
        return Propagation(edges.adjacency, edges.weight)
    kind = ("symmetric", add_self_loops, improved, edges.adjacency.num_nodes, edges.presence.dtype)
    return cached(kind, edges.origin, lambda: _symmetric(edges, add_self_loops, improved))


def _streamed(a: StreamedAdjacency, normalizes: bool, add_self_loops: bool, dtype: torch.dtype) -> StreamedHops:
    r"""The same for a mapped graph: :math:`s_i s_j` is a factor of each row and each column."""
    if not normalizes:
        return StreamedHops(a, None, None)
    degree = a.crow.diff().to(dtype)
    if not add_self_loops:
        scale = power(degree, -0.5)
        return StreamedHops(a, scale, scale)
    scale = (degree - a.loops + 1).rsqrt()  # a self-loop among the edges replaces the one that every node has
    return StreamedHops(a, scale, scale, (1 - a.loops.to(dtype)) * scale.square())


def _symmetric(edges: Edges, add_self_loops: bool, improved: bool = False) -> Propagation:
    r""":math:`D^{-1/2} A D^{-1/2}` with the in-degrees :math:`D` of :math:`A`.

    With ``add_self_loops``, every node has one self-loop: the one among the edges, with the model's own weight, or
    one of weight 1. PyG's ``improved`` makes that 2, but only in a graph that has edge weights.
    """
    adjacency, values = edges.adjacency, edges.weight
    if add_self_loops and edges.own_weight is None:
        return normalised(adjacency, values)
    loop = values.new_zeros(adjacency.num_nodes)
    if add_self_loops and edges.own_weight is not None:
        values, is_loop = edges.without_loops().weight, adjacency.is_loop
        loop = torch.full_like(loop, 2.0 if improved else 1.0)
        loop = loop.index_put((adjacency.row[is_loop].long(),), edges.own_weight[is_loop])
    scale = power(incoming_sum(adjacency, values) + loop, -0.5)
    values = scale.index_select(0, adjacency.row) * values * scale.index_select(0, adjacency.col)
    return Propagation(adjacency, values, loop * scale.square())


def _scaled_laplacian(
    edges: Edges, normalization: str | None, batch: Tensor | None, lambda_max: Tensor | float | None
) -> Propagation:
    r""":math:`\hat L = 2 L / \lambda_{\max} - I` with :math:`L = D - A`, :math:`I - D^{-1/2} A D^{-1/2}` (``sym``)
    or :math:`I - D^{-1} A` (``rw``), :math:`D` the degrees over the sources.

    :math:`\lambda_{\max}` is twice the largest entry of :math:`L` unless given, for each graph of a batch or for all.
    """
    adjacency, values = edges.adjacency, edges.weight
    degree = values.new_zeros(adjacency.num_nodes).index_add(0, adjacency.col, values)
    diagonal = degree if normalization is None else torch.ones_like(degree)
    if normalization == "sym":
        scale = power(degree, -0.5)
        values = scale.index_select(0, adjacency.row) * values * scale.index_select(0, adjacency.col)
    elif normalization == "rw":
        values = power(degree, -1.0).index_select(0, adjacency.col) * values
    if lambda_max is None:
        lambda_max = 2.0 * torch.cat([diagonal, -values]).max()
    top = torch.as_tensor(lambda_max, dtype=degree.dtype, device=degree.device)
    if top.numel() > 1:
        require(batch is not None, f"lambda_max has {top.numel()} values but there is no batch vector")
        top = top[batch]
    factor = (2.0 * power(top, -1.0)).expand_as(degree)
    return Propagation(adjacency, -values * factor.index_select(0, adjacency.col), diagonal * factor - 1.0)
