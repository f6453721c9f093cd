"""Abnormal features: some nodes' features replaced by noise."""

from __future__ import annotations

import copy
import math

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from graphmend.errors import require

__all__ = ["FeatureNoise"]


class FeatureNoise:
    r"""Replace the features of a share of the nodes by :math:`\mathcal{N}(0, \sigma^2)` noise.

    Of the :math:`n` candidate nodes the first :math:`\lfloor \text{ratio} \cdot n \rfloor` of a seeded permutation are
    replaced, by a matrix drawn from the same NumPy generator, as in the abnormal-feature experiments of
    `GTrans <https://arxiv.org/abs/2210.03561>`_. The result marks them in a boolean ``abnormal``. The input is left
    as it was.

    Args:
        nodes: Boolean mask of the candidate nodes, or ``None`` for all nodes.
        ratio: Share of the candidates that is replaced, in [0, 1].
        scale: Standard deviation of the noise.
        seed: Seed of the permutation and of the noise; the global generators are not touched.

    Example:
        >>> data = Data(x=torch.zeros(10, 2), edge_index=torch.zeros(2, 0, dtype=torch.long))
        >>> int(FeatureNoise(ratio=0.35)(data).abnormal.sum())
        3
    """

    def __init__(self, nodes: Tensor | None = None, ratio: float = 0.3, scale: float = 1.0, seed: int = 0) -> None:
        require(0 <= ratio <= 1, f"ratio must be in [0, 1] (got {ratio})")
        require(
            math.isfinite(scale) and scale >= 0,
            f"scale must be finite and not negative (got {scale}); 1 is standard normal noise",
        )
        require(0 <= seed < 2**32, f"seed must be in 0..2**32 - 1 (got {seed})")
        require(
            nodes is None or (nodes.dtype == torch.bool and nodes.dim() == 1),
            "nodes must be a one-dimensional boolean mask; convert indices with torch_geometric.utils.index_to_mask",
        )
        self.nodes, self.ratio, self.scale, self.seed = nodes, ratio, scale, seed

    def __call__(self, data: Data) -> Data:
        """A copy of ``data`` with the noise in ``x`` and the marks in ``abnormal``."""
        x: Tensor = data.x
        size = x.size(0)
        if self.nodes is not None:
            fits = self.nodes.numel() == size
            require(fits, f"nodes must have one entry per node (got {self.nodes.numel()} for {size} nodes)")
        candidates = np.arange(size) if self.nodes is None else self.nodes.nonzero().view(-1).cpu().numpy()
        rng = np.random.RandomState(self.seed)
        count = math.floor(self.ratio * len(candidates) + 1e-9)  # 0.3 * 10 must give 3, whatever floats say
        chosen = torch.from_numpy(rng.permutation(candidates)[:count]).to(x.device)
        noise = torch.from_numpy(self.scale * rng.standard_normal((count, x.size(1)))).to(x)
        changed = copy.copy(data)
        changed.x = x.index_copy(0, chosen, noise)
        changed.abnormal = torch.zeros(size, dtype=torch.bool, device=x.device).index_fill(0, chosen, True)
        return changed

    def __repr__(self) -> str:
        return f"FeatureNoise(ratio={self.ratio}, scale={self.scale}, seed={self.seed})"
