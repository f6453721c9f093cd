"""AirGNN."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from graphmend.engine.propagation import Propagation
from graphmend.errors import require
from graphmend.lab.backbones.layers import PredictThenPropagate, keeps_config


class AirGNN(PredictThenPropagate):
    r"""Adaptive residual network (Liu et al., NeurIPS 2021, "Graph Neural Networks with Adaptive Residual").

    From :math:`X = H = \mathrm{MLP}(X)`, for ``hops`` steps and every row :math:`i`,

    .. math:: y = \hat A x, \quad x_i \leftarrow h_i + \max\!\left(0,\; 1 - \frac{t}{\lVert y_i - h_i \rVert}\right)
              (y_i - h_i), \quad t = \frac{\lambda}{2 (1 - \lambda)}.

    ``lam`` (:math:`\lambda`) may be changed after training; 0 is plain propagation.

    Example:
        >>> import torch
        >>> from graphmend.lab.backbones import AirGNN
        >>> model = AirGNN(3, 8, 2)
        >>> model(torch.rand(4, 3), torch.tensor([[0, 1, 2], [1, 2, 3]])).shape
        torch.Size([4, 2])
    """

    @keeps_config
    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        *,
        num_layers: int = 2,
        hops: int = 10,
        lam: float = 0.5,
        batch_norm: bool = False,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(in_channels, hidden_channels, out_channels, num_layers, batch_norm, dropout)
        self.hops, self.lam = hops, lam

    @property
    def lam(self) -> float:
        """Weight of the residual, in [0, 1)."""
        return float(self.config["lam"])

    @lam.setter
    def lam(self, value: float) -> None:
        require(0.0 <= value < 1.0, f"lam must be in [0, 1) (got {value})")
        self.config["lam"] = value

    def diffuse(self, h: Tensor, propagate: Propagation) -> Tensor:
        """Propagation with a residual that adapts to each node."""
        threshold = self.lam / (2 * (1 - self.lam))
        x = h
        for _ in range(self.hops):
            change = propagate(x) - h
            length = torch.linalg.vector_norm(change, dim=-1, keepdim=True).clamp(min=1e-12)
            x = h + F.relu(1 - threshold / length) * change
        return x
