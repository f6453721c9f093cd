"""Which attributes of a graph belong to its edges."""

from __future__ import annotations

from torch import Tensor
from torch_geometric.data import Data


def edge_attribute_names(data: Data) -> list[str]:
    """The tensors with one row per edge, ``edge_index`` aside, sorted by name.

    Pairs of nodes such as ``edge_label_index`` run along their last dimension and are none of them.
    """
    tensors = {name: value for name, value in data.to_dict().items() if isinstance(value, Tensor)}
    return sorted(
        name
        for name, value in tensors.items()
        if name != "edge_index" and data.is_edge_attr(name) and data.__cat_dim__(name, value) == 0
    )
