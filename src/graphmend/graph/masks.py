"""One reader for masks of nodes: a 0/1 mask stored as integers must never be taken for node indices."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from graphmend.errors import require


def read_mask(mask: Any, nodes: int, name: str = "mask") -> Tensor:
    """A mask as a boolean tensor of shape ``(nodes,)``.

    Booleans are taken as they are, integers if all of them are 0 or 1 and there is one per node. Everything else is an
    error: node indices, which look like a mask to nobody but their author, above all.

    Args:
        mask: What the caller has.
        nodes: The number of nodes of the graph.
        name: What the mask is called, for the message.
    """
    require(isinstance(mask, Tensor), f"{name} must be a boolean tensor (got {type(mask).__name__})")
    remedy = f"torch_geometric.utils.index_to_mask(indices, size={nodes}) makes a mask from node indices"
    kind = f"{mask.dtype} of shape {tuple(mask.shape)}"
    require(
        tuple(mask.shape) == (nodes,), f"{name} must have one entry per node, {nodes} in all (got {kind}); {remedy}"
    )
    boolean: Tensor = mask
    if mask.dtype != torch.bool:
        whole = not (mask.is_floating_point() or mask.is_complex())
        require(whole, f"{name} must be boolean, or 0 and 1 as integers (got {kind}); convert it with mask.bool()")
        is_set = mask != 0
        valid = ~is_set | (mask == 1)
        if not bool(valid.all()):
            node = int((~valid).nonzero()[0])
            require(False, f"{name} must hold 0 and 1 only (got {name}[{node}] = {int(mask[node])}); {remedy}")
        boolean = is_set
    require(bool(boolean.any()), f"{name} marks no node; mark at least one")
    return boolean
