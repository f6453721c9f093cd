"""Does a graph that was mended for one model help another?"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from graphmend.errors import require
from graphmend.graph.checks import check_graph
from graphmend.model import FrozenGNN
from graphmend.model.restore import private
from graphmend.outputs import read_mask
from graphmend.results.scores import score

__all__ = ["transfer"]


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
