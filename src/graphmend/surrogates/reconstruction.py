"""How different the embeddings of neighbours are."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphmend.contracts import Backbone
from graphmend.engine.adjacency import Adjacency
from graphmend.engine.neighbours import spmm
from graphmend.errors import read_fields
from graphmend.surrogates.base import Surrogate, unit_rows

__all__ = ["Reconstruction"]


@dataclass(frozen=True)
class Reconstruction(Surrogate):
    r"""The mean cosine distance of the ends of all edges, one of the losses that the GTrans paper compares with.

    .. math:: \mathcal L = \sum_{(i, j) \in E} w_{ij} \left(1 - \cos(z_i, z_j)\right) \Big/ \sum_{(i, j) \in E} w_{ij}

    with :math:`w` the presence of each edge: an edge of weight 0 does not exist and does not count. Without edges the
    loss is 0. Since :math:`\sum w_{ij} \cos(z_i, z_j) = \sum_i \langle u_i, (A_w U)_i \rangle` for rows :math:`u` of
    length 1, nothing as wide as Z is stored for every edge.

    Args:
        weighted: ``False`` is the released code of GTrans: the mean over all stored edges, those of weight 0 included.
            The two are the same as long as all edges have weight 1.

    Example:
        >>> import torch
        >>> from torch_geometric.data import Data
        >>> from graphmend.surrogates import Reconstruction
        >>> from graphmend.lab.backbones import GCN
        >>> data = Data(x=torch.rand(3, 4), edge_index=torch.tensor([[0, 1, 2], [1, 2, 0]]))
        >>> Reconstruction()(GCN(4, 8, 2), data).shape
        torch.Size([])
    """

    weighted: bool = True

    def __post_init__(self) -> None:
        read_fields(self)

    def terms(self, model: Backbone, data: Data, generator: torch.Generator | None = None) -> dict[str, Tensor]:
        """``reconstruction``."""
        presence = data.get("edge_weight")
        unit = unit_rows(model.embed(data.x, data.edge_index, presence))
        adjacency = Adjacency.of(data.edge_index, unit.size(0))
        if presence is None or not self.weighted:
            weight = unit.new_ones(data.edge_index.size(1))
        else:
            weight = adjacency.order(presence.to(unit.dtype))
        total = weight.sum()
        similarity = (unit * spmm(adjacency, weight, unit)).sum()
        return {"reconstruction": (total - similarity) / total.masked_fill(total == 0, 1.0)}
