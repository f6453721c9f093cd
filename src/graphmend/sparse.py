r"""Sparse kernels: message passing over a fixed edge list whose *values* change.

An edge list is sorted once into compressed rows (:class:`Adjacency`). From then on dropping, down-weighting
and flipping edges change values, never index lists: no sort and no coalesce in any inner loop. The product

.. math:: Y_i = \sum_{e = (j \to i)} v_e X_j

has hand-written gradients: the one for :math:`X` is the same product over the transposed pattern, the one for
:math:`v` a sampled dense-dense product, :math:`\partial v_e = \langle \partial Y_i, X_j \rangle`, computed only
when asked for. No ``E x hidden`` temporary is made.
"""

from __future__ import annotations

import warnings
import weakref
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

__all__ = ["Adjacency", "Propagation", "edge_softmax", "gcn_norm", "row_sum", "spmm"]

with warnings.catch_warnings():  # torch says once per process that CSR is in beta; say it here, to nobody
    warnings.simplefilter("ignore")
    torch.sparse_csr_tensor(torch.tensor([0, 0]), torch.tensor([], dtype=torch.long), torch.tensor([]), (1, 1))


class Adjacency:
    """Compressed rows of one edge list, by target node, together with its transpose.

    ``order`` brings per-edge values from the order of ``edge_index`` into row order; all kernels below take
    values in row order. Repeated edges are kept apart and simply add up.
    """

    def __init__(self, edge_index: Tensor, num_nodes: int) -> None:
        source, target = edge_index.long()  # the keys below outgrow 32 bits
        index = torch.int32 if max(num_nodes, edge_index.size(1)) < 2**31 else torch.int64
        key = target * num_nodes + source
        is_sorted = bool((key[1:] >= key[:-1]).all())
        self.num_nodes = num_nodes
        self.perm: Tensor | None = None if is_sorted else torch.argsort(key, stable=True)
        row, col = self.order(target), self.order(source)
        self.row, self.col, self.crow = row.to(index), col.to(index), _offsets(row, num_nodes, index)
        # The transposed pattern: entry k of the transpose is entry tperm[k] of the pattern.
        self.tperm = torch.argsort(col * num_nodes + row, stable=True)
        col_t = self.row.index_select(0, self.tperm)
        crow_t = _offsets(col, num_nodes, index)
        self.is_symmetric = torch.equal(crow_t, self.crow) and torch.equal(col_t, self.col)
        self.crow_t = self.crow if self.is_symmetric else crow_t
        self.col_t = self.col if self.is_symmetric else col_t
        self.is_loop = row == col
        self._unit: dict[torch.dtype, Propagation] = {}

    @classmethod
    def of(cls, edge_index: Tensor, num_nodes: int) -> Adjacency:
        """The adjacency of ``edge_index``, built on first use and kept as long as that tensor lives unchanged."""
        if edge_index.is_inference() or torch.is_inference_mode_enabled():  # not to be kept for a backward pass
            return cls(edge_index, num_nodes)
        found = _CACHE.get(id(edge_index))
        if found is not None:
            tensor, version, adjacency = found
            if tensor() is edge_index and version == edge_index._version and adjacency.num_nodes == num_nodes:
                return adjacency
        key, adjacency = id(edge_index), cls(edge_index, num_nodes)
        _CACHE[key] = (
            weakref.ref(edge_index, lambda _: _CACHE.pop(key, None)),
            edge_index._version,
            adjacency,
        )
        return adjacency

    def order(self, values: Tensor) -> Tensor:
        """Per-edge values from the order of ``edge_index`` into row order (differentiable)."""
        return values if self.perm is None else values.index_select(0, self.perm)

    def unit_norm(self, dtype: torch.dtype) -> Propagation:
        """The normalisation of the unweighted graph, computed once."""
        if dtype not in self._unit:
            ones = torch.ones(self.row.numel(), dtype=dtype, device=self.row.device)
            self._unit[dtype] = _normalise(self, ones)
        return self._unit[dtype]


_CACHE: dict[int, tuple[weakref.ref[Tensor], int, Adjacency]] = {}


def _offsets(sorted_or_not: Tensor, num_nodes: int, dtype: torch.dtype) -> Tensor:
    counts = torch.bincount(sorted_or_not, minlength=num_nodes)
    return F.pad(counts.cumsum(0), (1, 0)).to(dtype)


def _product(crow: Tensor, col: Tensor, values: Tensor, x: Tensor) -> Tensor:
    """``Y_i = sum_k values[k] X[col[k]]`` over ``k`` in ``crow[i]:crow[i + 1]``."""
    if x.device.type == "cpu" and x.dtype == torch.float32:  # FBGEMM: the fastest sparse product torch has here
        return F.embedding_bag(
            col, x.contiguous(), crow, mode="sum", per_sample_weights=values, include_last_offset=True
        )
    size = (crow.numel() - 1, x.size(0))
    # CUDA reads strided values as if they were contiguous, and says nothing
    matrix = torch.sparse_csr_tensor(crow, col, values.contiguous(), size, check_invariants=False)
    return torch.mm(matrix, x)


def _sampled_product(crow: Tensor, col: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """``<left_i, right_col[k]>`` for every entry ``k`` of row ``i``."""
    zeros = left.new_zeros(col.numel())  # read even with beta=0: it must not hold NaN
    pattern = torch.sparse_csr_tensor(crow, col, zeros, (left.size(0), right.size(0)), check_invariants=False)
    values: Tensor = torch.sparse.sampled_addmm(pattern, left.contiguous(), right.t(), beta=0.0).values()
    return values


class _SpMM(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, adjacency: Adjacency, values: Tensor, x: Tensor) -> Tensor:
        ctx.adjacency = adjacency
        ctx.save_for_backward(values, x if ctx.needs_input_grad[1] else None)
        return _product(adjacency.crow, adjacency.col, values, x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor | None, Tensor | None]:
        a: Adjacency = ctx.adjacency
        values, x = ctx.saved_tensors
        grad_values = _sampled_product(a.crow, a.col, grad, x) if ctx.needs_input_grad[1] else None
        grad_x = None
        if ctx.needs_input_grad[2]:
            grad_x = _product(a.crow_t, a.col_t, values.index_select(0, a.tperm), grad)
        return None, grad_values, grad_x


def spmm(adjacency: Adjacency, values: Tensor, x: Tensor) -> Tensor:
    r"""Weighted neighbour sum :math:`Y_i = \sum_{e=(j \to i)} v_e X_j`, differentiable in ``values`` and ``x``.

    Args:
        adjacency: The pattern.
        values: One value per edge, in row order (``adjacency.order``), of shape ``(E,)``.
        x: Node features of shape ``(N, F)`` and the same dtype.
    """
    if adjacency.row.numel() == 0:
        return torch.zeros_like(x)
    out: Tensor = _SpMM.apply(adjacency, values.to(x.dtype), x)  # type: ignore[no-untyped-call]
    return out


def row_sum(adjacency: Adjacency, values: Tensor) -> Tensor:
    """Sum of the values of each row: weighted in-degrees, for values of shape ``(E,)`` or ``(E, heads)``."""
    zeros = values.new_zeros((adjacency.num_nodes, *values.shape[1:]))
    return zeros.index_add(0, adjacency.row, values)


class Propagation(NamedTuple):
    """A normalised adjacency: the values of its entries and the diagonal kept apart as a dense vector."""

    adjacency: Adjacency
    values: Tensor
    loop: Tensor

    def __call__(self, x: Tensor) -> Tensor:
        """One hop, ``A_hat @ x``."""
        return spmm(self.adjacency, self.values, x) + self.loop.unsqueeze(-1) * x


def gcn_norm(adjacency: Adjacency, weight: Tensor | None, dtype: torch.dtype) -> Propagation:
    r"""Symmetric normalisation :math:`\hat A = D^{-1/2} (A_w + I) D^{-1/2}` of GCN.

    :math:`D` holds the weighted in-degrees of :math:`A_w + I`. Every node has exactly one self-loop of weight 1;
    self-loops among the edges are replaced by it. Gradients flow through the degrees.

    Args:
        adjacency: The pattern.
        weight: Edge weights in the order of ``edge_index``, or ``None`` for an unweighted graph.
        dtype: The floating-point type of the result.
    """
    if weight is None:
        return adjacency.unit_norm(dtype)
    return _normalise(adjacency, adjacency.order(weight.to(dtype)))


def _normalise(adjacency: Adjacency, values: Tensor) -> Propagation:
    values = values.masked_fill(adjacency.is_loop, 0.0)
    degree = 1.0 + row_sum(adjacency, values)
    inverse = degree.clamp(min=torch.finfo(degree.dtype).tiny).rsqrt().masked_fill(degree <= 0, 0.0)
    values = inverse.index_select(0, adjacency.row) * values * inverse.index_select(0, adjacency.col)
    return Propagation(adjacency, values, inverse.square())


def edge_softmax(
    adjacency: Adjacency, score: Tensor, weight: Tensor, loop_score: Tensor | None = None
) -> tuple[Tensor, Tensor | None]:
    r"""Softmax over the incoming edges of each node in which an edge of weight 0 does not exist.

    .. math:: \alpha_e = \frac{w_e \exp(s_e - m_i)}{\sum_{e' \to i} w_{e'} \exp(s_{e'} - m_i) + 10^{-16}},
              \qquad m_i = \max_{e \to i,\; w_e > 0} s_e

    The maximum runs over edges that exist, so a vanished edge cannot push the others to underflow, and there is no
    logarithm of a weight, so the gradient at :math:`w_e = 0` is finite.

    Args:
        adjacency: The pattern.
        score: Attention scores in row order, of shape ``(E, heads)``.
        weight: Edge weights in row order, of shape ``(E,)``.
        loop_score: Scores of one self-loop of weight 1 per node, of shape ``(N, heads)``, or ``None``.

    Returns:
        The attention of the edges, ``(E, heads)``, and of the self-loops.
    """
    heads = score.size(1)
    with torch.no_grad():
        present = score.masked_fill((weight <= 0).unsqueeze(-1), -torch.inf)
        top = score.new_full((adjacency.num_nodes, heads), -torch.inf)
        top = top.scatter_reduce(0, adjacency.row.long().unsqueeze(-1).expand_as(present), present, "amax")
        if loop_score is not None:
            top = torch.maximum(top, loop_score)
        top = top.masked_fill(top == -torch.inf, 0.0)
    # Only an absent edge can lie above the maximum; its bound keeps exp and its gradient finite.
    exponent = (score - top.index_select(0, adjacency.row)).clamp(max=40.0)
    numerator = weight.unsqueeze(-1) * exponent.exp()
    total = row_sum(adjacency, numerator)
    loop = None if loop_score is None else (loop_score - top).exp()
    if loop is not None:
        total = total + loop
    inverse = (total + 1e-16).reciprocal()
    return numerator * inverse.index_select(0, adjacency.row), None if loop is None else loop * inverse
