"""Whether a model predicts for each node or for each graph of a batch."""

from __future__ import annotations

import torch
from torch import nn
from torch_geometric.data import Batch

from graphmend.errors import GraphMendError
from graphmend.graph.batches import Graphs, put_together
from graphmend.model.call import Output
from graphmend.model.frozen import FrozenGNN

__all__ = ["has_row_per_graph"]


@torch.no_grad()
def has_row_per_graph(model: nn.Module, batch: Batch, output: Output = None) -> bool:
    """Whether a model gives one row per graph, seen on the first two graphs of a batch; not if it cannot run on them.

    Args:
        model: Any PyG module; it is left as it was.
        batch: A batch of its graphs.
        output: Which part of what the model returns has the scores.
    """
    try:
        few = put_together(list(Graphs(batch))[:2], batch)
        with FrozenGNN(model, few, output=output) as frozen:
            rows = frozen.predict(few).size(0)
    except GraphMendError:  # mending the graphs will say what is wrong
        return False
    return bool(rows == few.num_graphs != few.num_nodes)
