"""RobustGCN."""

from __future__ import annotations

import itertools

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from graphmend.engine.adjacency import Adjacency
from graphmend.engine.cache import cached
from graphmend.engine.neighbours import at_sources, at_targets, incoming_sum
from graphmend.engine.propagation import Propagation, at_least_single
from graphmend.lab.backbones.layers import batch_norms, keeps_config


class GaussianConvolution(nn.Module):
    r"""One layer on normal distributions with means :math:`M` and variances :math:`V`:

    .. math:: M' = \mathrm{ELU}(M W_M), \quad V' = \mathrm{ReLU}(V W_V), \quad \alpha = e^{-V'}, \quad
              M \leftarrow D^{-\frac12} A D^{-\frac12} (\alpha M'), \quad V \leftarrow D^{-1} A D^{-1} (\alpha^2 V').

    Attention :math:`\alpha` gives uncertain nodes less weight.
    """

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.mean = nn.Linear(in_channels, out_channels, bias=False)
        self.variance = nn.Linear(in_channels, out_channels, bias=False)
        for linear in (self.mean, self.variance):
            nn.init.xavier_uniform_(linear.weight)

    def forward(
        self, mean: Tensor, variance: Tensor, for_mean: Propagation, for_variance: Propagation
    ) -> tuple[Tensor, Tensor]:
        """Means and variances of the next layer."""
        variance, mean = F.relu(self.variance(variance)), F.elu(self.mean(mean))
        attention = torch.exp(-variance)
        return for_mean(mean * attention), for_variance(variance * attention.square())


class RobustGCN(nn.Module):
    r"""Robust GCN (Zhu et al., KDD 2019, https://doi.org/10.1145/3292500.3330851): nodes are normal distributions.

    Each layer is a :class:`GaussianConvolution`, with batch normalisation behind the hidden ones if asked for. In
    training the class scores are drawn from the last distribution, as :math:`M + \varepsilon \sqrt{V + 10^{-8}}` with
    :math:`\varepsilon \sim \mathcal N(0, 1)`. In eval mode they are its mean, so that the model is a function of its
    input. ``embed`` returns the last hidden means.

    Args:
        in_channels: Columns of the features.
        hidden_channels: Width of the hidden layers.
        out_channels: Number of classes.
        num_layers: Number of convolutions.
        batch_norm: Batch normalisation of the hidden means and variances.
        dropout: Dropout before every layer.
        self_loops: Every node is its own neighbour. The released GTrans code has no self-loops.
        sample: Draw class scores also in eval mode, as the released code does; they are then different in every call.

    Example:
        >>> import torch
        >>> from graphmend.lab.backbones import RobustGCN
        >>> model = RobustGCN(8, 16, 3).eval()
        >>> model(torch.rand(4, 8), torch.tensor([[0, 1, 2], [1, 2, 3]])).shape
        torch.Size([4, 3])
    """

    @keeps_config
    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        *,
        num_layers: int = 2,
        batch_norm: bool = False,
        dropout: float = 0.0,
        self_loops: bool = True,
        sample: bool = False,
    ) -> None:
        super().__init__()
        sizes = [in_channels, *[hidden_channels] * (num_layers - 1), out_channels]
        self.convs = nn.ModuleList(GaussianConvolution(a, b) for a, b in itertools.pairwise(sizes))
        self.mean_norms = batch_norms(num_layers - 1, hidden_channels, batch_norm)
        self.variance_norms = batch_norms(num_layers - 1, hidden_channels, batch_norm)
        self.dropout, self.self_loops, self.sample = dropout, self_loops, sample

    def embed(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        """The means before the last convolution."""
        return self._hidden(x, *self._propagations(x, edge_index, edge_weight))[0]

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        """Class scores."""
        propagations = self._propagations(x, edge_index, edge_weight)
        scores, variance = self._layer(-1, *self._hidden(x, *propagations), *propagations)
        if self.training or self.sample:
            scores = scores + torch.randn_like(scores) * (variance + 1e-8).sqrt()
        return scores

    def _hidden(self, x: Tensor, for_mean: Propagation, for_variance: Propagation) -> tuple[Tensor, Tensor]:
        mean = variance = x
        for k, (mean_norm, variance_norm) in enumerate(zip(self.mean_norms, self.variance_norms, strict=True)):
            mean, variance = self._layer(k, mean, variance, for_mean, for_variance)
            mean, variance = mean_norm(mean), variance_norm(variance)
        return mean, variance

    def _layer(self, k: int, mean: Tensor, variance: Tensor, *propagations: Propagation) -> tuple[Tensor, Tensor]:
        inputs = (F.dropout(x, self.dropout, self.training) for x in (mean, variance))
        out: tuple[Tensor, Tensor] = self.convs[k](*inputs, *propagations)
        return out

    def _propagations(
        self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None
    ) -> tuple[Propagation, Propagation]:
        """Of the means and of the variances; a node without neighbours receives nothing."""
        adjacency, dtype = Adjacency.of(edge_index, x.size(0)), at_least_single(x.dtype)

        def compute() -> tuple[Propagation, Propagation]:
            if edge_weight is None:
                values = torch.ones(edge_index.size(1), dtype=dtype, device=x.device)
            else:
                values = adjacency.order(edge_weight.to(dtype))
            if self.self_loops:
                values = values.masked_fill(adjacency.is_loop, 0.0)  # each node has its own, of weight 1
            degree = incoming_sum(adjacency, values) + float(self.self_loops)
            empty = degree == 0
            inverse = degree.masked_fill(empty, 1.0).reciprocal().masked_fill(empty, 0.0)
            scale = degree.masked_fill(empty, 1.0).rsqrt().masked_fill(empty, 0.0)

            def between(side: Tensor) -> Propagation:
                entries = values * at_targets(adjacency, side) * at_sources(adjacency, side)
                return Propagation(adjacency, entries, side.square() if self.self_loops else None)

            return between(scale), between(inverse)

        tensors = (adjacency.row,) if edge_weight is None else (adjacency.row, edge_weight)
        return cached(("gaussian", self.self_loops, dtype), tensors, compute)
