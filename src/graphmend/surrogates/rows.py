"""Rows of length 1."""

from __future__ import annotations

import torch
from torch import Tensor

from graphmend.engine.ops import at_least_single

__all__ = ["unit_rows"]


def unit_rows(z: Tensor) -> Tensor:
    """Each row divided by its length, in single precision or better; a zero row stays zero and has no gradient."""
    z = z.to(at_least_single(z.dtype))
    norm = torch.linalg.vector_norm(z, dim=-1, keepdim=True)
    unit: Tensor = z * norm.masked_fill(norm == 0, torch.inf).reciprocal()
    return unit
