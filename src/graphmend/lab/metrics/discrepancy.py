"""How far apart two sets of representations are."""

from __future__ import annotations

import torch
from torch import Tensor

from graphmend.errors import require, whole_number

__all__ = ["central_moment_discrepancy", "cmd"]


def central_moment_discrepancy(u: Tensor, v: Tensor, moments: int = 5) -> Tensor:
    r"""Central moment discrepancy (Zellinger et al., ICLR 2017), in the version of SR-GNN (Zhu et al., NeurIPS 2021,
    https://arxiv.org/abs/2108.01099), which does not divide by the range of the values.

    .. math:: \mathrm{CMD}(U, V) = \lVert \bar u - \bar v \rVert
              + \sum_{k=2}^{K} \left\lVert \overline{(U - \bar u)^k} - \overline{(V - \bar v)^k} \right\rVert

    with powers entry by entry, means over rows and Euclidean norms. It can be differentiated, as a loss must be;
    :func:`cmd` is the same as a number.

    Args:
        u: One row per node, such as embeddings of the training graph.
        v: One row per node of another graph, as wide as ``u`` and on the same device.
        moments: K, the highest moment.

    Example:
        >>> central_moment_discrepancy(torch.zeros(3, 4), torch.ones(5, 4))
        tensor(2.)
    """
    shapes = f"{tuple(u.shape)} and {tuple(v.shape)}"
    fits = u.dim() == v.dim() == 2 and u.size(1) == v.size(1)
    require(fits, f"cmd compares two matrices with the same number of columns (got {shapes})")
    require(u.size(0) > 0 and v.size(0) > 0, f"cmd needs at least one row in each matrix (got {shapes})")
    moments = whole_number("moments", moments, 1)
    mean_u, mean_v = u.mean(0), v.mean(0)
    distance: Tensor = torch.linalg.vector_norm(mean_u - mean_v)
    power_u, power_v = u, v = u - mean_u, v - mean_v
    for _ in range(moments - 1):
        power_u, power_v = power_u * u, power_v * v
        distance = distance + torch.linalg.vector_norm(power_u.mean(0) - power_v.mean(0))
    return distance


@torch.no_grad()
def cmd(u: Tensor, v: Tensor, moments: int = 5) -> float:
    """:func:`central_moment_discrepancy` as a number, computed in double precision.

    Example:
        >>> cmd(torch.zeros(3, 4), torch.ones(5, 4))
        2.0
    """
    return float(central_moment_discrepancy(u.double(), v.double().to(u.device), moments))
