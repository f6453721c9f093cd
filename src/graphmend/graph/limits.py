"""What may change in a graph, and what must stay as it is."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphmend.errors import as_float, require, shown
from graphmend.outputs import check_dense, read_mask

MASKS = {
    "frozen_nodes": "node",
    "frozen_columns": "column",
    "frozen_edges": "edge",
    "binary": "column",
    "non_negative": "column",
}
"""The limits that are masks, and what each entry of them stands for."""


@dataclass(frozen=True, eq=False)
class Limits:
    """What may change in a graph, and what a mended graph may look like.

    Masks have one entry per node, feature column or stored edge. They are boolean, or 0 and 1 as integers, in tensors
    or NumPy arrays. ``None`` limits nothing.

    Args:
        frozen_nodes: Nodes whose features stay as they are.
        frozen_columns: Feature columns that stay as they are.
        frozen_edges: Edges that are never removed (for an undirected edge, marking one direction is enough).
        minimum: Lowest value, one number or one per column.
        maximum: Highest value, one number or one per column.
        binary: Columns that hold 0 or 1: relaxed to [0, 1] while learning, rounded at the end.
        non_negative: Columns that never go below 0.

    Entries that already lie outside the range in the given graph are moved to its edge, unless they are frozen.

    Example:
        >>> import graphmend, torch
        >>> from graphmend.lab.data import embedded
        >>> from torch_geometric.nn import GCN
        >>> data, model = embedded("wine").test[0], GCN(13, 16, num_layers=2, out_channels=3)
        >>> limits = graphmend.Limits(frozen_nodes=torch.arange(178) < 100, minimum=-3.0, maximum=3.0)
        >>> result = graphmend.mend(model, data, graphmend.GTrans(steps=3), limits=limits)
        >>> torch.equal(result.data.x[:100], data.x[:100]), bool(result.data.x[100:].abs().max() <= 3)
        (True, True)
    """

    frozen_nodes: Tensor | None = None
    frozen_columns: Tensor | None = None
    frozen_edges: Tensor | None = None
    minimum: Tensor | float | None = None
    maximum: Tensor | float | None = None
    binary: Tensor | None = None
    non_negative: Tensor | None = None

    def __post_init__(self) -> None:
        self._read_masks({})
        for name in ("minimum", "maximum"):
            bound = getattr(self, name)
            if isinstance(bound, Tensor):
                check_dense(bound, f"limits.{name}")
            elif bound is not None:
                number = as_float(bound)
                wanted = "a number or a tensor of one per column"
                require(not math.isnan(number), f"limits.{name} must be {wanted} (got {shown(bound)})")
                object.__setattr__(self, name, number)

    def _read_masks(self, sizes: dict[str, int]) -> None:
        for name, of in MASKS.items():
            mask = getattr(self, name)
            if mask is not None:
                boolean = read_mask(mask, sizes.get(of), f"limits.{name}", of=of, may_be_empty=True)
                object.__setattr__(self, name, boolean)

    def check(self, data: Data) -> None:
        """Raise unless every limit fits the graph."""
        nodes, columns = data.x.shape
        self._read_masks({"node": nodes, "column": columns, "edge": data.edge_index.size(1)})
        for name in ("minimum", "maximum"):
            bound = getattr(self, name)
            if isinstance(bound, Tensor):
                fits = tuple(bound.shape) in ((), (columns,)) and not bound.is_complex()
                got = f"{bound.dtype} of shape {tuple(bound.shape)}"
                require(fits, f"limits.{name} must be a number or one per column, {columns} (got {got})")
        low, high = self._bound(self.minimum, -torch.inf, columns), self._bound(self.maximum, torch.inf, columns)
        possible = bool((low < torch.inf).all() and (high > -torch.inf).all())  # not for NaN
        require(
            possible,
            f"limits.minimum and limits.maximum must be numbers (got {shown(self.minimum)}, {shown(self.maximum)})",
        )
        require(bool((low <= high).all()), "limits.minimum lies above limits.maximum; swap them")
        if self.binary is not None:
            fits = bool(((low <= 0) & (high >= 1))[self.binary.cpu()].all())
            require(
                fits, "limits.minimum and limits.maximum leave a binary column no 0 or no 1; give it a range of both"
            )
        if self.non_negative is not None:
            fits = bool((high >= 0)[self.non_negative.cpu()].all())
            require(fits, "limits.maximum lies below 0 in a non_negative column; drop one of the two")

    @staticmethod
    def _bound(value: Tensor | float | None, otherwise: float, columns: int) -> Tensor:
        return torch.as_tensor(otherwise if value is None else value, dtype=torch.float64).cpu().expand(columns)

    def split(self, nodes: list[int], edges: list[int]) -> list[Limits]:
        """The limits of each graph of a batch, from the numbers of nodes and edges of the graphs."""
        node_masks: Sequence[Tensor | None] = [None] * len(nodes)
        edge_masks: Sequence[Tensor | None] = [None] * len(edges)
        if self.frozen_nodes is not None:
            mask = read_mask(self.frozen_nodes, sum(nodes), "limits.frozen_nodes", may_be_empty=True)
            node_masks = torch.split(mask, nodes)
        if self.frozen_edges is not None:
            mask = read_mask(self.frozen_edges, sum(edges), "limits.frozen_edges", of="edge", may_be_empty=True)
            edge_masks = torch.split(mask, edges)
        pairs = zip(node_masks, edge_masks, strict=True)
        return [replace(self, frozen_nodes=of_nodes, frozen_edges=of_edges) for of_nodes, of_edges in pairs]

    def to(self, device: torch.device) -> Limits:
        """The same limits on a device."""
        values = {name: v.to(device) if isinstance(v, Tensor) else v for name, v in vars(self).items()}
        return Limits(**values)

    def free_edges(self, edge_index: Tensor, nodes: int) -> Tensor:
        """A mask of the edges that may change: no self-loops, and none that is frozen in either direction."""
        source, target = edge_index
        free: Tensor = source != target
        if self.frozen_edges is not None:
            key = torch.minimum(source, target) * nodes + torch.maximum(source, target)
            free = free & ~torch.isin(key, key[self.frozen_edges])
        return free

    def projection(self, original: Tensor) -> Callable[[Tensor], None] | None:
        """:meth:`project` for the features of a graph, or ``None`` if they are not limited."""
        is_limited = any(value is not None for name, value in vars(self).items() if name != "frozen_edges")
        return (lambda x: self.project(x, original)) if is_limited else None

    def project(self, x: Tensor, original: Tensor) -> None:
        """Bring ``x`` back into the limits, in place; frozen entries get their exact original bits."""
        if self.binary is not None:
            x.copy_(torch.where(self.binary, x.clamp(0.0, 1.0), x))
        if self.non_negative is not None:
            x.copy_(torch.where(self.non_negative, x.clamp(min=0.0), x))
        if self.minimum is not None:
            x.clamp_(min=_bound_of(self.minimum, x))
        if self.maximum is not None:
            x.clamp_(max=_bound_of(self.maximum, x))
        if self.frozen_nodes is not None:
            x.copy_(torch.where(self.frozen_nodes.unsqueeze(-1), original, x))
        if self.frozen_columns is not None:
            x.copy_(torch.where(self.frozen_columns, original, x))

    def finish(self, x: Tensor, original: Tensor) -> bool:
        """Round the binary columns, in place; whether there are any."""
        if self.binary is None:
            return False
        x.copy_(torch.where(self.binary, (x >= 0.5).to(x.dtype), x))
        self.project(x, original)
        return True


def _bound_of(bound: Tensor | float, x: Tensor) -> Any:
    if isinstance(bound, Tensor):
        return bound.to(x.dtype)
    largest = torch.finfo(x.dtype).max  # a bound beyond the type's range has no effect
    return min(max(bound, -largest), largest)
