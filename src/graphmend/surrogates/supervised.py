"""Cross-entropy on nodes whose labels the caller has."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphmend.contracts import Backbone
from graphmend.errors import require
from graphmend.outputs import check_classes, cross_entropy, number_of_classes, read_labels, read_mask
from graphmend.surrogates.base import Surrogate


@dataclass(frozen=True, eq=False)
class Supervised(Surrogate):
    r"""Mean negative log-likelihood over the nodes in ``mask``, the only labels that are ever read.

    .. math:: \mathcal L_{train} = - \frac{1}{|M|} \sum_{i \in M} \log \mathrm{softmax}(f(G)_i)_{y_i}

    Takes logits, log-softmax (the softmax of which is the same) or a single binary logit.

    Args:
        mask: The nodes whose labels may be used, boolean or 0 and 1.

    Example:
        >>> import torch
        >>> from torch_geometric.data import Data
        >>> from graphmend import GTrans, mend
        >>> from graphmend.lab.backbones import GCN
        >>> data, model = Data(x=torch.rand(20, 3), edge_index=torch.randint(20, (2, 60))).coalesce(), GCN(3, 8, 2)
        >>> from graphmend.surrogates import Supervised
        >>> data.y, data.train_mask = torch.randint(2, (20,)), torch.arange(20) < 10
        >>> history = mend(model, data, GTrans(Supervised(data.train_mask), steps=5, edge_steps=0)).history
        >>> history[-1].loss < history[0].loss
        True
    """

    mask: Tensor

    tasks = ("classes",)

    def __post_init__(self) -> None:
        object.__setattr__(self, "mask", read_mask(self.mask, name="mask"))

    def terms(self, model: Backbone, data: Data, generator: torch.Generator | None = None) -> dict[str, Tensor]:
        """``supervised``."""
        require(data.get("y") is not None, "Supervised needs labels, but the graph has no y; drop it or set data.y")
        nodes = data.x.size(0)
        mask = read_mask(self.mask, nodes, "mask").to(data.x.device)
        labels = read_labels(data.y, nodes, mask)
        logits = model(data.x, data.edge_index, data.get("edge_weight"))[mask]
        check_classes(labels, number_of_classes(logits), "labels in the mask", "leave other nodes out of the mask")
        return {"supervised": cross_entropy(logits, labels)}
