"""Will it fit? Said before the work begins."""

from __future__ import annotations

import torch
from torch import Tensor

from graphmend.engine.memory import LARGE, room
from graphmend.errors import require


def check_memory(x: Tensor, num_edges: int, hidden: int, bytes_per_activation: int = 4) -> bool:
    """Raise if adapting a graph plainly cannot fit into the memory of the device that ``x`` is on.

    Counted are X' and Adam's two moments, three views' activations forwards and backwards, the compressed rows, and the
    values of their entries; block models were measured to take about as much. A GPU, which has all views at a time,
    takes a third more.

    Returns:
        Whether to keep memory between operations, see :mod:`graphmend.engine.memory`: blocks are large, and there is room.
    """
    nodes, columns = x.shape
    features = 3 * nodes * columns * x.element_size()
    activation = nodes * max(hidden, 1) * bytes_per_activation
    edges = num_edges * (5 * 4 + 7 * x.element_size())
    needed, available = features + 3 * 3 * activation + edges, available_memory(x.device)
    if x.device.type != "cpu":
        needed = needed * 4 // 3
    require(
        needed <= available,
        f"adapting {nodes} nodes x {columns} features and {num_edges} edges needs about {needed / 2**30:.1f} GiB, "
        f"but {available / 2**30:.1f} GiB are free on {x.device}; use a larger machine or a part of the graph",
    )
    large = max(activation, num_edges * x.element_size()) > LARGE
    return large and x.device.type == "cpu" and 1.4 * needed <= available


def available_memory(device: torch.device) -> int:
    """Free bytes on a device, on a GPU with what torch keeps for this process."""
    if device.type == "cuda":
        stats = torch.cuda.memory_stats_as_nested_dict(device)
        reserved, used = (int(stats[name]["all"]["current"]) for name in ("reserved_bytes", "allocated_bytes"))
        return int(torch.cuda.mem_get_info(device)[0]) + reserved - used
    return room()[0]
