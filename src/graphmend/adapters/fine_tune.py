"""FineTune: adapt the model with the loss by which GTrans adapts the graph."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from typing import Annotated

from torch import Tensor
from torch_geometric.data import Data

from graphmend.adapters.base import Adapter
from graphmend.adapters.case import Case
from graphmend.adapters.labelled import accuracy, labelled_nodes
from graphmend.adapters.model_steps import learn
from graphmend.contracts import Backbone
from graphmend.errors import decay_number, rate_number, read_fields
from graphmend.results.proposal import Proposal
from graphmend.surrogates import Contrastive, Surrogate, surrogate_of

__all__ = ["FineTune"]


@dataclass(frozen=True, eq=False)
class FineTune(Adapter):
    r"""Adapt the model, keep the graph: gradient steps of all parameters down a surrogate loss on the test graph.

    .. math:: \min_\theta \mathcal L_s\left(f_\theta(A, X)\right)

    The paper compares GTrans with this in "adapting model vs. adapting data". The caller's model stays as it
    was; ``result.model`` is a changed copy.

    Args:
        surrogate: As for :class:`~graphmend.GTrans`.
        lr: Learning rate of Adam.
        steps: How many steps.
        weight_decay: L2 penalty.
        train_mode: Whether dropout and batch statistics are on during the steps, as in training. Otherwise the model
            stays in evaluation mode and batch normalisation keeps the statistics of training.
        validation: Nodes by whose labels the best of all steps is chosen, as the released code does for abnormal
            features; without them the last step counts.

    Example:
        >>> from torch_geometric.data import Data
        >>> from graphmend import FineTune
        >>> import torch
        >>> from graphmend.lab.backbones import GCN
        >>> data = Data(x=torch.rand(3, 4), edge_index=torch.tensor([[0, 1, 2], [1, 2, 0]]))
        >>> FineTune(steps=2)(GCN(4, 8, 2), data).logits.shape
        torch.Size([3, 2])
    """

    surrogate: Surrogate | str | Callable[[Backbone, Data], Tensor] = field(default_factory=Contrastive)
    _: KW_ONLY
    lr: Annotated[float, rate_number] = 1e-3
    steps: int = 10
    weight_decay: Annotated[float, decay_number] = 0.0
    train_mode: bool = False
    validation: Tensor | None = None

    changes_model = True
    uses_card = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "surrogate", surrogate_of(self.surrogate))
        read_fields(self)

    @property
    def tasks(self) -> tuple[str, ...]:
        """The tasks of the loss; choosing by labels needs classes of nodes."""
        return surrogate_of(self.surrogate).tasks if self.validation is None else ("classes",)

    def propose(self, case: Case) -> Proposal:
        """Take gradient steps on all parameters."""
        better = None
        if self.validation is not None:
            nodes, labels = labelled_nodes(case.data, self.validation, self)

            def better(logits: Tensor) -> float:
                return accuracy(logits, nodes, labels)

        learn(
            case,
            surrogate_of(self.surrogate),
            case.model.parameters(),
            steps=self.steps,
            lr=self.lr,
            weight_decay=self.weight_decay,
            is_training=self.train_mode,
            better=better,
        )
        chosen = "the last one counts" if better is None else "labels chose the best one"
        return Proposal(sentence=f"{self.steps} steps on all parameters of the model, of which {chosen}")
