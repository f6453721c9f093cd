"""The gradients of the test loss and of a surrogate, compared along the optimisation."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch_geometric.data import Data

from graphmend.lab.bench.methods import surrogate_from
from graphmend.lab.bench.run import Run
from graphmend.lab.bench.workspace import Workspace
from graphmend.lab.data.splits import node_mask
from graphmend.lab.metrics import gradient_correlation
from graphmend.model import FrozenGNN
from graphmend.outputs import cross_entropy

__all__ = ["correlation"]


def correlation(run: Run, workspace: Workspace) -> dict[str, Any]:
    r"""Adam on the features of one test graph, as in GTrans without edges: before every step, and at the end, the
    surrogate loss, the test loss and the cosine :math:`\rho` of their gradients for the features.

    The settings have a ``surrogate``, ``lr``, ``steps`` and the number of the test ``graph``.
    """
    settings = dict(run.settings)
    splits, model, seed = workspace.splits(settings), workspace.model(settings), settings["seed"]
    data = list(workspace.tests(settings).values())[settings["graph"]]
    y, counted = data.y.reshape(-1), node_mask(data)
    with FrozenGNN(model, data, seed=seed) as frozen:
        surrogate = surrogate_from(settings["surrogate"], splits).prepare(frozen, data, seed)
    generator = torch.Generator(device=data.x.device).manual_seed(seed)
    x = data.x.clone().requires_grad_()
    adam = torch.optim.Adam([x], lr=settings["lr"])
    found: dict[str, list[float]] = {"surrogate": [], "test": [], "rho": []}
    for step in range(settings["steps"] + 1):
        here = _with_features(data, x)
        with FrozenGNN(model, data, seed=seed) as frozen:
            loss = surrogate(frozen, here, generator)
            (x.grad,) = torch.autograd.grad(loss, [x])
            test = cross_entropy(frozen(x.detach(), data.edge_index)[counted], y[counted])
        now = _with_features(data, x.detach())
        rho = gradient_correlation(model, now, surrogate, y, counted, seed=seed + step)
        for name, value in (("surrogate", loss.item()), ("test", test.item()), ("rho", rho)):
            found[name].append(round(value, 6))
        adam.step()
    return found


def _with_features(data: Data, x: torch.Tensor) -> Data:
    graph = copy.copy(data)
    graph.x = x
    if "edge_weight" not in graph:
        graph.edge_weight = x.new_ones(data.edge_index.size(1))
    return graph
