"""The contrastive loss of AD-GCL, with a view that has learned which edges to drop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from graphmend.contracts import Backbone
from graphmend.engine.ops import at_least_single
from graphmend.errors import check_fields, rate_number, real_number, require, whole_number
from graphmend.model.restore import untouched_rng
from graphmend.surrogates.base import Surrogate
from graphmend.surrogates.frozen_module import FrozenModule
from graphmend.surrogates.info_nce import info_nce
from graphmend.surrogates.view_learner import ViewLearner
from graphmend.transforms import with_edges

__all__ = ["ADGCL"]


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

    with :math:`\ell` from :func:`~graphmend.surrogates.info_nce.info_nce`, :math:`Z` the embedding of the graph and
    :math:`\hat Z` that of its view, in which every edge has the weight :math:`w_T \in (0, 1)` that the view learner
    :math:`T` draws for it; :math:`h` is a projection head.

    How the GTrans paper put AD-GCL into test-time transformation is not published. This is our reading: the encoder of
    AD-GCL is the frozen model, so the graph takes its place as the one who minimises. A loss has to be a pure function,
    so view learner and head do not go on learning while the graph does. They are trained first, on the given graph,
    with simultaneous steps up and down the objective; adapters do that through :meth:`prepare`. The graph's gradient
    includes the way in which its embeddings change what the view learner drops.

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
        >>> from graphmend import GTrans
        >>> from graphmend.lab.backbones import GCN
        >>> data = Data(x=torch.rand(20, 3), edge_index=torch.randint(20, (2, 60)))
        >>> GTrans(ADGCL(steps=5), edge_steps=0)(GCN(3, 8, 2), data).reason is None
        True
    """

    regularisation: float = 5.0
    temperature: float = 0.2
    batch_size: int = 1024
    hidden_channels: int = 64
    steps: int = 20
    lr: float = 1e-3
    networks: FrozenModule[_Networks] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        check_fields(self, real_number, "regularisation", low=0)
        check_fields(self, real_number, "temperature", above=0)
        check_fields(self, rate_number, "lr")
        check_fields(self, whole_number, "batch_size", low=2)
        check_fields(self, whole_number, "hidden_channels", low=1)
        check_fields(self, whole_number, "steps")

    def prepare(self, model: Backbone, data: Data, seed: int = 0) -> ADGCL:
        """This loss with view learner and head trained on a graph; itself, if they are there already.

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
        return replace(self, networks=FrozenModule(networks))

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
