"""The paper's parameter-free contrastive loss."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch_geometric.data import Data

from graphmend.engine.autograd import apply
from graphmend.engine.ops import cosine_gradients, cosines
from graphmend.engine.view_batch import embeddings
from graphmend.surrogates.base import Backbone, Surrogate
from graphmend.transforms.views.drop_edge import DropEdge
from graphmend.transforms.views.shuffle import Shuffle
from graphmend.transforms.views.view import View


@dataclass(frozen=True)
class Contrastive(Surrogate):
    r"""Pull each node towards its augmented view, push it from a shuffled one (GTrans, Eq. 6).

    .. math:: \mathcal L_s = \frac1N \sum_i \left(1 - \cos(\hat z_i, z_i)\right)
              - \frac1N \sum_i \left(1 - \cos(\tilde z_i, z_i)\right)

    with :math:`\hat Z` the embedding of ``view(G)`` and :math:`\tilde Z` that of the graph with shuffled features, both
    drawn afresh at every evaluation. The paper writes a sum, the released code takes the mean; this is the mean.

    Example:
        >>> from graphmend.nn import GCN
        >>> data = Data(x=torch.rand(3, 4), edge_index=torch.tensor([[0, 1, 2], [1, 2, 0]]))
        >>> Contrastive(DropEdge(0.5))(GCN(4, 8, 2), data).shape
        torch.Size([])
    """

    view: View = field(default_factory=DropEdge)

    def terms(self, model: Backbone, data: Data, generator: torch.Generator | None = None) -> dict[str, Tensor]:
        """``pull`` and ``push``."""
        z, positive, negative = embeddings(model, [data, self.view(data, generator), Shuffle()(data, generator)])
        to_positive, to_negative = distances(z, positive, negative)
        return {"pull": to_positive, "push": -to_negative}


def distances(z: Tensor, *others: Tensor) -> Tensor:
    r"""Mean cosine distance :math:`\frac1N \sum_i (1 - \cos(z_i, u_i))` of the rows of ``z`` from those of each of the
    others; a zero row has cosine 0 with all.
    """
    means: Tensor = apply(_MeanCosines, z, *others)
    return 1.0 - means


class _MeanCosines(torch.autograd.Function):
    r"""With :math:`\partial u_i = \frac{1}{N |u_i|} \left(\hat v_i - \cos_i \hat u_i\right)` for the rows of a pair."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, *others: Tensor) -> Tensor:
        inverses, found = cosines(z, *others)
        ctx.save_for_backward(z, *others, inverses, found)
        return found.mean(1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, ...]:
        *matrices, inverses, found = ctx.saved_tensors
        return cosine_gradients(*matrices, inverses=inverses, cosines=found, steps=grad / found.size(1))
