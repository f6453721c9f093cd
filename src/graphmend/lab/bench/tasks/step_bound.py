"""Theorem 1 of GTrans on random small graphs."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv
from torch_geometric.utils import dense_to_sparse

from graphmend.lab.bench.run import Run
from graphmend.lab.bench.workspace import Workspace
from graphmend.surrogates import Contrastive

__all__ = ["Linearised", "hessian_bound", "step_bound"]

NODES, COLUMNS, WIDTH, CLASSES, DENSITY = 12, 4, 8, 3, 0.3


class Linearised(nn.Module):
    r"""A GCN without biases and activations, :math:`Z = \hat A X W_1` and logits :math:`\hat A Z W_2`."""

    def __init__(self, columns: int, width: int, classes: int) -> None:
        super().__init__()
        self.first = GCNConv(columns, width, bias=False)
        self.last = GCNConv(width, classes, bias=False)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        """Logits."""
        logits: Tensor = self.last(self.embed(x, edge_index, edge_weight), edge_index, edge_weight)
        return logits

    def embed(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        """Z."""
        z: Tensor = self.first(x, edge_index, edge_weight)
        return z


def hessian_bound(model: Linearised, nodes: int) -> float:
    r"""M, a bound on the Hessian of the mean cross-entropy for the features, whatever they are.

    The Hessian of the cross-entropy of one node for its logits is :math:`\operatorname{diag}(p) - p p^\top`, whose norm
    is at most 1/2, and :math:`\lVert \hat A \rVert \le 1` on an undirected graph. So

    .. math:: M = \frac{\lVert W_1 W_2 \rVert_2^2}{2 N}.
    """
    first, last = model.first.lin.weight, model.last.lin.weight  # as W^T
    return float(torch.linalg.matrix_norm(last @ first, 2) ** 2) / (2 * nodes)


def step_bound(run: Run, workspace: Workspace) -> dict[str, Any]:
    """One step down the contrastive loss on each of many random graphs, at several multiples of the theorem's bound.

    Returns:
        How many of the graphs have gradients with a positive correlation and how many a negative one, and for both, by
        the multiple of the bound, the percentage of steps that do not lower the test loss.
    """
    settings = dict(run.settings)
    generator = torch.Generator().manual_seed(settings["seed"])
    kept: dict[str, dict[float, list[bool]]] = {
        sign: {multiple: [] for multiple in settings["multiples"]} for sign in ("positive", "negative")
    }
    for number in range(settings["graphs"]):
        model, graph, y = _drawn(generator)
        x = graph.x.clone().requires_grad_()
        before = F.cross_entropy(model(x, graph.edge_index), y)
        (test,) = torch.autograd.grad(before, [x])
        views = torch.Generator().manual_seed(number)
        (surrogate,) = torch.autograd.grad(Contrastive()(model, Data(x=x, edge_index=graph.edge_index), views), [x])
        rho = F.cosine_similarity(test.flatten(), surrogate.flatten(), dim=0).item()
        bound = 2 * abs(rho) * test.norm().item() / (hessian_bound(model, NODES) * surrogate.norm().item())
        for multiple, outcomes in kept["positive" if rho > 0 else "negative"].items():
            with torch.no_grad():
                after = F.cross_entropy(model(graph.x - multiple * bound * surrogate, graph.edge_index), y)
            outcomes.append(after.item() >= before.item())
    return {sign: _counted(outcomes) for sign, outcomes in kept.items()}


def _counted(outcomes: dict[float, list[bool]]) -> dict[str, Any]:
    graphs = len(next(iter(outcomes.values())))
    return {"graphs": graphs, "not_lower": {str(m): 100 * sum(found) / max(graphs, 1) for m, found in outcomes.items()}}


def _drawn(generator: torch.Generator) -> tuple[Linearised, Data, Tensor]:
    """A random model, graph and labels, in double precision."""

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    model = Linearised(COLUMNS, WIDTH, CLASSES).double().requires_grad_(False)
    model.first.lin.weight.copy_(normal(WIDTH, COLUMNS))
    model.last.lin.weight.copy_(normal(CLASSES, WIDTH))
    upper = (torch.rand(NODES, NODES, generator=generator) < DENSITY).triu(1)
    edge_index, _ = dense_to_sparse((upper | upper.T).long())
    y = torch.randint(CLASSES, (NODES,), generator=generator)
    return model, Data(x=normal(NODES, COLUMNS), edge_index=edge_index), y
