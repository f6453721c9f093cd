"""GPR-GNN."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from graphmend.engine.propagation import Propagation, pagerank
from graphmend.lab.backbones.layers import PredictThenPropagate, keeps_config


class GPR(PredictThenPropagate):
    r"""Generalised PageRank network (Chien et al., ICLR 2021, https://arxiv.org/abs/2006.07988).

    :math:`Y = \sum_{k=0}^{K} \gamma_k \hat A^k\, \mathrm{MLP}(X)` with trained :math:`\gamma`, starting from
    :math:`\gamma_k = \alpha (1 - \alpha)^k` and :math:`\gamma_K = (1 - \alpha)^K`. As the linear maps come first,
    ``embed`` propagates the hidden representation with the same :math:`\gamma`.

    Example:
        >>> import torch
        >>> from graphmend.lab.backbones import GPR
        >>> model = GPR(3, 8, 2)
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
        alpha: float = 0.1,
        batch_norm: bool = False,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(in_channels, hidden_channels, out_channels, num_layers, batch_norm, dropout)
        self.gamma = nn.Parameter(pagerank(hops, alpha).float())

    def diffuse(self, h: Tensor, propagate: Propagation) -> Tensor:
        """The sum over hops."""
        if not (torch.is_grad_enabled() and self.gamma.requires_grad):
            return propagate.polynomial(h, self.gamma)
        out = self.gamma[0] * h
        for gamma in self.gamma[1:]:
            h = propagate(h)
            out = out + gamma * h
        return out
