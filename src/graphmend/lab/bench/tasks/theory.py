"""The paper's two theorems and its example, measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv
from torch_geometric.utils import dense_to_sparse

from graphmend.adapters import GTrans
from graphmend.contracts import Backbone
from graphmend.lab.bench.store import Run
from graphmend.lab.bench.tasks.analyses import embedding
from graphmend.lab.bench.workspace import Workspace
from graphmend.lab.data.splits import node_mask
from graphmend.surrogates import Contrastive
from graphmend.transforms import DropEdge

__all__ = [
    "Linearised",
    "Pull",
    "aggregated",
    "class_gaps",
    "class_means",
    "collapse",
    "hessian_bound",
    "spread",
    "step_bound",
    "worked_example",
]

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


def collapse(run: Run, workspace: Workspace) -> dict[str, Any]:
    """Adam on the features of a small random graph that is in one piece, with a linear embedding: the mean cosine of
    two nodes before and after some numbers of steps down the first term alone, and down both terms.

    The first term is 0 only where a node's embedding keeps its direction whichever of its edges are dropped, so that
    its neighbours all have that direction: in a connected graph, all nodes.
    """
    settings = dict(run.settings)
    found: dict[str, dict[str, float]] = {}
    for name, surrogate in (("pull", Pull()), ("both", Contrastive())):
        generator = torch.Generator().manual_seed(settings["seed"])
        model, graph, y = _drawn(generator, connected=True)
        x = graph.x.clone().requires_grad_()
        adam = torch.optim.Adam([x], lr=settings["lr"])
        weight = x.new_ones(graph.edge_index.size(1))
        found[name] = {}
        for step in range(max(settings["steps"]) + 1):
            if step in (0, *settings["steps"]):
                z = model.embed(x.detach(), graph.edge_index)
                found[name][str(step)] = spread(z, torch.zeros_like(y))["cosine"]
            loss = surrogate(model, Data(x=x, edge_index=graph.edge_index, edge_weight=weight), generator)
            (x.grad,) = torch.autograd.grad(loss, [x])
            adam.step()
    return found


def _counted(outcomes: dict[float, list[bool]]) -> dict[str, Any]:
    graphs = len(next(iter(outcomes.values())))
    return {"graphs": graphs, "not_lower": {str(m): 100 * sum(found) / max(graphs, 1) for m, found in outcomes.items()}}


def _drawn(generator: torch.Generator, connected: bool = False) -> tuple[Linearised, Data, Tensor]:
    """A random model, graph and labels, in double precision; with a ring through all nodes if ``connected``."""

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    model = Linearised(COLUMNS, WIDTH, CLASSES).double().requires_grad_(False)
    model.first.lin.weight.copy_(normal(WIDTH, COLUMNS))
    model.last.lin.weight.copy_(normal(CLASSES, WIDTH))
    upper = (torch.rand(NODES, NODES, generator=generator) < DENSITY).triu(1)
    if connected:
        ring = torch.arange(NODES)
        upper[ring, (ring + 1) % NODES] = True
    edge_index, _ = dense_to_sparse((upper | upper.T).long())
    y = torch.randint(CLASSES, (NODES,), generator=generator)
    return model, Data(x=normal(NODES, COLUMNS), edge_index=edge_index), y


@dataclass(frozen=True)
class Pull(Contrastive):
    """The first term of the contrastive loss alone."""

    def terms(self, model: Backbone, data: Data, generator: torch.Generator | None = None) -> dict[str, Tensor]:
        """``pull``."""
        return {"pull": super().terms(model, data, generator)["pull"]}


def class_means(run: Run, workspace: Workspace) -> dict[str, Any]:
    """How far the class means of Z and of its augmented view are apart, and how compact Z is before and after some
    numbers of steps down the first term alone, or both terms, on the features of one test ``graph``."""
    settings = dict(run.settings)
    model, seed = workspace.model(settings), settings["seed"]
    data = list(workspace.tests(settings).values())[settings["graph"]]
    counted, y = node_mask(data), data.y.reshape(-1)

    def z(graph: Data) -> Tensor:
        return embedding(model, graph)[counted]

    generator = torch.Generator(device=data.x.device).manual_seed(seed)
    view = DropEdge(0.5)(data, generator)
    found: dict[str, Any] = {"gaps": class_gaps(z(data), z(view), y[counted]), "before": spread(z(data), y[counted])}
    for name, surrogate in (("pull", Pull()), ("both", Contrastive())):
        for steps in settings["steps"]:
            adapter = GTrans(surrogate, edge_steps=0, steps=steps, lr_feature=settings["lr"])
            result = adapter(model, data, seed=seed, task="classes")
            found[f"{name} {steps}"] = {**spread(z(result.data), y[counted]), "reason": result.reason}
    return found


def class_gaps(z: Tensor, view: Tensor, y: Tensor) -> list[float]:
    r"""For each class k the mean over dimensions of :math:`|c_k - \hat c_k|`, the means of rows of length 1."""
    z, view = F.normalize(z.double(), dim=1), F.normalize(view.double(), dim=1)
    return [(z[y == k].mean(0) - view[y == k].mean(0)).abs().mean().item() for k in _classes(y)]


def spread(z: Tensor, y: Tensor) -> dict[str, float]:
    r"""``within``: :math:`\frac1N \sum_i \lVert z_i - c_{y_i} \rVert^2` for rows of length 1, which bounds the
    class-conditional entropy; ``cosine``: the mean cosine of all pairs of nodes, 1 if all are at one point."""
    z = F.normalize(z.double(), dim=1)
    centres = torch.zeros_like(z)
    for k in _classes(y):
        centres[y == k] = z[y == k].mean(0)
    return {"within": (z - centres).square().sum(1).mean().item(), "cosine": z.mean(0).square().sum().item()}


def _classes(y: Tensor) -> list[int]:
    return sorted(set(y.tolist()))


NEIGHBOURS = ((0.3, 0.6), (0.3, 0.6, 0.7))
"""Features of the neighbours of the two nodes; they give the aggregated features of the paper, 0.45 and 0.53."""
INJECTED = 0.2
"""Feature of the neighbour that the attack gives to the second node."""
SLOPE, STEPS = 100.0, 500


def worked_example(run: Run, workspace: Workspace) -> dict[str, Any]:
    """Aggregated features, loss and errors on the clean and the attacked graph, then with the model adapted to the true
    labels of the attacked graph, and with the features adapted to them."""
    clean = [list(features) for features in NEIGHBOURS]
    attacked = [clean[0], [*clean[1], INJECTED]]
    y = torch.tensor([0.0, 1.0], dtype=torch.float64)
    weights = torch.tensor([SLOPE, -SLOPE * aggregated(_tensors(clean)).mean().item()], dtype=torch.float64)
    features = _tensors(attacked)
    adapted_weights, adapted_features = weights.clone().requires_grad_(), [f.clone().requires_grad_() for f in features]
    _descend(lambda: _loss(adapted_weights, features, y), [adapted_weights], lr=1.0)
    _descend(lambda: _loss(weights, adapted_features, y), adapted_features, lr=1e-3)
    cases = {
        "clean": (weights, _tensors(clean)),
        "attacked": (weights, features),
        "model": (adapted_weights.detach(), features),
        "data": (weights, [f.detach() for f in adapted_features]),
    }
    return {name: _measured(*case, y) for name, case in cases.items()}


def aggregated(features: list[Tensor]) -> Tensor:
    """The mean of the neighbours' features, one number per node."""
    return torch.stack([neighbours.mean() for neighbours in features])


def _tensors(features: list[list[float]]) -> list[Tensor]:
    return [torch.tensor(neighbours, dtype=torch.float64) for neighbours in features]


def _logits(weights: Tensor, features: list[Tensor]) -> Tensor:
    return weights[0] * aggregated(features) + weights[1]


def _loss(weights: Tensor, features: list[Tensor], y: Tensor) -> Tensor:
    return F.binary_cross_entropy_with_logits(_logits(weights, features), y)


def _descend(loss: Any, variables: list[Tensor], lr: float) -> None:
    adam = torch.optim.Adam(variables, lr=lr)
    for _ in range(STEPS):
        for variable, gradient in zip(variables, torch.autograd.grad(loss(), variables), strict=True):
            variable.grad = gradient
        adam.step()


def _measured(weights: Tensor, features: list[Tensor], y: Tensor) -> dict[str, Any]:
    logits = _logits(weights, features)
    wrong = ((logits > 0) != (y > 0)).double().mean().item()
    return {
        "aggregated": aggregated(features).round(decimals=12).tolist(),
        "loss": F.binary_cross_entropy_with_logits(logits, y).item(),
        "error": 100 * wrong,
    }
