"""How uncertain the predictions are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphmend.contracts import Backbone
from graphmend.errors import at_least, read_fields
from graphmend.outputs import class_scores
from graphmend.surrogates.base import Surrogate

__all__ = ["Entropy"]


@dataclass(frozen=True)
class Entropy(Surrogate):
    r"""The mean entropy of the predictions (Wang et al., "Tent", ICLR 2021, https://arxiv.org/abs/2006.10726).

    .. math:: \mathcal L = - \frac1N \sum_i \sum_c p_{ic} \log p_{ic}, \qquad p_i = \mathrm{softmax}(f(G)_i)

    Takes logits, log-softmax or a single binary logit per node.

    Args:
        nodes: How many nodes count, the first ones of the graph; ``None`` stands for all. The released code of GTrans
            has 1000.

    Example:
        >>> import torch
        >>> from torch_geometric.data import Data
        >>> from graphmend.surrogates import Entropy
        >>> from graphmend.lab.backbones import GCN
        >>> data = Data(x=torch.rand(3, 4), edge_index=torch.tensor([[0, 1, 2], [1, 2, 0]]))
        >>> Entropy()(GCN(4, 8, 2), data).shape
        torch.Size([])
    """

    nodes: Annotated[int | None, at_least(1, hint="None is all of them")] = None

    tasks = ("classes", "classes per graph")

    def __post_init__(self) -> None:
        read_fields(self)

    def terms(self, model: Backbone, data: Data, generator: torch.Generator | None = None) -> dict[str, Tensor]:
        """``entropy``."""
        logits = model(data.x, data.edge_index, data.get("edge_weight"))[: self.nodes]
        logs = class_scores(logits).log_softmax(dim=1)
        return {"entropy": -(logs.exp() * logs).sum(dim=1).mean()}
