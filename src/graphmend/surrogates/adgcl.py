"""The contrastive loss of AD-GCL, with a view that has learned which edges to drop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch_geometric.data import Data

from graphmend.contracts import Backbone
from graphmend.engine.autograd import apply
from graphmend.engine.ops import at_least_single
from graphmend.errors import at_least, rate_number, read_fields, require, within
from graphmend.model.restore import untouched_rng
from graphmend.surrogates.base import Surrogate, TrainedModule, unit_rows
from graphmend.surrogates.view_learner import ViewLearner
from graphmend.transforms import with_edges

__all__ = ["ADGCL", "info_nce"]


class _Networks(nn.Module):
    """The two opponents."""

    def __init__(self, in_channels: int, hidden_channels: int) -> None:
        super().__init__()
        self.learner = ViewLearner(in_channels, hidden_channels)
        self.head = nn.Sequential(nn.Linear(in_channels, in_channels), nn.ReLU(), nn.Linear(in_channels, in_channels))


@dataclass(frozen=True, eq=False)
class ADGCL(Surrogate):
    r"""InfoNCE between a graph and a view of it with adversarially dropped edges (Suresh et al., "Adversarial Graph
    Augmentation to Improve Graph Contrastive Learning", NeurIPS 2021, https://arxiv.org/abs/2106.05819).

    .. math:: \min_{G'} \ell\left(h(Z), h(\hat Z)\right), \qquad
              T, h = \arg \max_T \min_h \; \ell\left(h(Z), h(\hat Z)\right) - \lambda \, \overline{1 - w_T}

    with :math:`\ell` from :func:`info_nce`, :math:`Z` the embedding of the graph and
    :math:`\hat Z` that of its view, in which every edge has the weight :math:`w_T \in (0, 1)` that the view learner
    :math:`T` draws for it; :math:`h` is a projection head.

    How the GTrans paper used AD-GCL for test-time transformation is not published. In our reading, the encoder of
    AD-GCL is the frozen model, so the graph does the minimising in its place. A loss has to be a pure function, so view
    learner and head do not keep learning while the graph does. They are trained first, on the given graph, with
    simultaneous steps up and down the objective; adapters do that through :meth:`prepare`. The gradient for the graph
    includes how its embeddings change what the view learner drops.

    Args:
        regularisation: :math:`\lambda`, the price of dropping edges.
        temperature: Temperature of InfoNCE.
        batch_size: How many nodes are compared with each other; memory grows with its square.
        hidden_channels: Width of the view learner.
        steps: Steps of view learner and head before the graph is changed. Before the first one, an edge is as likely to
            be dropped as to be kept; at the default price, a view learner that takes many steps keeps nearly all edges.
        lr: Their learning rate.
        networks: View learner and head, from :meth:`prepare`.

    Example:
        >>> import torch
        >>> from torch_geometric.data import Data
        >>> from graphmend.surrogates import ADGCL
        >>> from graphmend import GTrans
        >>> from graphmend.lab.backbones import GCN
        >>> data = Data(x=torch.rand(20, 3), edge_index=torch.randint(20, (2, 60)))
        >>> GTrans(ADGCL(steps=5), edge_steps=0)(GCN(3, 8, 2), data).reason is None
        True
    """

    regularisation: Annotated[float, within(0)] = 5.0
    temperature: Annotated[float, within(above=0)] = 0.2
    batch_size: Annotated[int, at_least(2)] = 1024
    hidden_channels: Annotated[int, at_least(1)] = 64
    steps: int = 20
    lr: Annotated[float, rate_number] = 1e-3
    networks: TrainedModule[_Networks] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        read_fields(self)

    def prepare(self, model: Backbone, data: Data, seed: int = 0) -> ADGCL:
        """This loss with view learner and head trained on a graph; the loss itself, if it has them already.

        Args:
            model: The frozen model, a :class:`~graphmend.FrozenGNN` or a backbone in evaluation mode.
            data: The graph.
            seed: Seed of the initial weights and the views.
        """
        if self.networks is not None:
            return self
        require_weights: Callable[[str], None] | None = getattr(model, "require_edge_weights", None)
        if require_weights is not None:
            require_weights("ADGCL drops edges in part and cannot work; use the surrogate 'contrastive'")
        with torch.no_grad():
            z = _single(model.embed(data.x, data.edge_index))
        with untouched_rng(seed):
            networks = _Networks(z.size(1), self.hidden_channels).to(z.device, z.dtype)
        generator = torch.Generator(device=z.device).manual_seed(seed)
        learner, head = list(networks.learner.parameters()), list(networks.head.parameters())
        optimizer = torch.optim.Adam([*learner, *head], self.lr)
        with torch.enable_grad():
            for _ in range(self.steps):
                optimizer.zero_grad()
                keep = networks.learner.draw(z, data.edge_index, generator)
                other = _single(model.embed(data.x, data.edge_index, keep.to(data.x.dtype)))
                loss = self._loss(networks, z, other, generator)
                dropped = 1 - keep.mean()
                price = self.regularisation * dropped
                torch.autograd.backward(price - loss, inputs=learner, retain_graph=True)
                torch.autograd.backward(loss, inputs=head)
                optimizer.step()
        optimizer.zero_grad()
        return replace(self, networks=TrainedModule(networks))

    def terms(self, model: Backbone, data: Data, generator: torch.Generator | None = None) -> dict[str, Tensor]:
        """``info_nce``."""
        require(
            self.networks is not None,
            "this ADGCL has no view learner yet; adapters train one by themselves, elsewhere use "
            "ADGCL().prepare(model, data)",
        )
        assert self.networks is not None
        z = _single(model.embed(data.x, data.edge_index, data.get("edge_weight")))
        networks = self.networks.like(z)
        keep = networks.learner.draw(z, data.edge_index, generator)
        view = with_edges(data, keep)
        other = _single(model.embed(view.x, view.edge_index, view.edge_weight))
        return {"info_nce": self._loss(networks, z, other, generator)}

    def _loss(self, networks: _Networks, z: Tensor, other: Tensor, generator: torch.Generator | None) -> Tensor:
        return info_nce(networks.head(z), networks.head(other), self.temperature, self.batch_size, generator)


def _single(z: Tensor) -> Tensor:
    return z.to(at_least_single(z.dtype))


def info_nce(
    u: Tensor, v: Tensor, temperature: float, batch_size: int, generator: torch.Generator | None = None
) -> Tensor:
    r"""Symmetric InfoNCE whose denominator leaves out the positive pair.

    .. math:: \ell = \frac{1}{2N} \sum_i \left( \log \sum_{j \ne i} e^{s_{ij}} + \log \sum_{j \ne i} e^{s_{ji}} \right)
              - \frac1N \sum_i s_{ii}, \qquad s_{ij} = \cos(u_i, v_j) / t

    Nodes are compared within random batches of nearly equal size, drawn afresh at every call; a graph with no more
    nodes than ``batch_size`` is one batch. There is never more than one batch's matrix of similarities in memory: its
    gradient is computed together with the loss.

    Args:
        u: One row per node.
        v: Another row per node.
        temperature: t.
        batch_size: How many nodes are compared with each other at most, and no fewer than two.
        generator: Source of the batches.
    """
    nodes = u.size(0)
    require(nodes >= 2, f"InfoNCE compares nodes with each other, but the graph has {nodes}; use another surrogate")
    number = min(-(-nodes // batch_size), nodes // 2)  # no node is alone in a batch
    order = torch.randperm(nodes, generator=generator, device=u.device) if number > 1 else None
    loss: Tensor = apply(_InfoNCE, unit_rows(u), unit_rows(v), temperature, number, order)
    return loss


class _InfoNCE(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, u: Tensor, v: Tensor, temperature: float, number: int, order: Tensor | None) -> Tensor:
        nodes, is_differentiable = u.size(0), any(ctx.needs_input_grad[:2])
        rows_of = torch.arange(nodes, device=u.device) if order is None else order
        total = u.new_zeros(())
        grads = [torch.zeros_like(u), torch.zeros_like(v)] if is_differentiable else []
        for rows in rows_of.tensor_split(number):
            mine, theirs = u.index_select(0, rows), v.index_select(0, rows)
            similarity = (mine @ theirs.t()).div_(temperature)
            positive = similarity.diagonal().clone()
            similarity.fill_diagonal_(-torch.inf)
            by_row, by_column = similarity.logsumexp(1, keepdim=True), similarity.logsumexp(0, keepdim=True)
            total += (0.5 * (by_row.view(-1) + by_column.view(-1)) - positive).sum()
            if is_differentiable:
                slope = (similarity - by_row).exp_().add_(similarity.sub_(by_column).exp_()).mul_(0.5)
                slope.fill_diagonal_(-1.0).div_(temperature * nodes)
                grads[0].index_copy_(0, rows, slope @ theirs)
                grads[1].index_copy_(0, rows, slope.t() @ mine)
        ctx.save_for_backward(*grads)
        return total / nodes

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        for_u, for_v = ctx.saved_tensors
        return grad * for_u, grad * for_v, None, None, None
