"""How far a model looks, measured on paths whose far ends are cut off.

On a path, what lies more hops away than the model looks can be cut off without a change of the output at the other end.
Degrees count as well: a GCN of two layers looks at the edges into nodes two hops away, so three hops are needed. The
paths have rows and edge attributes of the graph, and further neighbours, so that attention and means have something to
choose from. There are several of them, since on a single one an activation may be zero.
"""

from __future__ import annotations

import copy
import logging
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from graphmend.graph.edits import edge_attribute_names
from graphmend.graph.shards import cut
from graphmend.model.call import Caller, Output
from graphmend.model.failures import first_line

__all__ = ["reach_of"]

_LOG = logging.getLogger(__name__)

PATHS = 8
LONGEST = 32  # hops that are looked for
LEAVES = 2  # further neighbours of each node of a path
STEADY = 3  # further hops that must change nothing
CLOSE = {torch.float64: 1e-11, torch.float32: 1e-6, torch.float16: 1e-3, torch.bfloat16: 1e-2}


@torch.no_grad()
def reach_of(
    model: nn.Module, graph: Data, symmetric: bool, seed: int, leave_out: frozenset[str], output: Output
) -> int | None:
    """How many hops of halo a model needs to compute the same on a shard; ``None`` if no number is enough.

    Args:
        model: The model in evaluation mode.
        graph: The graph that rows and edge attributes come from.
        symmetric: Whether its edges are there in both directions.
        seed: Which rows are drawn.
        leave_out: Parameters of the model that are not filled.
        output: Which part of its output counts.
    """
    paths = _paths(graph, symmetric, seed)
    for exact in (True, False):
        try:
            trial, sample = (copy.deepcopy(model).double(), _double(paths)) if exact else (model, paths)
            return _measured(Caller(trial, leave_out, output=output), sample)
        except Exception as error:  # not every model can be copied, or runs in double precision
            _LOG.debug("the reach is not measured%s: %s", " in double precision" if exact else "", first_line(error))
    return None


def _measured(caller: Caller, paths: Data) -> int | None:
    offsets = torch.searchsorted(paths.edge_index[1].contiguous(), torch.arange(paths.x.size(0) + 1))
    whole, steady = _scores(caller, paths, PATHS), 0
    for hops in range(LONGEST + STEADY):
        shard = next(cut(paths, offsets, [(0, PATHS)], hops))
        found = _scores(caller, shard.data, PATHS)
        tolerance = CLOSE.get(whole.dtype, 1e-6) * float(whole.abs().amax().clamp(min=1e-30))
        steady = steady + 1 if bool(((found - whole).abs() <= tolerance).all()) else 0
        if steady > STEADY:
            return hops - STEADY
    return None


def _scores(caller: Caller, data: Data, rows: int) -> Tensor:
    out: Any = caller(copy.copy(data))
    if not (isinstance(out, Tensor) and out.size(0) == data.x.size(0)):
        raise TypeError("the model gives no row per node")
    return out[:rows]


def _double(data: Data) -> Data:
    out = copy.copy(data)
    for name, value in data.to_dict().items():
        if isinstance(value, Tensor) and value.is_floating_point():
            out[name] = value.double()
    return out


def _paths(graph: Data, symmetric: bool, seed: int) -> Data:
    """Several paths side by side; node ``k`` of all of them together, then the leaves."""
    steps, generator = LONGEST + 2 * STEADY + 2, torch.Generator().manual_seed(seed)
    spine = torch.arange(steps * PATHS)
    source, target = spine[PATHS:], spine[:-PATHS]  # from each node to the one before it
    leaves = spine.numel() + torch.arange(LEAVES * spine.numel())
    edges = torch.stack([torch.cat([source, leaves]), torch.cat([target, spine.repeat(LEAVES)])])
    edges = torch.cat([edges, edges.flip(0)], dim=1) if symmetric else edges
    nodes = spine.numel() + leaves.numel()
    edges = edges[:, (edges[1] * nodes + edges[0]).argsort()]
    of_nodes = torch.randint(graph.x.size(0), (nodes,), generator=generator)
    of_edges = torch.randint(graph.edge_index.size(1), (edges.size(1),), generator=generator)
    out, names = Data(), set(edge_attribute_names(graph))
    for name, value in graph.to_dict().items():
        if name == "edge_index":
            out.edge_index = edges
        elif name in names:
            out[name] = value[of_edges]
        elif isinstance(value, Tensor) and value.dim() > 0 and value.size(0) == graph.x.size(0):
            out[name] = value[of_nodes]
        elif name != "num_nodes":
            out[name] = value
    out.x = out.x.nan_to_num(nan=0.0)
    return out
