"""One reader for masks: a 0/1 mask stored as integers must never be taken for indices."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphmend.errors import require
from graphmend.graph.tensors import check_dense


def read_mask(
    mask: Any, size: int | None = None, name: str = "mask", *, of: str = "node", may_be_empty: bool = False
) -> Tensor:
    """A mask as a boolean tensor of shape ``(size,)``, where the caller's tensor is.

    Booleans are taken as they are, integers if all of them are 0 or 1 and there is one per node; NumPy arrays are
    read in the same way. Everything else is an error, above all indices of nodes, which look like a mask of 0 and 1 to
    some operations and like indices to others.

    Args:
        mask: What the caller has.
        size: The number of entries, one per node (or column, or edge); ``None`` where it is not known yet.
        name: What the mask is called, for the message.
        of: What has one entry each: ``"node"``, ``"column"`` or ``"edge"``.
        may_be_empty: Whether a mask that marks nothing makes sense.

    Example:
        >>> read_mask(torch.tensor([0, 1, 1]), 3)
        tensor([False,  True,  True])
    """
    if isinstance(mask, np.ndarray) and mask.dtype.kind in "biu":
        mask = torch.tensor(mask)
    require(isinstance(mask, Tensor), f"{name} must be a boolean tensor (got {type(mask).__name__})")
    check_dense(mask, name)
    kind = f"{mask.dtype} of shape {tuple(mask.shape)}"
    remedy = f"torch_geometric.utils.index_to_mask(indices, size={size or f'number of {of}s'}) makes a mask of indices"
    if mask.dim() == 2 and mask.size(1) > 1 and size in (None, mask.size(0)):
        remedy = f"choose one of its {mask.size(1)} columns, such as {name}[:, 0]"
    fits = mask.dim() == 1 and size in (None, mask.numel())
    total = "" if size is None else f", {size} in all"
    require(fits, f"{name} must have one entry per {of}{total} (got {kind}); {remedy}")
    boolean: Tensor = mask
    if mask.dtype != torch.bool:
        whole = not (mask.is_floating_point() or mask.is_complex())
        require(whole, f"{name} must be boolean, or 0 and 1 as integers (got {kind}); convert it with {name}.bool()")
        boolean = mask != 0
        valid = ~boolean | (mask == 1)
        if not bool(valid.all()):
            place = int((~valid).nonzero()[0])
            require(False, f"{name} must hold 0 and 1 only (got {name}[{place}] = {int(mask[place])}); {remedy}")
    require(may_be_empty or bool(boolean.any()), f"{name} marks no {of}; mark at least one")
    return boolean
