"""Cross-entropy on nodes whose labels the caller has."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.data import Data

from graphmend.contracts import Backbone
from graphmend.errors import require
from graphmend.surrogates.base import Surrogate


@dataclass(frozen=True, eq=False)
class Supervised(Surrogate):
    r"""Mean negative log-likelihood over the nodes in ``mask``, the only labels that are ever read.

    .. math:: \mathcal L_{train} = - \frac{1}{|M|} \sum_{i \in M} \log \mathrm{softmax}(f(G)_i)_{y_i}

    Takes logits, log-softmax (the softmax of which is the same) or a single binary logit.
    """

    mask: Tensor

    def __post_init__(self) -> None:
        kind = f"{self.mask.dtype} of shape {tuple(self.mask.shape)}"
        require(self.mask.dtype == torch.bool and self.mask.dim() == 1, f"the label mask must be 1-D bool (got {kind})")
        require(bool(self.mask.any()), "the label mask marks no node; mark the nodes whose labels may be used")

    def terms(self, model: Backbone, data: Data, generator: torch.Generator | None = None) -> dict[str, Tensor]:
        """``supervised``."""
        require(data.get("y") is not None, "Supervised needs labels, but the graph has no y; drop it or set data.y")
        nodes = data.x.size(0)
        require(
            self.mask.numel() == nodes,
            f"the label mask has {self.mask.numel()} entries but the graph {nodes} nodes; pass one entry per node",
        )
        mask = self.mask.to(data.x.device)
        labels = data.y.view(-1)[mask]
        logits = model(data.x, data.edge_index, data.get("edge_weight"))[mask]
        return {"supervised": negative_log_likelihood(logits, labels)}


def negative_log_likelihood(logits: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy of logits or log-softmax of shape ``(N, C)``, or of one binary logit per node."""
    if logits.dim() == 1 or logits.size(1) == 1:
        return F.binary_cross_entropy_with_logits(logits.view(-1), labels.to(logits.dtype))
    return F.cross_entropy(logits, labels.long())
