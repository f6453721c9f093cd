"""The contracts on one screen. Anything that keeps one of them works with everything else.

An implementation needs no base class for them; :class:`graphmend.surrogates.Surrogate` and
:class:`graphmend.adapters.Adapter` exist because they save work. ``docs/extending.md`` has an example of each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from torch import Generator, Tensor
from torch_geometric.data import Data

if TYPE_CHECKING:
    from graphmend.adapters.case import Case
    from graphmend.results.proposal import Proposal

__all__ = ["Adapter", "Backbone", "Surrogate", "Transform", "View"]


class Backbone(Protocol):
    """A model with logits and an embedding, for which an edge of weight 0 does not exist.

    Example:
        >>> import torch
        >>> from graphmend.contracts import Backbone
        >>> class Mean(torch.nn.Module):
        ...     # A sum over neighbours, then a linear layer.
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.last = torch.nn.Linear(3, 2)
        ...     def embed(self, x, edge_index, edge_weight=None):
        ...         source, target = edge_index
        ...         weight = x.new_ones(source.numel()) if edge_weight is None else edge_weight
        ...         return torch.zeros_like(x).index_add(0, target, weight.unsqueeze(1) * x[source])
        ...     def forward(self, x, edge_index, edge_weight=None):
        ...         return self.last(self.embed(x, edge_index, edge_weight))
        >>> model: Backbone = Mean()
        >>> tuple(model.embed(torch.rand(4, 3), torch.tensor([[0, 1], [1, 2]])).shape)
        (4, 3)
    """

    def __call__(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None, /) -> Tensor:
        """Class scores, one row per node."""
        ...

    def embed(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None, /) -> Tensor:
        """Z, the second-last representation, one row per node."""
        ...


class Transform(Protocol):
    """Makes a graph from a graph; the input is left as it was.

    Example:
        >>> import torch
        >>> from torch_geometric.data import Data
        >>> from torch_geometric.transforms import ToUndirected
        >>> from graphmend.contracts import Transform
        >>> transform: Transform = ToUndirected()
        >>> transform(Data(x=torch.rand(3, 2), edge_index=torch.tensor([[0, 1], [1, 2]]))).num_edges
        4
    """

    def __call__(self, data: Data, /) -> Data:
        """Another graph."""
        ...


class View(Protocol):
    """A random augmentation that keeps the nodes in place and draws from the generator that is passed in.

    Example:
        >>> import torch
        >>> from torch_geometric.data import Data
        >>> from graphmend import GTrans, mend
        >>> from graphmend.contracts import View
        >>> from graphmend.lab.backbones import GCN
        >>> from graphmend.surrogates import Contrastive
        >>> class Noise:
        ...     # Features with a little noise.
        ...     def __call__(self, data, generator=None):
        ...         noise = torch.randn(data.x.shape, generator=generator)
        ...         return Data(x=data.x + 0.1 * noise, edge_index=data.edge_index, edge_weight=data.edge_weight)
        >>> view: View = Noise()
        >>> data = Data(x=torch.rand(20, 3), edge_index=torch.randint(20, (2, 60))).coalesce()
        >>> len(mend(GCN(3, 8, 2), data, GTrans(Contrastive(view), steps=3)).history)
        3
    """

    def __call__(self, data: Data, generator: Generator | None = None, /) -> Data:
        """An augmented copy."""
        ...


class Surrogate(Protocol):
    """A loss without test labels: a pure function of its arguments, random only through the generator.

    Example:
        >>> import torch
        >>> from torch_geometric.data import Data
        >>> from graphmend import GTrans, mend
        >>> from graphmend.contracts import Surrogate
        >>> from graphmend.lab.backbones import GCN
        >>> class Certain:
        ...     # Large logits; no base class is needed.
        ...     def terms(self, model, data, generator=None):
        ...         return {"certain": -model(data.x, data.edge_index, data.edge_weight).square().mean()}
        >>> loss: Surrogate = Certain()
        >>> data = Data(x=torch.rand(20, 3), edge_index=torch.randint(20, (2, 60))).coalesce()
        >>> history = mend(GCN(3, 8, 2), data, GTrans(loss, steps=5, edge_steps=0)).history
        >>> history[-1].loss < history[0].loss
        True
    """

    def terms(self, model: Backbone, data: Data, generator: Generator | None = None, /) -> dict[str, Tensor]:
        """The named parts whose sum is the loss."""
        ...


class Adapter(Protocol):
    """Makes a trained model and a test graph fit each other.

    Attributes say what it needs: ``changes_model = True`` (it gets a copy of the model to change), ``fills_missing =
    True`` (missing values are filled for it), ``embedding`` (the module whose output is Z), ``tasks`` (those of
    :data:`graphmend.outputs.TASKS` that it serves, such as ``("classes",)``).

    Example:
        >>> import torch
        >>> from torch_geometric.data import Data
        >>> from graphmend import mend
        >>> from graphmend.adapters import Proposal
        >>> from graphmend.contracts import Adapter
        >>> from graphmend.lab.backbones import GCN
        >>> class Halve:
        ...     # No base class is needed.
        ...     def propose(self, case):
        ...         return Proposal(x=case.data.x / 2)
        >>> adapter: Adapter = Halve()
        >>> data = Data(x=torch.ones(4, 3), edge_index=torch.tensor([[0, 1, 2], [1, 2, 3]]))
        >>> mend(GCN(3, 8, 2), data, adapter).data.x.unique()
        tensor([0.5000])
    """

    def propose(self, case: Case, /) -> Proposal:
        """What to change, within ``case.limits``; the case itself must not be changed."""
        ...
