"""What models say about a graph: where a surrogate loss points, and whether a mended graph helps another model."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from graphmend.contracts import Backbone
from graphmend.errors import one_of, require, seed_number
from graphmend.graph.checks import check_graph
from graphmend.graph.convert import with_edge_index
from graphmend.graph.edge_flips import EdgeFlips
from graphmend.graph.relaxed import RelaxedGraph
from graphmend.model import FrozenGNN
from graphmend.model.restore import private
from graphmend.outputs import cross_entropy, read_labels, read_mask
from graphmend.results.scores import score
from graphmend.surrogates import Surrogate, surrogate_of

__all__ = ["gradient_correlation", "transfer"]

OF = ("features", "structure", "both")


def gradient_correlation(
    model: nn.Module,
    data: Data,
    surrogate: Surrogate | str | Callable[[Backbone, Data], Tensor],
    y: Tensor,
    mask: Tensor | None = None,
    *,
    of: str = "features",
    embedding: str | None = None,
    seed: int = 0,
) -> float:
    r"""The cosine :math:`\rho` between the gradients of the test loss and of a surrogate loss for the same graph
    (GTrans, Theorem 1).

    A step down the surrogate is a step down the test loss, if the step is small, where :math:`\rho > 0`. The gradients
    are taken for the features, for the flips :math:`p` of existing edges at :math:`p = 0` (one for both directions of
    an undirected edge), or for both side by side. The test loss is the mean negative log-likelihood.

    Args:
        model: The trained model; it is left as it was.
        data: The graph at which gradients are taken, for example one that has been mended in part.
        surrogate: A surrogate, the name of one, or a function ``(model, data) -> loss``.
        y: True labels, one per node. This is an analysis: no method may see them.
        mask: The nodes whose labels count; all of them when ``None``.
        of: ``"features"``, ``"structure"`` or ``"both"``.
        embedding: Name of the module whose output is Z, see :class:`~graphmend.FrozenGNN`.
        seed: Seed of the views of the surrogate.

    Returns:
        The cosine, between -1 and 1; NaN if one of the gradients is zero.

    Example:
        >>> import torch
        >>> from torch_geometric.data import Data
        >>> from graphmend.lab.metrics import gradient_correlation
        >>> from graphmend.lab.backbones import GCN
        >>> data = Data(x=torch.rand(9, 3), edge_index=torch.randint(9, (2, 20)).unique(dim=1))
        >>> abs(gradient_correlation(GCN(3, 8, 2), data, "contrastive", torch.arange(9) % 2)) <= 1.0
        True
    """
    data = with_edge_index(data)
    check_graph(data)
    one_of("of", of, OF)
    seed, nodes = seed_number("seed", seed), data.x.size(0)
    counted = torch.ones(nodes, dtype=torch.bool) if mask is None else read_mask(mask, nodes)
    loss, device = surrogate_of(surrogate), data.x.device
    counted, labels = counted.to(device), read_labels(y, nodes, counted).to(device)
    with private(data) as data, FrozenGNN(model, data, embedding=embedding, seed=seed) as frozen:
        graph, variables = _variables(frozen, data, of)
        loss = loss.prepare(frozen, data, seed)
        generator = torch.Generator(device=device).manual_seed(seed)
        logits = frozen(graph.x, graph.edge_index, graph.get("edge_weight"))
        test = _gradient(cross_entropy(logits[counted], labels), variables)
        return _cosine(test, _gradient(loss(frozen, graph, generator), variables))


def _variables(frozen: FrozenGNN, data: Data, of: str) -> tuple[Data, list[Tensor]]:
    """The graph as a function of the variables that gradients are taken for."""
    flips = None
    if of != "features":
        frozen.require_edge_weights("of='features' still works")
        flips = EdgeFlips.of(data.edge_index, data.x.size(0), budget=0, dtype=data.x.dtype)
    relaxed = RelaxedGraph(data, flips, weighted=frozen.takes_edge_weights)
    variables = [] if of == "structure" else [relaxed.x.requires_grad_()]
    if flips is not None:
        variables.append(flips.p.requires_grad_())
    return relaxed.as_data(relaxed.x, relaxed.presence()), variables


def _gradient(loss: Tensor, variables: list[Tensor]) -> Tensor:
    if not loss.requires_grad:
        return torch.zeros(sum(variable.numel() for variable in variables), dtype=torch.float64)
    gradients = torch.autograd.grad(loss, variables, allow_unused=True, retain_graph=True)
    parts = [torch.zeros_like(v) if g is None else g for g, v in zip(gradients, variables, strict=True)]
    return torch.cat([part.reshape(-1) for part in parts]).double().cpu()


def _cosine(a: Tensor, b: Tensor) -> float:
    lengths = torch.linalg.vector_norm(a) * torch.linalg.vector_norm(b)
    return float((a @ b / lengths).clamp(-1.0, 1.0)) if float(lengths) > 0 else float("nan")


@torch.no_grad()
def transfer(
    models: Mapping[str, nn.Module],
    graphs: Mapping[str, Data],
    *,
    metric: str = "accuracy",
    mask: Tensor | None = None,
) -> dict[str, dict[str, float]]:
    """The score of every model on every graph (GTrans, cross-architecture transferability).

    Args:
        models: Trained models by name; they are left as they were.
        graphs: Versions of one test graph by name, with labels ``y``, such as ``result.data`` of each model's own
            mending, and the graph as it came.
        metric: See :func:`graphmend.lab.metrics.score`.
        mask: The nodes that are scored; all of them when ``None``.

    Returns:
        ``table[graph][model]``.

    Example:
        >>> import torch
        >>> from torch_geometric.data import Data
        >>> from graphmend.lab.metrics import transfer
        >>> from graphmend.lab.backbones import GCN, SAGE
        >>> data = Data(x=torch.rand(4, 3), edge_index=torch.tensor([[0, 1], [1, 2]]), y=torch.tensor([0, 1, 0, 1]))
        >>> table = transfer({"GCN": GCN(3, 8, 2), "SAGE": SAGE(3, 8, 2)}, {"as it came": data})
        >>> list(table["as it came"])
        ['GCN', 'SAGE']
    """
    require(len(models) > 0, "models is empty; give at least one by name")
    for name, data in graphs.items():
        check_graph(data)
        require(data.get("y") is not None, f"the graph {name!r} has no labels; set its y to score models on it")
    return {
        row: {column: _score(model, data, metric, mask) for column, model in models.items()}
        for row, data in graphs.items()
    }


def _score(model: nn.Module, data: Data, metric: str, mask: Tensor | None) -> float:
    chosen = None if mask is None else read_mask(mask, data.x.size(0))
    with private(data) as own, FrozenGNN(model, own) as frozen:
        return score(metric, frozen.predict(own), data.y, chosen)
