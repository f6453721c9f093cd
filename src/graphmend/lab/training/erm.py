"""Empirical risk minimisation: the plain way to train a backbone."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from graphmend.errors import check_fields, real_number
from graphmend.lab.data.splits import Splits
from graphmend.lab.training.base import Objective, Trainer, mean_risk, outputs
from graphmend.transforms import DropEdge

__all__ = ["ERM"]


@dataclass(frozen=True, kw_only=True)
class ERM(Trainer):
    r"""The mean loss of the training graphs: cross-entropy, or binary cross-entropy for binary tasks.

    Args:
        drop_edge: Probability of :class:`~graphmend.transforms.DropEdge`, applied in every epoch to every training
            graph. The model must take edge weights and treat 0 as absent.
        drop_edge_compounds: What an epoch drops stays dropped, so that after :math:`e` epochs a share of
            :math:`(1 - p)^e` of the edges is left. That is a mistake of the released GTrans code, for data sets with
            one training graph, and is here to reproduce its figures. By default every epoch starts from all edges.
        lr: As in :class:`~graphmend.lab.training.Trainer`, like ``weight_decay``, ``epochs``, ``optimizer`` and
            ``seed``.

    Example:
        >>> from graphmend.lab.training import ERM
        >>> ERM(lr=0.01, weight_decay=5e-4, epochs=1000, optimizer="adam").drop_edge  # the robustness experiments
        0.0
    """

    drop_edge: float = 0.0
    drop_edge_compounds: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_fields(self, real_number, "drop_edge", low=0, below=1)

    def objective(self, model: nn.Module, splits: Splits) -> Objective:
        """The mean risk of the training graphs, with fewer edges if asked for."""
        drop, graphs = DropEdge(self.drop_edge), splits.train

        def loss(epoch: int) -> Tensor:
            nonlocal graphs
            if self.drop_edge > 0:
                graphs = [drop(data) for data in (graphs if self.drop_edge_compounds else splits.train)]
            return mean_risk(outputs(model, graphs), graphs, splits.task)

        return Objective(loss)
