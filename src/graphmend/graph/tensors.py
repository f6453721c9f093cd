"""Which tensors hold plain values that can be computed with."""

from __future__ import annotations

import torch
from torch import Tensor

from graphmend.errors import require

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def check_dense(value: Tensor, name: str) -> None:
    """Raise unless a tensor holds every one of its values: one that is sparse, nested or quantised does not.

    Args:
        value: Any tensor.
        name: What it is called, for the message.
    """
    require(not value.is_nested, f"{name} is a nested tensor; pass a dense one, {name}.to_padded_tensor(0)")
    require(not value.is_meta, f"{name} is on the meta device, where tensors have no values; load its values first")
    require(
        value.layout == torch.strided, f"{name} is stored as {value.layout}; pass a dense tensor, {name}.to_dense()"
    )
    require(not value.is_quantized, f"{name} is quantised ({value.dtype}); convert it with {name}.dequantize()")
    require(not value.is_neg(), f"{name} is a negated view of complex numbers; convert it with {name}.resolve_neg()")


def check_floats(value: Tensor, name: str) -> None:
    """Raise unless a tensor is dense and of a floating-point type that sums and products can be computed in."""
    check_dense(value, name)
    require(not value.is_complex(), f"{name} holds complex numbers ({value.dtype}); take {name}.real or {name}.abs()")
    require(
        value.is_floating_point(), f"{name} must be floating-point (got {value.dtype}); convert it with {name}.float()"
    )
    usable = value.dtype in FLOATS
    require(usable, f"{name} is {value.dtype}, a type that is only for storage; convert it with {name}.float()")
