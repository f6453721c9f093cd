"""APPNP."""

from __future__ import annotations

from torch import Tensor

from graphmend.engine.propagation import Propagation, pagerank
from graphmend.lab.backbones.layers import PredictThenPropagate, keeps_config


class APPNP(PredictThenPropagate):
    r"""Predict then propagate (Gasteiger et al., ICLR 2019, https://arxiv.org/abs/1810.05997).

    :math:`X_{k+1} = (1 - \alpha) \hat A X_k + \alpha H` for ``hops`` steps from :math:`X_0 = H = \mathrm{MLP}(X)`.
    ``embed`` propagates the hidden representation in the same way.

    Example:
        >>> import torch
        >>> from graphmend.lab.backbones import APPNP
        >>> model = APPNP(3, 8, 2)
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
        self.hops, self.alpha = hops, alpha

    def diffuse(self, h: Tensor, propagate: Propagation) -> Tensor:
        """Personalised PageRank by power iteration."""
        return propagate.polynomial(h, pagerank(self.hops, self.alpha, h.device).to(h.dtype))
