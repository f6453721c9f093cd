"""The paper's parameter-free contrastive loss."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphmend.contracts import Backbone, View
from graphmend.engine.cosine import mean_cosines
from graphmend.errors import require, shown
from graphmend.surrogates.base import Surrogate, embed_views
from graphmend.transforms import DropEdge, Shuffle

__all__ = ["Contrastive"]


@dataclass(frozen=True)
class Contrastive(Surrogate):
    r"""Pull each node towards its augmented view, push it from a shuffled one (GTrans, Eq. 6).

    .. math:: \mathcal L_s = \frac1N \sum_i \left(1 - \cos(\hat z_i, z_i)\right)
              - \frac1N \sum_i \left(1 - \cos(\tilde z_i, z_i)\right)

    with :math:`\hat Z` the embedding of ``view(G)`` and :math:`\tilde Z` that of the graph with shuffled features, both
    drawn afresh at every evaluation. The paper writes a sum, the released code takes the mean; this is the mean.

    Example:
        >>> import torch
        >>> from torch_geometric.data import Data
        >>> from graphmend.surrogates import Contrastive
        >>> from graphmend.transforms import DropEdge
        >>> from graphmend.lab.backbones import GCN
        >>> data = Data(x=torch.rand(3, 4), edge_index=torch.tensor([[0, 1, 2], [1, 2, 0]]))
        >>> Contrastive(DropEdge(0.5))(GCN(4, 8, 2), data).shape
        torch.Size([])
    """

    view: View = field(default_factory=DropEdge)

    def __post_init__(self) -> None:
        remedy = "pass one of graphmend.transforms.VIEWS, such as DropEdge(0.1)"
        require(
            callable(self.view), f"Contrastive's view must be a function of a graph (got {shown(self.view)}); {remedy}"
        )

    def terms(self, model: Backbone, data: Data, generator: torch.Generator | None = None) -> dict[str, Tensor]:
        """``pull`` and ``push``."""
        z, positive, negative = embed_views(model, [data, self.view(data, generator), Shuffle()(data, generator)])
        to_positive, to_negative = 1.0 - mean_cosines(z, positive, negative)
        return {"pull": to_positive, "push": -to_negative}
