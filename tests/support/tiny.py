"""A hand-written model, and surrogates of which the library knows nothing, for the tests of the engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from graphmend.transforms import DropEdge, DropNode, Shuffle
from support.graphs import rng, undirected

N, IN, HIDDEN = 14, 5, 6


class Tiny(nn.Module):
    """Sums over neighbours between two linear maps, in nothing but operations of torch."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(IN, HIDDEN), nn.Linear(HIDDEN, 3)
        for k, parameter in enumerate(self.parameters()):
            parameter.data = torch.randn(parameter.shape, generator=rng(k))
        self.requires_grad_(False)

    def embed(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        h, (source, target) = self.first(x), edge_index
        messages = h[source] if edge_weight is None else h[source] * edge_weight.unsqueeze(-1)
        return (h + torch.zeros_like(h).index_add(0, target, messages)).tanh()

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        out: Tensor = self.last(self.embed(x, edge_index, edge_weight))
        return out


def tiny_graph(device: str = "cpu") -> Data:
    return Data(x=torch.randn(N, IN, generator=rng()), edge_index=undirected(N)).to(device)


def embedded(model: Tiny, *graphs: Data) -> list[Tensor]:
    return [model.embed(graph.x, graph.edge_index, graph.edge_weight) for graph in graphs]


class OfEmbedding:
    """A loss that is a function ``(z, data) -> anything``."""

    def __init__(self, function: Callable[[Tensor, Data], Any]) -> None:
        self.function = function

    def terms(self, model: Tiny, data: Data, generator: torch.Generator | None = None) -> dict[str, Any]:
        return {"loss": self.function(embedded(model, data)[0], data)}


class Agreement:
    """Nodes agree with themselves when edges and nodes are missing, and disagree with shuffled ones."""

    def terms(self, model: Tiny, data: Data, generator: torch.Generator | None = None) -> dict[str, Tensor]:
        views = (DropEdge(0.3)(data, generator), DropNode(0.3)(data, generator), Shuffle()(data, generator))
        z, fewer_edges, fewer_nodes, shuffled = embedded(model, data, *views)
        near = (z - fewer_edges).square().mean() + (z - fewer_nodes).square().mean()
        return {"near": near, "far": -(z - shuffled).square().mean()}


class Smoothness:
    """Differentiates by the features itself."""

    def terms(self, model: Tiny, data: Data, generator: torch.Generator | None = None) -> dict[str, Tensor]:
        (z,) = embedded(model, data)
        (slope,) = torch.autograd.grad(z.sum(), data.x, create_graph=True)
        return {"slope": slope.square().mean(), "size": z.square().mean()}


class SmoothnessIfAny(Smoothness):
    """The same, and what is not connected has no slope, so that nothing fails."""

    def terms(self, model: Tiny, data: Data, generator: torch.Generator | None = None) -> dict[str, Tensor]:
        (z,) = embedded(model, data)
        (slope,) = torch.autograd.grad(z.sum(), data.x, create_graph=True, allow_unused=True)
        size = z.square().mean()
        return {"slope": size * 0 if slope is None else slope.square().mean(), "size": size}


class ClampsFirst:
    """Writes into the features it is given before it uses them."""

    def terms(self, model: Tiny, data: Data, generator: torch.Generator | None = None) -> dict[str, Tensor]:
        with torch.no_grad():
            data.x.clamp_(-2.0, 2.0)
        return {"size": embedded(model, data)[0].square().mean()}


class ScalesAfterwards:
    """Writes into the features between two uses."""

    def terms(self, model: Tiny, data: Data, generator: torch.Generator | None = None) -> dict[str, Tensor]:
        (before,) = embedded(model, data)
        with torch.no_grad():
            data.x.data.mul_(0.9)  # past the version counter
        (after,) = embedded(model, data)
        return {"change": before.detach().sub(after).square().mean(), "size": after.square().mean()}
