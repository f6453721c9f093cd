r"""Hops over a weighted adjacency, fused with what frozen layers do around them, and the normalisation of GCN.

A hop is :math:`Y = (A_v + \mathrm{diag}(\ell)) X`. Around it, a frozen layer adds what does not come from the
neighbours, scales and shifts (bias, batch normalisation in evaluation mode) and cuts off at zero; all of that happens
in place on the hop's own result, and only that result is kept for the gradient. Several views of a graph go through
side by side, see :mod:`graphmend.engine.ops` for the shapes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from graphmend.engine.adjacency import Adjacency, column_sums
from graphmend.engine.autograd import apply, asked_for
from graphmend.engine.cache import remembered
from graphmend.engine.ops import (
    cut,
    gathered,
    hop,
    inverse_root_degrees,
    row_products,
    row_sums,
    sampled_product,
    scaled,
)

__all__ = ["Propagation", "gcn_norm", "normalised", "pagerank"]

WIDE = 1 << 18  # nodes: more factors than a core's cache holds are not looked up for every entry, rows are scaled


class Propagation:
    r"""A weighted adjacency to multiply with: the values of its entries, and its diagonal apart as a dense vector.

    Args:
        adjacency: The pattern.
        values: Values of the entries in row order.
        loop: The diagonal, or ``None`` for zeros.
        transposed: The values of the transpose by type, filled by the first hop that has a way back.
        outer: A factor per node that is still to be applied on both sides, :math:`O (V + \mathrm{diag}(\ell)) O`; a
            constant to every hop.
        multiply_out: How to get the same without ``outer``, if there is one.
    """

    def __init__(
        self,
        adjacency: Adjacency,
        values: Tensor,
        loop: Tensor | None = None,
        transposed: dict[torch.dtype, Tensor] | None = None,
        outer: Tensor | None = None,
        multiply_out: Callable[[], Propagation] | None = None,
    ) -> None:
        self.adjacency, self.values, self.loop, self.outer = adjacency, values, loop, outer
        self.transposed = {} if transposed is None else transposed
        self._multiply_out = multiply_out
        self._multiplied: Propagation | None = None

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
            x: Features ``(N, F)``, or of several views side by side ``(N, views, F)``.
            add: R, of the shape of ``x``.
            scale: s, one number per column; like ``shift`` a constant, no gradient is computed for it.
            shift: t, one number per column.
            relu: Whether to cut off at zero.
        """
        values, loop = self._entries(x.dtype)
        out: Tensor = apply(_Hop, self, values, loop, x, add, scale, shift, relu)
        return out

    def polynomial(self, x: Tensor, coefficients: Tensor) -> Tensor:
        r""":math:`\sum_k c_k A^k X` with constant coefficients."""
        if self.outer is not None:
            return self.multiplied_out.polynomial(x, coefficients)
        values, loop = self._entries(x.dtype)
        out: Tensor = apply(_Polynomial, self, values, loop, x, coefficients)
        return out

    @property
    def multiplied_out(self) -> Propagation:
        """The same without ``outer``: for polynomials, and for who wants to see the values."""
        if self.outer is None:
            return self
        assert self._multiply_out is not None
        out = self._multiplied or self._multiply_out()
        if out.values.requires_grad == self.values.requires_grad:  # or it was asked for where there are no gradients
            self._multiplied = out
        return out

    def _entries(self, dtype: torch.dtype) -> tuple[Tensor, Tensor | None]:
        """Values and diagonal as a hop of features of some type wants them; beside bfloat16 they stay as they are."""
        dtype = self.values.dtype if dtype == torch.bfloat16 else dtype
        return self.values.to(dtype), None if self.loop is None else self.loop.to(dtype)

    def turn(self, values: Tensor) -> Tensor:
        """The transposed values, worked out once for all hops.

        On the way forward: what one recorded way back has worked out is not there for another.
        """
        if values.dtype not in self.transposed:
            turned = self.adjacency.transposed(values)
            same = self.adjacency.is_symmetric and turned.device.type == "cpu" and torch.equal(turned, values)
            self.transposed[values.dtype] = values if same else turned  # an array less to keep
        return self.transposed[values.dtype]

    def back(self, values: Tensor, loop: Tensor | None, grad: Tensor) -> Tensor:
        """``A^T grad``."""
        return hop(self.adjacency.transpose, self.turn(values), grad, loop=loop, outer=self.outer)

    def entry_gradients(self, loop: Tensor | None, grad: Tensor, x: Tensor) -> tuple[Tensor, Tensor | None]:
        """Gradients for the values and the diagonal of one hop from ``x``."""
        if self.outer is not None:
            grad, x = (matrix.to(self.outer.dtype) * self.outer.t().unsqueeze(-1) for matrix in (grad, x))
        values = sampled_product(self.adjacency.pattern, grad, x)
        return values, None if loop is None else row_products(grad.to(loop.dtype), x.to(loop.dtype)).t()


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
        around = {"loop": loop, "outer": a.outer, "add": add, "scale": scale, "shift": shift}
        out = hop(a.adjacency.pattern, values, x, **around, relu=relu)
        ctx.a = a
        if ctx.needs_input_grad[3]:
            a.turn(values)
        ctx.save_for_backward(values, loop, x if ctx.needs_input_grad[1] else None, scale, out if relu else None)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        a: Propagation = ctx.a
        values, loop, x, scale, out = ctx.saved_tensors
        grad = grad.contiguous()
        if out is not None:
            grad = cut(grad, out, scale)
        elif scale is not None:
            grad = grad * scale
        _, for_values, _, for_x, for_add, *_ = asked_for(ctx)
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
            a.turn(values)
        ctx.save_for_backward(values, loop, coefficients, *powers)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        a: Propagation = ctx.a
        values, loop, coefficients, *powers = ctx.saved_tensors
        grad_values = grad_loop = None
        _, for_values, *_ = asked_for(ctx)
        now = grad * coefficients[-1]
        for k in reversed(range(coefficients.numel() - 1)):
            if for_values:
                more, more_loop = a.entry_gradients(loop, now, powers[k])
                grad_values = more if grad_values is None else grad_values.add_(more)
                if more_loop is not None:
                    grad_loop = more_loop if grad_loop is None else grad_loop.add_(more_loop)
            now = a.back(values, loop, now)
            now.addcmul_(grad, coefficients[k])
        return None, grad_values, grad_loop, now, None


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
    self-loops among the edges are replaced by it. Gradients flow through the degrees. On a CPU, a graph of very many
    nodes has its factors outside of the values (``outer``).

    Args:
        adjacency: The pattern.
        weight: Edge weights in the order of ``edge_index``, ``(E,)`` or ``(views, E)``, or ``None`` for an unweighted
            graph.
        dtype: The floating-point type of the result.
    """
    dtype = torch.float32 if dtype == torch.bfloat16 else dtype  # degrees want more than eight bits
    if weight is not None:
        name, made_of = ("gcn", dtype), (weight, adjacency.row)
        return remembered(name, made_of, lambda: normalised(adjacency, adjacency.order_views(weight.to(dtype))))
    if ("gcn", dtype) not in adjacency.known:
        ones = torch.ones(adjacency.row.numel(), dtype=dtype, device=adjacency.row.device)
        made = _of_entries(adjacency, ones)
        adjacency.known["gcn", dtype] = (made.values, made.loop, made.transposed)  # not itself: a cycle would stay
    return Propagation(adjacency, *adjacency.known["gcn", dtype])


def normalised(adjacency: Adjacency, weight: Tensor) -> Propagation:
    """:func:`gcn_norm` of weights that are already in row order."""
    if weight.device.type != "cpu" or adjacency.num_nodes <= WIDE:
        return _of_entries(adjacency, weight)
    if weight.requires_grad and torch.is_grad_enabled():
        values, loop, scale = apply(_WideNorm, adjacency, weight)
        return Propagation(adjacency, values, loop, outer=scale, multiply_out=lambda: _of_entries(adjacency, weight))
    values, loop, scale = apply(_WideNorm, adjacency, weight.detach())  # who remembers it must not keep the weights

    def multiply_out() -> Propagation:
        return Propagation(adjacency, scaled(adjacency.pattern, scale, values), scale.square())

    return Propagation(adjacency, values, loop, outer=scale, multiply_out=multiply_out)


def _of_entries(adjacency: Adjacency, weight: Tensor) -> Propagation:
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


class _WideNorm(torch.autograd.Function):
    r"""The same with :math:`s` left outside: values :math:`w_{ij}` and diagonal 1 between two factors :math:`s`.

    .. math:: \partial w_{ij} = \partial v_{ij} + \partial D_i, \qquad
              \partial D_i = -\tfrac12 s_i^2 \Big(\sum_j \partial v_{ij} w_{ij} + \sum_j \partial v_{ji} w_{ji}
                             + 2\, \partial \ell_i\Big)
    """

    @staticmethod
    def forward(ctx: Any, a: Adjacency, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        values = weight.masked_fill(a.is_loop, 0.0) if a.has_loops else weight.view_as(weight)
        scale = inverse_root_degrees(a.pattern, values)
        ctx.a = a
        ctx.save_for_backward(scale, values)
        ctx.mark_non_differentiable(scale)
        return values, torch.ones_like(scale), scale

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, grad_loop: Tensor, _: Tensor) -> tuple[None, Tensor]:
        a: Adjacency = ctx.a
        scale, values = ctx.saved_tensors
        flow = grad * values
        total = row_sums(a.pattern, flow) + column_sums(a, flow) + 2.0 * grad_loop
        out = grad + gathered(-0.5 * scale.square() * total, a.row)
        return None, out.masked_fill_(a.is_loop, 0.0) if a.has_loops else out
