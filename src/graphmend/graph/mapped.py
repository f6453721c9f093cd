"""A graph whose arrays are mapped from files."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphmend.errors import require

__all__ = ["MappedGraph"]


class MappedGraph(Data):  # type: ignore[misc]  # a class of PyG, whose types are not looked at
    """A graph whose arrays are mapped from a folder, with edges sorted by target; otherwise a PyG ``Data``.

    Copies know the folder, too. What belongs to the edges of the folder holds for a copy only as long as it has them.
    """

    def mapped_from(self, folder: Path, offsets: Tensor, *, symmetric: bool, shards: int | None) -> None:
        """Remember where the arrays lie.

        Args:
            folder: Where.
            offsets: Where the edges of each target begin, and where the last ones end.
            symmetric: Whether every edge is there in both directions.
            shards: In how many shards a model runs; ``None`` if the memory decides.
        """
        known = {"_folder": folder, "_shards": shards, "_symmetric": symmetric, "_offsets": offsets}
        self.__dict__.update(known, _edges=_place(self.edge_index))

    @property
    def folder(self) -> Path | None:
        """Where the arrays lie."""
        return self.__dict__.get("_folder")

    @property
    def shards(self) -> int | None:
        """In how many shards a model runs; ``None`` if the memory decides."""
        return self.__dict__.get("_shards")

    @property
    def is_symmetric(self) -> bool:
        """Whether every edge of the folder is there in both directions."""
        return bool(self.__dict__.get("_symmetric", False))

    def offsets(self) -> Tensor:
        """Where the edges of each target begin in ``edge_index``, and where the last ones end."""
        offsets: Tensor | None = self.__dict__.get("_offsets")
        if offsets is None or self.__dict__.get("_edges") != _place(self.edge_index):
            target = self.edge_index[1]
            is_sorted = not bool((target[1:] < target[:-1]).any())
            require(is_sorted, "the edges of a mapped graph are no longer sorted by target; pack the graph again")
            numbers = torch.arange(self.x.size(0) + 1)
            offsets = torch.searchsorted(target.contiguous(), numbers)
            self.__dict__.update(_offsets=offsets, _edges=_place(self.edge_index))
        return offsets


def _place(edge_index: Tensor) -> tuple[int, tuple[int, ...]]:
    return edge_index.data_ptr(), tuple(edge_index.shape)
