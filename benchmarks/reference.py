"""GTrans the straightforward way, to compare with: PyG's edge lists, autograd, three embeds, a coalesce per change.

This is how the released code works, written anew: every embedding gathers an ``E x hidden`` message matrix and scatters
it, augmented graphs are new edge lists, the relaxed adjacency is concatenated, symmetrised and coalesced at every
structure step and for every sampled graph. Random views are drawn in the same order and from the same generator as
GraphMend's, so that both follow the same trajectory.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import GATv2Conv, GCNConv, GINConv, MessagePassing, SAGEConv
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.nn.models.basic_gnn import BasicGNN
from torch_geometric.utils import add_remaining_self_loops, coalesce, scatter

from graphmend.lab.backbones import GAT, GCN, GPR, SAGE

Edges = tuple[Tensor, Tensor]


class _Weighted(MessagePassing):
    """``sum_j w_ij x_j`` over an edge list."""

    def __init__(self) -> None:
        super().__init__(aggr="add", node_dim=0)

    def forward(self, x: Tensor, edge_index: Tensor, weight: Tensor) -> Tensor:
        out: Tensor = self.propagate(edge_index, x=x, weight=weight)
        return out

    def message(self, x_j: Tensor, weight: Tensor) -> Tensor:
        return weight.view(-1, *[1] * (x_j.dim() - 1)) * x_j if weight.dim() == 1 else weight.unsqueeze(-1) * x_j


class ReferenceGCN(nn.Module):
    """PyG's ``GCNConv``, batch norm, ReLU."""

    def __init__(self, model: GCN) -> None:
        super().__init__()
        self.norms, self.convs = model.norms, nn.ModuleList()
        for conv in list(model.convs)[:-1]:
            copy = GCNConv(conv.weight.size(0), conv.weight.size(1)).to(conv.weight.device, conv.weight.dtype)
            copy.lin.weight, copy.bias = nn.Parameter(conv.weight.detach().t().contiguous()), conv.bias
            self.convs.append(copy)

    def forward(self, x: Tensor, edges: Edges) -> Tensor:
        """Z."""
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = F.relu(norm(conv(x, *edges)))
        return x


class ReferenceSAGE(nn.Module):
    """Weighted mean over the neighbours after the linear map."""

    def __init__(self, model: SAGE) -> None:
        super().__init__()
        self.convs, self.norms, self.sum = nn.ModuleList(list(model.convs)[:-1]), model.norms, _Weighted()

    def forward(self, x: Tensor, edges: Edges) -> Tensor:
        """Z."""
        edge_index, weight = edges
        degree = scatter(weight, edge_index[1], dim_size=x.size(0))
        inverse = degree.masked_fill(degree == 0, 1.0).reciprocal().unsqueeze(-1)
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = F.relu(norm(inverse * self.sum(conv.neighbour(x), edge_index, weight) + conv.root(x)))
        return x


class ReferenceGPR(nn.Module):
    """Hidden layer, then ten hops over the normalised edge list."""

    def __init__(self, model: GPR) -> None:
        super().__init__()
        self.mlp, self.gamma, self.sum = model.mlp, model.gamma, _Weighted()

    def forward(self, x: Tensor, edges: Edges) -> Tensor:
        """Z."""
        edges = gcn_norm(*edges, num_nodes=x.size(0))
        h = self.mlp.hidden(x)
        out = self.gamma[0] * h
        for gamma in self.gamma[1:]:
            h = self.sum(h, *edges)
            out = out + gamma * h
        return out


class ReferenceGAT(nn.Module):
    """Attention over an edge list; a weight multiplies its edge inside the softmax."""

    def __init__(self, model: GAT) -> None:
        super().__init__()
        self.convs, self.norms, self.sum = nn.ModuleList(list(model.convs)[:-1]), model.norms, _Weighted()
        self.activation = model.activation

    def forward(self, x: Tensor, edges: Edges) -> Tensor:
        """Z."""
        edge_index, weight = add_remaining_self_loops(*edges, num_nodes=x.size(0))
        source, target = edge_index
        for conv, norm in zip(self.convs, self.norms, strict=True):
            h = (x @ conv.weight).view(x.size(0), conv.source.size(0), -1)
            score = (h * conv.source).sum(-1)[source] + (h * conv.target).sum(-1)[target]
            share = _softmax(F.leaky_relu(score, 0.2), weight, target, x.size(0))
            x = self.activation(norm(self.sum(h, edge_index, share).flatten(1) + conv.bias))
        return x


class ReferenceStock(nn.Module):
    """A stock PyG model: its own layers over edge lists, with a weight for every message where PyG has none."""

    def __init__(self, model: BasicGNN) -> None:
        super().__init__()
        self.model, self.sum = model, _Weighted()

    def forward(self, x: Tensor, edges: Edges) -> Tensor:
        """Z."""
        model = self.model
        for i, conv in enumerate(model.convs[:-1]):
            x = self._layer(conv, x, edges)
            if model.norms is not None:
                x = model.norms[i](x)
            x = model.act(x)
        return x

    def _layer(self, conv: MessagePassing, x: Tensor, edges: Edges) -> Tensor:
        edge_index, weight = edges
        if isinstance(conv, GCNConv):
            out: Tensor = conv(x, edge_index, weight)
        elif isinstance(conv, SAGEConv):
            degree = scatter(weight, edge_index[1], dim_size=x.size(0))
            mean = self.sum(x, edge_index, weight) / degree.masked_fill(degree == 0, 1.0).unsqueeze(-1)
            out = conv.lin_l(mean) + conv.lin_r(x)
        elif isinstance(conv, GINConv):
            out = conv.nn((1 + conv.eps) * x + self.sum(x, edge_index, weight))
        else:
            out = self._attention(conv, x, edges)
        return out

    def _attention(self, conv: MessagePassing, x: Tensor, edges: Edges) -> Tensor:
        edge_index, weight = add_remaining_self_loops(*edges, num_nodes=x.size(0))
        source, target = edge_index
        if isinstance(conv, GATv2Conv):
            h, own = (lin(x).view(x.size(0), conv.heads, -1) for lin in (conv.lin_l, conv.lin_r))
            score = (F.leaky_relu(h[source] + own[target], conv.negative_slope) * conv.att).sum(-1)
        else:
            h = conv.lin(x).view(x.size(0), conv.heads, -1)
            score = (h * conv.att_src).sum(-1)[source] + (h * conv.att_dst).sum(-1)[target]
            score = F.leaky_relu(score, conv.negative_slope)
        return self.sum(h, edge_index, _softmax(score, weight, target, x.size(0))).flatten(1) + conv.bias


def _softmax(score: Tensor, weight: Tensor, target: Tensor, nodes: int) -> Tensor:
    """Softmax over the edges of each target, in which a weight multiplies its edge."""
    top = scatter(score.detach(), target, dim_size=nodes, reduce="max")
    share = weight.unsqueeze(-1) * (score - top[target]).exp()
    return share / (scatter(share, target, dim_size=nodes) + 1e-16)[target]


REFERENCES = {GCN: ReferenceGCN, SAGE: ReferenceSAGE, GPR: ReferenceGPR, GAT: ReferenceGAT}


@dataclass
class Trace:
    """What happened: loss and time (from the start) of every step, the loss of every scored graph, and the best one."""

    losses: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)
    gradients: list[Tensor] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)
    total: float = 0.0
    x: Tensor | None = None
    edge_index: Tensor | None = None


class Reference:
    """One adaptation with ``edge_update="sign"``, the rule of the released code.

    Args:
        model: A GraphMend backbone or a stock PyG model, whose weights are used.
        x: Features.
        edge_index: An undirected graph without self-loops, coalesced.
        keep_gradients: Record the gradient of every step.
    """

    def __init__(self, model: nn.Module, x: Tensor, edge_index: Tensor, *, keep_gradients: bool = False) -> None:
        self.embed = REFERENCES.get(type(model), ReferenceStock)(model).eval().requires_grad_(False)
        self.x, self.edge_index = x, edge_index
        self.keep_gradients = keep_gradients

    def __call__(
        self,
        *,
        steps: int = 10,
        feature_steps: int = 4,
        lr_feature: float = 1e-3,
        lr_edge: float = 0.1,
        budget: float = 0.05,
        num_samples: int = 5,
        p_drop: float = 0.5,
        seed: int = 0,
    ) -> Trace:
        """Steps, then the discrete graphs."""
        trace, start = Trace(), time.perf_counter()
        generator = torch.Generator(device=self.x.device).manual_seed(seed)
        delta = torch.zeros_like(self.x, requires_grad=True)
        adam = torch.optim.Adam([delta], lr=lr_feature)
        pairs = self.edge_index[:, self.edge_index[0] < self.edge_index[1]]
        p = torch.zeros(pairs.size(1), dtype=self.x.dtype, device=self.x.device)
        allowed = int(budget * pairs.size(1) + 1e-9)
        edges = self._flipped(pairs, p)
        for t in range(steps):
            if t % (feature_steps + 1) < feature_steps:
                adam.zero_grad()
                loss = self._loss(self.x + delta, edges, generator, p_drop)
                loss.backward()
                assert delta.grad is not None
                gradient = delta.grad
                adam.step()
            else:
                p.requires_grad_(True)
                loss = self._loss((self.x + delta).detach(), self._flipped(pairs, p), generator, p_drop)
                gradient = torch.autograd.grad(loss, p)[0]
                p = _project(p.detach() - lr_edge * gradient / (gradient.abs() + 1e-8), allowed)
                edges = self._flipped(pairs, p)
            trace.losses.append(float(loss.detach()))
            trace.kinds.append("feature" if gradient is delta.grad else "edge")
            if self.keep_gradients:
                trace.gradients.append(gradient.clone())
            trace.seconds.append(time.perf_counter() - start)
        with torch.no_grad():
            for flips in self._discrete(p, allowed, num_samples, generator):
                views = torch.Generator(device=self.x.device).manual_seed(seed)
                edges = self._flipped(pairs, flips.to(p.dtype))
                trace.scores.append(float(self._loss(self.x + delta, edges, views, p_drop)))
                if trace.scores[-1] == min(trace.scores):
                    trace.x, trace.edge_index = self.x + delta, edges[0][:, edges[1] > 0]
        trace.total = time.perf_counter() - start
        return trace

    def _loss(self, x: Tensor, edges: Edges, generator: torch.Generator, p_drop: float) -> Tensor:
        edge_index, weight = edges
        keep = torch.rand(edge_index.size(1), generator=generator, device=x.device) >= p_drop
        order = torch.randperm(x.size(0), generator=generator, device=x.device)
        z = self.embed(x, edges)
        positive = self.embed(x, (edge_index[:, keep], weight[keep]))
        negative = self.embed(x[order], edges)
        return _distance(positive, z) - _distance(negative, z)

    def _flipped(self, pairs: Tensor, p: Tensor) -> Edges:
        """The adjacency with the changes added on both sides; what exceeds 1 is a removed edge."""
        both = torch.cat([self.edge_index, pairs, pairs.flip(0)], dim=1)
        ones = torch.ones(self.edge_index.size(1), dtype=p.dtype, device=p.device)
        edge_index, weight = coalesce(both, torch.cat([ones, p, p]), self.x.size(0))
        return edge_index, torch.where(weight >= 1, 2 - weight, weight)

    @staticmethod
    def _discrete(p: Tensor, budget: int, number: int, generator: torch.Generator) -> Iterator[Tensor]:
        yield torch.zeros_like(p, dtype=torch.bool)
        top = torch.zeros_like(p, dtype=torch.bool)
        top[p.topk(budget).indices] = True
        yield top & (p > 0)
        for _ in range(number):
            flips = torch.rand(p.numel(), generator=generator, device=p.device, dtype=p.dtype) < p
            drawn = flips.nonzero().view(-1)
            surplus = drawn.numel() - budget
            if surplus > 0:
                flips[drawn[torch.randperm(drawn.numel(), generator=generator, device=p.device)[:surplus]]] = False
            yield flips


def _distance(u: Tensor, v: Tensor) -> Tensor:
    u, v = (z / (z.norm(dim=1, keepdim=True) + 1e-15) for z in (u, v))
    return (1 - (u * v).sum(1)).mean()


def _project(p: Tensor, budget: int) -> Tensor:
    """Bisection, as the released code does it."""
    if float(p.clamp(0, 1).sum()) <= budget:
        return p.clamp(0, 1)
    low, high = float(p.min()) - 1, float(p.max())
    while high - low > 1e-7:
        middle = (low + high) / 2
        if float((p - middle).clamp(0, 1).sum()) > budget:
            low = middle
        else:
            high = middle
    return (p - (low + high) / 2).clamp(0, 1)
