"""Batches that a loader has sampled from a larger graph."""

from __future__ import annotations

from torch_geometric.data import Data

from graphmend.errors import require

__all__ = ["refuse_sampled"]


def refuse_sampled(data: Data) -> None:
    """Raise if ``data`` is a batch of PyG's ``NeighborLoader``, most nodes of which lack neighbours."""
    is_sampled = data.get("n_id") is not None and (
        data.get("input_id") is not None or data.get("batch_size") is not None
    )
    require(
        not is_sampled,
        "the graph is a batch of a NeighborLoader, in which most nodes lack some of their neighbours; "
        "give the whole graph, and load batches from result.data afterwards "
        "(del batch.n_id, if the sample is a graph of its own to you)",
    )
