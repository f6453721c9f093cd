"""The frame of every attack that searches edge flips by gradients: its arguments, its budget and its target."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import KW_ONLY, dataclass, field

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from graphmend.errors import check_fields, choose, seed_number, switch, whole_number
from graphmend.graph.convert import with_edge_index
from graphmend.lab.attacks.pairs import UndirectedGraph, check_budget
from graphmend.lab.attacks.target import LOSSES, Target, target_of
from graphmend.model.restore import private
from graphmend.outputs import read_mask

__all__ = ["EdgeAttack"]


@dataclass(frozen=True, eq=False)
class EdgeAttack(ABC):
    r"""Flips undirected edges so that a trained model errs on the attacked nodes.

    Model, input and random generators are left as they were. An attack defines :meth:`flips`.

    Args:
        model: A trained model whose edges can be weighted: a GraphMend backbone or any that
            :class:`~graphmend.FrozenGNN` supports.
        rate: Budget :math:`n_B` as a fraction of the undirected edges, rounded down.
        budget: The same as a number of undirected edges, instead of ``rate``.
        nodes: Mask of the attacked nodes; ``None`` for all.
        labels: Labels the attack moves predictions away from, one per node. By default the true ones of the ``known``
            nodes and the model's own clean prediction elsewhere, so that no other label is read.
        known: Mask of the nodes whose ``data.y`` the attacker knows; by default ``data.train_mask``, if any.
        block_size: Node pairs that are considered at a time.
        epochs: Gradient steps.
        loss: ``"tanh_margin"`` or ``"masked_cross_entropy"``.
        seed: Seed of the blocks and of everything else that is drawn.
        progress: Show a progress bar.

    Example:
        >>> from graphmend.lab.attacks import PRBCD, EdgeAttack
        >>> issubclass(PRBCD, EdgeAttack)
        True
    """

    model: nn.Module = field(repr=False)
    _: KW_ONLY
    rate: float = 0.1
    budget: int | None = None
    nodes: Tensor | None = field(default=None, repr=False)
    labels: Tensor | None = field(default=None, repr=False)
    known: Tensor | None = field(default=None, repr=False)
    block_size: int = 250_000
    epochs: int = 400
    loss: str = "tanh_margin"
    seed: int = 0
    progress: bool = field(default=False, repr=False)

    def __post_init__(self) -> None:
        check_budget(self)
        choose("loss", self.loss, LOSSES)
        check_fields(self, whole_number, "block_size", low=1)
        check_fields(self, whole_number, "epochs", low=1)
        check_fields(self, seed_number, "seed")
        check_fields(self, switch, "progress")
        if self.nodes is not None:
            object.__setattr__(self, "nodes", read_mask(self.nodes, name="nodes"))
        if self.known is not None:
            object.__setattr__(self, "known", read_mask(self.known, name="known", may_be_empty=True))

    def __call__(self, data: Data) -> Data:
        """A copy of ``data`` with the attacked edges, sorted and in both directions."""
        data = with_edge_index(data)
        graph = UndirectedGraph.of(data)
        budget = min(graph.count(self.rate, self.budget), graph.num_pairs)
        if budget == 0:
            return graph.put_into(data)
        generator = torch.Generator(device=data.x.device).manual_seed(self.seed)
        options = {"nodes": self.nodes, "labels": self.labels, "known": self.known}
        with private(data) as own, target_of(self.model, own, **options, loss=self.loss, seed=self.seed) as target:
            flips = self.flips(target, own, graph, budget, generator)
        return graph.flipped(flips).put_into(data)

    @abstractmethod
    def flips(
        self, target: Target, data: Data, graph: UndirectedGraph, budget: int, generator: torch.Generator
    ) -> Tensor:
        """The pair numbers of at most ``budget`` edges to flip."""
