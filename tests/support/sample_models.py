"""Models of all kinds, as users write them, and a small graph for them."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
import torch_geometric.nn as pyg
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import MessagePassing

from graphmend import FrozenGNN

N, IN, HID, OUT = 14, 5, 8, 3


def make_graph(dtype: torch.dtype = torch.float32, loops: bool = True, **extra: Tensor) -> Data:
    """Undirected, with a self-loop and an isolated node."""
    generator = torch.Generator().manual_seed(11)
    upper = torch.triu(torch.rand(N, N, generator=generator) < 0.3, diagonal=1)
    upper[:, -1] = False
    dense = upper | upper.t()
    dense[2, 2] = loops
    x = torch.randn(N, IN, generator=generator, dtype=torch.float64).to(dtype)
    return Data(x=x, edge_index=dense.nonzero().t().contiguous(), **extra)


def edge_values(width: int | None = None, dtype: torch.dtype = torch.float32, loops: bool = True) -> Tensor:
    edges = make_graph(loops=loops).edge_index.size(1)
    generator = torch.Generator().manual_seed(5)
    shape = (edges,) if width is None else (edges, width)
    return 0.5 + torch.rand(shape, generator=generator, dtype=torch.float64).to(dtype)


def seeded(make: Callable[[], nn.Module], dtype: torch.dtype = torch.float32, seed: int = 3) -> nn.Module:
    """A model with all parameters random (biases too), as a trained one has."""
    torch.manual_seed(seed)
    model = make().to(dtype)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.5)
    return model


SEES_ALL_NODES = ("simp_gcn", "dual_gcn")
"""Backbones that compare every node with every other, so that copies of a graph are not alike side by side."""


def input_of(model: nn.Module, layer: nn.Module, data: Data, call: int = -1) -> Tensor:
    """What ``layer`` is given, seen with a hook of this test's own."""
    seen: list[Tensor] = []
    handle = layer.register_forward_pre_hook(lambda _, args: seen.append(args[0].clone()))
    _run_in_eval_mode(model, data)
    handle.remove()
    return seen[call]


def output_of(model: nn.Module, layer: nn.Module, data: Data, call: int = 0) -> Tensor:
    """What ``layer`` returns at one of its calls, seen with a hook of this test's own."""
    seen: list[Tensor] = []
    handle = layer.register_forward_hook(lambda _, args, out: seen.append(out.detach().flatten(1).clone()))
    _run_in_eval_mode(model, data)
    handle.remove()
    return seen[call]


def _run_in_eval_mode(model: nn.Module, data: Data) -> None:
    was_training = model.training
    model.eval()
    with torch.no_grad():
        model(data.x, data.edge_index)
    model.train(was_training)


def embedding(model: nn.Module, data: Data, **kwargs: Any) -> Tensor:
    with FrozenGNN(model, data, **kwargs) as frozen:
        return frozen.embed(data.x, data.edge_index).detach()


def way_of(model: nn.Module, data: Data) -> Callable[..., Any]:
    with FrozenGNN(model, data) as frozen:
        return frozen.weighting


def basic(name: str, **kwargs: Any) -> nn.Module:
    if name == "GATv2":
        return pyg.GAT(IN, HID, out_channels=OUT, v2=True, heads=2, **kwargs)
    if name == "GAT":
        kwargs["heads"] = 2
    if name == "PNA":
        kwargs |= {"aggregators": ["mean", "max"], "scalers": ["identity", "amplification"], "deg": torch.ones(12)}
    made: nn.Module = getattr(pyg, name)(IN, HID, out_channels=OUT, **kwargs)
    return made


class OwnEmbed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = pyg.GCNConv(IN, HID), pyg.GCNConv(HID, OUT)

    def embed(self, x: Tensor, edge_index: Tensor) -> Tensor:
        out: Tensor = self.a(x, edge_index).tanh() * 7.0
        return out

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        out: Tensor = self.b(self.a(x, edge_index).relu(), edge_index)
        return out


class DenseWeights(nn.Module):
    """Takes edge weights itself, without any PyG layer."""

    def __init__(self, embed_takes_weights: bool) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(IN, HID), nn.Linear(HID, OUT)
        self.embed_takes_weights = embed_takes_weights

    def hop(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None) -> Tensor:
        weight = torch.ones(edge_index.size(1)) if edge_weight is None else edge_weight
        return torch.zeros_like(x).index_add(0, edge_index[1], x[edge_index[0]] * weight[:, None])

    def embed(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        weight = edge_weight if self.embed_takes_weights else None
        return self.hop(self.a(x), edge_index, weight).relu()

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Any:
        return self.b(self.hop(self.a(x), edge_index, edge_weight).relu())


class Residual(nn.Module):
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm = pyg.GCNConv(HID, HID), nn.BatchNorm1d(HID)

        def forward(self, x: Tensor, edge_index: Tensor) -> Any:
            return x + self.norm(self.conv(x, edge_index)).relu()

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Linear(IN, HID)
        self.blocks = nn.ModuleList([self.Block(), self.Block()])
        self.out = nn.Linear(HID, OUT)

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        x = self.encoder(x)
        for block in self.blocks:
            x = block(x, edge_index)
        return self.out(x)


class Shared(nn.Module):
    """One layer, run three times."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.conv = nn.Linear(IN, HID), pyg.SAGEConv(HID, HID)

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        x = self.encoder(x)
        for _ in range(3):
            x = self.conv(x, edge_index).relu()
        return x


class Custom(MessagePassing):  # type: ignore[misc]
    """A sum-aggregating convolution of the user's own."""

    def __init__(self, channels_in: int, channels_out: int) -> None:
        super().__init__(aggr="add")
        self.lin = nn.Linear(channels_in, channels_out)

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        return self.propagate(edge_index, x=self.lin(x)) + x.sum(-1, keepdim=True)

    def message(self, x_i: Tensor, x_j: Tensor) -> Tensor:
        return torch.tanh(x_j - 0.5 * x_i)


class TwoConvs(nn.Module):
    def __init__(self, make: Callable[[int, int], nn.Module], act: nn.Module | None = None) -> None:
        super().__init__()
        self.a, self.b = make(IN, HID), make(HID, OUT)
        self.act = nn.ReLU() if act is None else act

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        return self.b(self.act(self.a(x, edge_index)), edge_index)


def pyg_sequential() -> nn.Module:
    random.seed()  # PyG names a file after a random number, and tests in other processes begin with the same ones
    model: nn.Module = pyg.Sequential(
        "x, edge_index",
        [
            (pyg.GCNConv(IN, HID), "x, edge_index -> x"),
            nn.ReLU(),
            (pyg.GCNConv(HID, OUT), "x, edge_index -> x"),
        ],
    )
    return model


class Wrapped(nn.Module):
    """Another model inside, with something before or after."""

    def __init__(self, model: nn.Module, style: str) -> None:
        super().__init__()
        self.model, self.style = model, style

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        if self.style == "normalise":
            x = F.normalize(x)
        if self.style == "data":
            return self.model(Data(x=x, edge_index=edge_index))
        if self.style == "keywords":
            return self.model(x=x, edge_index=edge_index)
        return F.log_softmax(self.model(x, edge_index), dim=-1)


class TakesData(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = TwoConvs(pyg.GCNConv)

    def forward(self, data: Data) -> Any:
        return self.inner(data.x, data.edge_index)


class PredictThenPropagate(nn.Module):
    def __init__(self, mlp: nn.Module, propagate: nn.Module) -> None:
        super().__init__()
        self.propagate, self.mlp = propagate, mlp

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        return self.propagate(self.mlp(x), edge_index)


class GPRProp(MessagePassing):  # type: ignore[misc]
    """Learned weights over hops, self-loops added inside."""

    def __init__(self) -> None:
        super().__init__(aggr="add")
        self.temp = nn.Parameter(torch.rand(4))

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        edge_index, norm = pyg.conv.gcn_conv.gcn_norm(edge_index, None, x.size(0), dtype=x.dtype)
        out = self.temp[0] * x
        for weight in self.temp[1:]:
            x = self.propagate(edge_index, x=x, norm=norm)
            out = out + weight * x
        return out

    def message(self, x_j: Tensor, norm: Tensor) -> Tensor:
        return norm.view(-1, 1) * x_j


def mlp_sequential() -> nn.Module:
    return nn.Sequential(nn.Linear(IN, HID), nn.ReLU(), nn.Linear(HID, OUT))


def mlp_pyg() -> nn.Module:
    made: nn.Module = pyg.MLP([IN, HID, OUT], norm=None)
    return made


class Weighted(nn.Module):
    """A GCN called in one of several ways."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = pyg.GCNConv(IN, HID), pyg.GCNConv(HID, OUT)

    def both(self, x: Tensor, edge_index: Tensor, weight: Tensor | None) -> Any:
        return self.b(self.a(x, edge_index, weight).relu(), edge_index, weight)


class ByWeight(Weighted):
    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor) -> Any:
        return self.both(x, edge_index, edge_weight)


class ByOptionalWeight(Weighted):
    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Any:
        return self.both(x, edge_index, edge_weight)


class ByAttr(Weighted):
    def forward(self, x: Tensor, edge_index: Tensor, *, edge_attr: Tensor | None = None) -> Any:
        return self.both(x, edge_index, None if edge_attr is None else edge_attr.view(-1))


class ByData(Weighted):
    def forward(self, data: Data) -> Any:
        return self.both(data.x, data.edge_index, data.edge_weight)


class ByDataAndMore(Weighted):
    def forward(self, batch: Data, scale: float = 1.0) -> Any:
        return scale * self.both(batch.x, batch.edge_index, batch.edge_weight)


class Swapped(Weighted):
    def forward(self, edge_index: Tensor, x: Tensor, edge_weight: Tensor) -> Any:
        return self.both(x, edge_index, edge_weight)


class KeywordsOnly(Weighted):
    def forward(self, x: Tensor, *, edge_index: Tensor, edge_weight: Tensor) -> Any:
        return self.both(x, edge_index, edge_weight)


class OtherNames(Weighted):
    def forward(self, features: Tensor, adjacency: Tensor, edge_weight: Tensor) -> Any:
        return self.both(features, adjacency, edge_weight)


class GINE(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = pyg.GINEConv(nn.Linear(IN, HID), edge_dim=4)
        self.b = pyg.GINEConv(nn.Linear(HID, OUT), edge_dim=4)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Any:
        return self.b(self.a(x, edge_index, edge_attr).relu(), edge_index, edge_attr)


class Ignoring(nn.Module):
    """Accepts edge weights and does nothing with them."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(IN, HID), nn.Linear(HID, OUT)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Any:
        x = self.a(x).relu()
        return self.b(x + torch.zeros_like(x).index_add(0, edge_index[1], x[edge_index[0]]))


HANDWRITTEN: dict[str, Callable[[], nn.Module]] = {
    "own embed": OwnEmbed,
    "residual": Residual,
    "shared": Shared,
    "own convolution": lambda: TwoConvs(Custom),
    "sequential": pyg_sequential,
    "takes data": TakesData,
    "normalised rows": lambda: Wrapped(TwoConvs(pyg.GCNConv), "normalise"),
    "predict, then propagate": lambda: PredictThenPropagate(mlp_sequential(), pyg.APPNP(K=3, alpha=0.2)),
}
"""Models that somebody might have written, whose nodes do not look at all others."""
