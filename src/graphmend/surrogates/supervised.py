"""Cross-entropy on nodes whose labels the caller has."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.data import Data

from graphmend.contracts import Backbone
from graphmend.errors import require
from graphmend.graph.labels import check_classes, read_labels
from graphmend.graph.masks import read_mask
from graphmend.surrogates.base import Surrogate


@dataclass(frozen=True, eq=False)
class Supervised(Surrogate):
    r"""Mean negative log-likelihood over the nodes in ``mask``, the only labels that are ever read.

    .. math:: \mathcal L_{train} = - \frac{1}{|M|} \sum_{i \in M} \log \mathrm{softmax}(f(G)_i)_{y_i}

    Takes logits, log-softmax (the softmax of which is the same) or a single binary logit.

    Args:
        mask: The nodes whose labels may be used, boolean or 0 and 1.
    """

    mask: Tensor

    def __post_init__(self) -> None:
        object.__setattr__(self, "mask", read_mask(self.mask, name="mask"))

    def terms(self, model: Backbone, data: Data, generator: torch.Generator | None = None) -> dict[str, Tensor]:
        """``supervised``."""
        require(data.get("y") is not None, "Supervised needs labels, but the graph has no y; drop it or set data.y")
        nodes = data.x.size(0)
        mask = read_mask(self.mask, nodes, "mask").to(data.x.device)
        labels = read_labels(data.y, nodes, mask)
        logits = model(data.x, data.edge_index, data.get("edge_weight"))[mask]
        classes = logits.size(1) if logits.dim() == 2 and logits.size(1) > 1 else 2
        check_classes(labels, classes, "labels in the mask", "leave other nodes out of the mask")
        return {"supervised": negative_log_likelihood(logits, labels)}


def negative_log_likelihood(logits: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy of logits or log-softmax of shape ``(N, C)``, or of one binary logit per node."""
    if logits.dim() == 1 or logits.size(1) == 1:
        return F.binary_cross_entropy_with_logits(logits.view(-1), labels.to(logits.dtype))
    return F.cross_entropy(logits, labels.long())
