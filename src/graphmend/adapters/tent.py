"""Tent: entropy minimisation of the scale and shift of batch normalisation."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Annotated

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from graphmend.adapters.base import Adapter
from graphmend.adapters.case import Case
from graphmend.adapters.model_steps import learn
from graphmend.errors import among, at_least, rate_number, read_fields, require
from graphmend.results.proposal import Proposal
from graphmend.surrogates.entropy import Entropy

__all__ = ["Tent"]

STATISTICS = {"running": "those of training", "batch": "those of the test graph"}


@dataclass(frozen=True)
class Tent(Adapter):
    r"""Make predictions more confident by adapting only the scale and shift of batch normalisation.

    Tent (Wang et al., ICLR 2021, https://openreview.net/forum?id=uXl3bZLkr3c) takes Adam steps on the scale
    :math:`\gamma` and the shift :math:`\beta` of every batch normalisation down the mean entropy of the predictions,

    .. math:: \min_{\gamma, \beta} \; - \frac{1}{N} \sum_i \sum_c p_{ic} \log p_{ic}, \qquad
              p_i = \mathrm{softmax}(f_\theta(G)_i).

    The graph stays as it is; ``result.model`` is a changed copy of the model.

    Args:
        statistics: ``"running"`` normalises by the means and variances of training, as the released GTrans code does;
            ``"batch"`` by those of the test graph, as the original Tent does, and so does the returned model.
        lr: Learning rate of Adam.
        steps: How many steps.
        nodes: How many nodes, the first ones, the entropy is averaged over: 1000 in the released GTrans code; ``None``
            for all.

    Example:
        >>> from graphmend import Tent
        >>> import torch
        >>> from torch_geometric.data import Data
        >>> from graphmend.lab.backbones import GCN
        >>> data = Data(x=torch.rand(3, 4), edge_index=torch.tensor([[0, 1, 2], [1, 2, 0]]))
        >>> Tent(steps=2)(GCN(4, 8, 2, batch_norm=True), data, task="classes").logits.shape
        torch.Size([3, 2])
    """

    statistics: Annotated[str, among(STATISTICS)] = "running"
    _: KW_ONLY
    lr: Annotated[float, rate_number] = 1e-3
    steps: int = 10
    nodes: Annotated[int | None, at_least(1, hint="None is all of them")] = None

    changes_model = True
    tasks = ("classes", "classes per graph")
    uses_card = False
    needs = "batch normalisation"

    def __post_init__(self) -> None:
        read_fields(self)

    def propose(self, case: Case) -> Proposal:
        """Take gradient steps on scale and shift."""
        norms = [module for module in case.model.modules() if isinstance(module, _BatchNorm)]
        moving = [p for norm in norms for p in (norm.weight, norm.bias) if isinstance(p, nn.Parameter)]
        require(
            len(moving) > 0,
            "Tent moves the scale and shift of batch normalisation, and this model has none; use GTrans, which changes "
            "the graph, or FineTune, which moves all parameters",
        )
        if self.statistics == "batch":
            for norm in norms:
                norm.track_running_stats = False
                norm.running_mean = norm.running_var = norm.num_batches_tracked = None
        learn(case, Entropy(nodes=self.nodes), moving, steps=self.steps, lr=self.lr)
        sentence = f"{self.steps} steps on scale and shift of {len(norms)} batch normalisations, down the entropy"
        return Proposal(sentence=sentence)
