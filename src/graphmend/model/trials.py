"""Trials on a few nodes of what makes a frozen model fast: stacking views, sharing features."""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch
from torch_geometric.data import Data

from graphmend.engine.trials import why_features_are_not_shared
from graphmend.model.comparing import is_close
from graphmend.model.failures import first_line
from graphmend.model.restore import untouched_rng

if TYPE_CHECKING:
    from graphmend.model.frozen import FrozenGNN

__all__ = ["stacks_views", "why_not_shared"]

_LOG = logging.getLogger(__name__)


@torch.no_grad()
def stacks_views(frozen: FrozenGNN, data: Data, seed: int) -> bool:
    """Whether views that go through the model together have the embeddings they have alone."""
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(data.x.size(0), generator=generator).to(data.x.device)
    factor = torch.rand(data.x.size(0), 1, generator=generator).to(data.x)  # so that sums over nodes differ
    views = []
    for x in (data.x, data.x[order] * factor):
        weight = torch.rand(data.edge_index.size(1), generator=generator).to(data.x)
        views.append(Data(x=x, edge_index=data.edge_index, edge_weight=weight))
    try:
        with untouched_rng(seed), frozen.on(data):
            apart = [frozen.embed(view.x, view.edge_index, view.edge_weight) for view in views]
            return all(map(is_close, apart, frozen.embed_stacked(views)))
    except Exception as error:
        _LOG.debug("views are not stacked: %s", first_line(error))
        return False


def why_not_shared(frozen: FrozenGNN, graphs: Iterable[Data], surrogate: Any, seed: int) -> str | None:
    """Why a loss cannot share the products of the features; ``None`` if it can on the first graph where it works."""
    reason = "it has not been tried"
    for data in graphs:
        graph = copy.copy(data)
        if frozen.takes_edge_weights:
            generator = torch.Generator().manual_seed(seed)
            graph.edge_weight = torch.rand(data.edge_index.size(1), generator=generator).to(data.x)
        try:
            with untouched_rng(seed), frozen.on(data):
                return why_features_are_not_shared(frozen, surrogate, graph, seed)
        except Exception as error:  # a loss for this very graph, or one that does not work at all
            reason = first_line(error)
    return reason
