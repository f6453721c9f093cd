"""Theorem 2 of GTrans: the class means of two views, and what each half of the contrastive loss does to Z."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.data import Data

from graphmend.adapters import GTrans
from graphmend.contracts import Backbone
from graphmend.lab.bench.run import Run
from graphmend.lab.bench.tasks.representations import embedding
from graphmend.lab.bench.workspace import Workspace
from graphmend.lab.data.splits import node_mask
from graphmend.surrogates import Contrastive
from graphmend.transforms import DropEdge

__all__ = ["Pull", "class_gaps", "class_means", "spread"]


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
            result = adapter(model, data, seed=seed)
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
