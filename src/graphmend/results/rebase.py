"""A patch that was made for a converted graph, brought back to the graph as its owner keeps it."""

from __future__ import annotations

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphmend.errors import require
from graphmend.graph.checks import is_finite
from graphmend.results.patch import Patch, as_bits

__all__ = ["rebase"]


def rebase(patch: Patch, cast: Data, original: Data) -> tuple[Patch, Data]:
    """The same change of a graph in another floating-point type or on another device, and that graph mended.

    A model takes features of its own type, while a file may keep another one. Mend the graph in the model's type, then
    bring the patch back: numbers that did not change keep the bits that they have in ``original``, and the others are
    converted to its type.

    Args:
        patch: The change.
        cast: The graph that it was made for, such as ``original`` with ``x.float()``.
        original: The graph as it was before that; it is left as it was.

    Example:
        >>> import copy
        >>> original = Data(x=torch.rand(3, 2).double(), edge_index=torch.tensor([[0, 1], [1, 2]]))
        >>> cast = copy.copy(original)
        >>> cast.x = original.x.float()
        >>> patch, _ = Patch.make(cast, cast.x + 1, torch.tensor([0]), cast.edge_index[:, :0])
        >>> patch, mended = rebase(patch, cast, original)
        >>> mended.x.dtype, torch.equal(patch.revert(mended).x, original.x)
        (torch.float64, True)
    """
    device = original.x.device
    same = (
        original.x.shape == cast.x.shape
        and torch.equal(original.edge_index, cast.edge_index.to(device))
        and _are_same(original.x.to(cast.x.dtype), cast.x.to(device))
    )
    require(same, "the patch was made for another graph; give the graph whose features were converted for mending")
    mended = patch.apply(cast)
    x = _where_changed(cast.x, mended.x, original.x)
    require(is_finite(x), f"the mended features do not fit into {x.dtype}; mend the graph in {cast.x.dtype}")
    weight = mended.get("edge_weight")
    if weight is not None and original.get("edge_weight") is not None:
        weight = _weights(patch, cast, weight, original.edge_weight)
    weight = None if weight is None else weight.to(device)
    return Patch.make(original, x, patch.removed.to(device), patch.added_edges().to(device), weight)


def _are_same(first: Tensor, second: Tensor) -> bool:
    """Whether all values are the same; missing ones (NaN) are, too, where they are at the same places."""
    return torch.equal(first, second) or bool(((first == second) | (first.isnan() & second.isnan())).all())


def _weights(patch: Patch, cast: Data, weight: Tensor, original: Tensor) -> Tensor:
    """The weights of the edges that stay, each as it was unless it changed, then those of the edges that came."""
    stays = torch.ones(patch.edges, dtype=torch.bool, device=weight.device)
    stays[patch.removed.to(weight.device)] = False
    before, kept = cast.edge_weight[stays], weight[: patch.edges - patch.num_removed]
    old = _where_changed(before, kept, original[stays.to(original.device)])
    return torch.cat([old, weight[kept.numel() :].to(original.device, original.dtype)])


def _where_changed(before: Tensor, after: Tensor, other: Tensor) -> Tensor:
    """``after`` where it differs from ``before``, else ``other``, in the type and on the device of ``other``."""
    changed = as_bits(before.contiguous()) != as_bits(after.contiguous())
    return torch.where(changed.to(other.device), after.to(other.device, other.dtype), other.detach())
