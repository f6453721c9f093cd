r"""Hops over a weighted adjacency, fused with what frozen layers do around them, and the normalisation of GCN.

A hop is :math:`Y = (A_v + \mathrm{diag}(\ell)) X`. Around it, a frozen layer adds what does not come from the
neighbours, scales and shifts (bias, batch normalisation in evaluation mode) and cuts off at zero. All of this happens
in place on the hop's own result, and only that result is kept for the gradient.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from graphmend.engine.adjacency import Adjacency
from graphmend.engine.autograd import apply, needed_gradients
from graphmend.engine.cache import cached
from graphmend.engine.neighbours import column_sums
from graphmend.engine.ops import (
    at_least_single,
    gathered,
    hop,
    inverse_root_degrees,
    relu_gradient,
    row_products,
    row_sums,
    sampled_product,
    scaled,
)

__all__ = ["Propagation", "at_least_single", "gcn_norm", "normalised", "pagerank"]


class Propagation:
    r"""A weighted adjacency to multiply with: the values of its entries, and its diagonal apart as a dense vector.

    Args:
        adjacency: The pattern.
        values: Values of the entries in row order.
        loop: The diagonal, or ``None`` for zeros.
        transposed: The values of the transpose by type, filled by the first hop that is differentiated.
    """

    def __init__(
        self,
        adjacency: Adjacency,
        values: Tensor,
        loop: Tensor | None = None,
        transposed: dict[torch.dtype, Tensor] | None = None,
    ) -> None:
        self.adjacency, self.values, self.loop = adjacency, values, loop
        self.transposed = {} if transposed is None else transposed

    def __call__(
        self,
        x: Tensor,
        *,
        add: Tensor | None = None,
        scale: Tensor | None = None,
        shift: Tensor | None = None,
        relu: bool = False,
    ) -> Tensor:
        r"""One hop and what a layer does around it, :math:`\mathrm{ReLU}(s (A X + R) + t)`.

        Args:
            x: Features ``(N, F)``.
            add: R, of the shape of ``x``.
            scale: s, one number per column; like ``shift`` a constant, no gradient is computed for it.
            shift: t, one number per column.
            relu: Whether to cut off at zero.
        """
        dtype = at_least_single(x.dtype)
        if dtype != x.dtype:
            add = None if add is None else add.to(dtype)
            return self(x.to(dtype), add=add, scale=scale, shift=shift, relu=relu).to(x.dtype)
        out: Tensor = apply(_Hop, self, *self._entries(dtype), x, add, scale, shift, relu)
        return out

    def polynomial(self, x: Tensor, coefficients: Tensor) -> Tensor:
        r""":math:`\sum_k c_k A^k X` with constant coefficients."""
        dtype = at_least_single(x.dtype)
        if dtype != x.dtype:
            return self.polynomial(x.to(dtype), coefficients.to(dtype)).to(x.dtype)
        out: Tensor = apply(_Polynomial, self, *self._entries(dtype), x, coefficients)
        return out

    def _entries(self, dtype: torch.dtype) -> tuple[Tensor, Tensor | None]:
        return self.values.to(dtype), None if self.loop is None else self.loop.to(dtype)

    def transpose(self, values: Tensor) -> Tensor:
        """The transposed values, computed once for all hops.

        It is called in the forward pass, because the backward pass may be recorded by itself, and what is computed
        inside one recording does not exist for another.
        """
        if values.dtype not in self.transposed:
            transposed = self.adjacency.transposed(values)
            same = self.adjacency.is_symmetric and values.device.type == "cpu" and torch.equal(transposed, values)
            self.transposed[values.dtype] = values if same else transposed  # one array less to keep
        return self.transposed[values.dtype]

    def back(self, values: Tensor, loop: Tensor | None, grad: Tensor) -> Tensor:
        """``A^T grad``."""
        return hop(self.adjacency.transpose, self.transpose(values), grad, loop=loop)

    def entry_gradients(self, loop: Tensor | None, grad: Tensor, x: Tensor) -> Iterator[Tensor | None]:
        """Gradients for the values and the diagonal of one hop from ``x``."""
        yield sampled_product(self.adjacency.pattern, grad, x)
        yield None if loop is None else row_products(grad, x)


class _Hop(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        a: Propagation,
        values: Tensor,
        loop: Tensor | None,
        x: Tensor,
        add: Tensor | None,
        scale: Tensor | None,
        shift: Tensor | None,
        relu: bool,
    ) -> Tensor:
        out = hop(a.adjacency.pattern, values, x, loop=loop, add=add, scale=scale, shift=shift, relu=relu)
        ctx.a = a
        if ctx.needs_input_grad[3]:
            a.transpose(values)
        ctx.save_for_backward(values, loop, x if ctx.needs_input_grad[1] else None, scale, out if relu else None)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        a: Propagation = ctx.a
        values, loop, x, scale, out = ctx.saved_tensors
        grad = grad.contiguous()
        if out is not None:
            grad = relu_gradient(grad, out, scale)
        elif scale is not None:
            grad = grad * scale
        _, for_values, _, for_x, for_add, *_ = needed_gradients(ctx)
        grad_values, grad_loop = a.entry_gradients(loop, grad, x) if for_values else (None, None)
        grad_x = a.back(values, loop, grad) if for_x else None
        return None, grad_values, grad_loop, grad_x, grad if for_add else None, None, None, None


class _Polynomial(torch.autograd.Function):
    r"""Forward by powers, backward by Horner's rule: :math:`G_k = A^\top G_{k+1} + c_k \partial Y`."""

    @staticmethod
    def forward(
        ctx: Any, a: Propagation, values: Tensor, loop: Tensor | None, x: Tensor, coefficients: Tensor
    ) -> Tensor:
        out = x * coefficients[0]
        powers = []
        for coefficient in coefficients[1:]:
            if ctx.needs_input_grad[1]:
                powers.append(x)
            x = hop(a.adjacency.pattern, values, x, loop=loop)
            out.addcmul_(x, coefficient)
        ctx.a = a
        if any(ctx.needs_input_grad[1:4]):
            a.transpose(values)
        ctx.save_for_backward(values, loop, coefficients, *powers)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        a: Propagation = ctx.a
        values, loop, coefficients, *powers = ctx.saved_tensors
        sums: list[Tensor | None] = [None, None]  # gradients for the values and the diagonal
        _, for_values, *_ = needed_gradients(ctx)
        now = grad * coefficients[-1]
        for k in reversed(range(coefficients.numel() - 1)):
            if for_values:
                parts = a.entry_gradients(loop, now, powers[k])
                sums = [_sum(total, part) for total, part in zip(sums, parts, strict=True)]
            now = a.back(values, loop, now)
            now.addcmul_(grad, coefficients[k])
        return None, *sums, now, None


def _sum(total: Tensor | None, part: Tensor | None) -> Tensor | None:
    return part if total is None or part is None else total.add_(part)


def pagerank(hops: int, alpha: float, device: torch.device | None = None) -> Tensor:
    r"""What :math:`x \leftarrow (1 - \alpha) \hat A x + \alpha h` comes to after some steps from :math:`x = h`:
    the coefficients :math:`\alpha (1 - \alpha)^k` of :math:`\hat A^k h`, the last one without :math:`\alpha`.
    """
    coefficients = (1 - alpha) ** torch.arange(hops + 1, dtype=torch.float64, device=device)
    coefficients[:-1] *= alpha
    return coefficients


def gcn_norm(adjacency: Adjacency, weight: Tensor | None, dtype: torch.dtype) -> Propagation:
    r"""Symmetric normalisation :math:`\hat A = D^{-1/2} (A_w + I) D^{-1/2}` of GCN.

    :math:`D` holds the weighted in-degrees of :math:`A_w + I`. Every node has exactly one self-loop of weight 1;
    self-loops among the edges are replaced by it. Gradients flow through the degrees.

    Args:
        adjacency: The pattern.
        weight: Edge weights in the order of ``edge_index``, or ``None`` for an unweighted graph.
        dtype: The floating-point type of the features.
    """
    dtype = at_least_single(dtype)
    if weight is not None:
        tensors = (weight, adjacency.row)
        return cached(("gcn", dtype), tensors, lambda: normalised(adjacency, adjacency.order(weight.to(dtype))))

    def parts() -> tuple[Tensor, Tensor | None, dict[torch.dtype, Tensor]]:
        ones = torch.ones(adjacency.row.numel(), dtype=dtype, device=adjacency.row.device)
        unweighted = normalised(adjacency, ones)
        return unweighted.values, unweighted.loop, unweighted.transposed

    return Propagation(adjacency, *adjacency.derive(("gcn", dtype), parts))


def normalised(adjacency: Adjacency, weight: Tensor) -> Propagation:
    """:func:`gcn_norm` of weights that are already in row order."""
    values, loop = apply(_GcnNorm, adjacency, weight)
    return Propagation(adjacency, values, loop)


class _GcnNorm(torch.autograd.Function):
    r"""Values :math:`v_{ij} = s_i w_{ij} s_j` and diagonal :math:`s_i^2` with :math:`s = D^{-1/2}`.

    .. math:: \partial w_{ij} = s_i s_j\, \partial v_{ij} + \partial D_i, \qquad
              \partial D_i = -\tfrac12 s_i^2 \Big(\sum_j \partial v_{ij} v_{ij} + \sum_j \partial v_{ji} v_{ji}\Big)
                             - s_i^4\, \partial \ell_i
    """

    @staticmethod
    def forward(ctx: Any, a: Adjacency, weight: Tensor) -> tuple[Tensor, Tensor]:
        if a.has_loops:
            weight = weight.masked_fill(a.is_loop, 0.0)
        scale = inverse_root_degrees(a.pattern, weight)
        values = scaled(a.pattern, scale, weight)
        ctx.a = a
        ctx.save_for_backward(scale, values)
        return values, scale.square()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, grad_loop: Tensor) -> tuple[None, Tensor]:
        a: Adjacency = ctx.a
        scale, values = ctx.saved_tensors
        flow = grad * values
        total = row_sums(a.pattern, flow) + column_sums(a, flow)
        square = scale.square()
        degree = -0.5 * square * total - square.square() * grad_loop
        out = scaled(a.pattern, scale, grad)
        out += gathered(degree, a.row)
        return None, out.masked_fill_(a.is_loop, 0.0) if a.has_loops else out
