"""The denoising loss of SLAPS, with an auto-encoder that is trained on the training graph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from graphmend.contracts import Backbone
from graphmend.engine.adjacency import Adjacency
from graphmend.engine.propagation import gcn_norm
from graphmend.errors import (
    rate_number,
    read_fields,
    real_number,
    require,
    seed_number,
    switch,
    whole_number,
    within,
)
from graphmend.graph.checks import check_graph
from graphmend.model.restore import plain, untouched_rng
from graphmend.surrogates.base import Surrogate, TrainedModule

__all__ = ["SLAPS", "AutoEncoder"]


class AutoEncoder(nn.Module):
    r"""Restores features by two convolutions, :math:`\hat A \, \mathrm{ReLU}(\hat A X W_1 + b_1) \, W_2 + b_2`."""

    def __init__(self, columns: int, hidden: int) -> None:
        super().__init__()
        self.encode = nn.Parameter(nn.init.xavier_uniform_(torch.empty(columns, hidden)))
        self.encode_bias = nn.Parameter(torch.zeros(hidden))
        self.decode = nn.Parameter(nn.init.xavier_uniform_(torch.empty(hidden, columns)))
        self.decode_bias = nn.Parameter(torch.zeros(columns))

    def forward(self, x: Tensor, noise: Tensor | None, edge_index: Tensor, edge_weight: Tensor | None) -> Tensor:
        """The features restored from ``x + noise``; the two are mapped separately, so that the engine can share ``x
        W``."""
        propagate = gcn_norm(Adjacency.of(edge_index, x.size(0)), edge_weight, x.dtype)
        h = x @ self.encode
        h = h if noise is None else h + noise @ self.encode
        h = (propagate(h) + self.encode_bias).relu()
        return propagate(h) @ self.decode + self.decode_bias


@dataclass(frozen=True, eq=False)
class SLAPS(Surrogate):
    r"""How badly an auto-encoder restores features with noise (Fatemi et al., "SLAPS", NeurIPS 2021,
    https://arxiv.org/abs/2102.05034).

    .. math:: \mathcal L = \frac{1}{|M|} \sum_{(i, k) \in M} \left(g(A, X + \epsilon_M)_{ik} - x_{ik}\right)^2

    with a random set :math:`M` of entries, drawn afresh at every evaluation, and :math:`\epsilon_M` standard normal
    noise there. The auto-encoder :math:`g` has learned on the training graph which features and edges go together, and
    is frozen. :meth:`fit` makes the loss; the model that is mended plays no part in it.

    Args:
        autoencoder: :math:`g`, from :meth:`fit`.
        mask_ratio: The probability with which an entry is in :math:`M`.
        denoise: ``False`` is the released code of GTrans, which gives :math:`g` the features without noise.

    Example:
        >>> import torch
        >>> from torch_geometric.data import Data
        >>> from graphmend.surrogates import SLAPS
        >>> from graphmend import GTrans
        >>> from graphmend.lab.backbones import GCN
        >>> train, test = (Data(x=torch.rand(20, 3), edge_index=torch.randint(20, (2, 60))) for _ in range(2))
        >>> GTrans(SLAPS.fit(train), edge_steps=0)(GCN(3, 8, 2), test).reason is None
        True
    """

    autoencoder: TrainedModule[AutoEncoder]
    mask_ratio: Annotated[float, within(above=0, high=1)] = 0.1
    denoise: bool = True

    def __post_init__(self) -> None:
        kind = type(self.autoencoder).__name__
        require(
            isinstance(self.autoencoder, TrainedModule),
            f"SLAPS needs an auto-encoder that has seen the training graph (got {kind}); use SLAPS.fit(train_data)",
        )
        read_fields(self)

    @classmethod
    def fit(
        cls,
        train_data: Data,
        *,
        hidden_channels: int = 32,
        epochs: int = 50,
        lr: float = 0.01,
        mask_ratio: Annotated[float, within(above=0, high=1)] = 0.1,
        denoise: bool = True,
        seed: int = 0,
    ) -> SLAPS:
        """Train the auto-encoder with the same loss on the training graph.

        The graph's own edge weights are not used, because the loss does not see those of a test graph either: there,
        the weight of an edge says to what degree it exists.

        Args:
            train_data: The graph the model was trained on; it is left as it was.
            hidden_channels: Width between the two convolutions.
            epochs: Steps of Adam.
            lr: Learning rate.
            mask_ratio: See :class:`SLAPS`.
            denoise: See :class:`SLAPS`.
            seed: Seed of the initial weights and the noise; the global random generators are restored afterwards.
        """
        check_graph(train_data)
        mask_ratio = real_number("mask_ratio", mask_ratio, above=0, high=1)
        hidden_channels, epochs = whole_number("hidden_channels", hidden_channels, 1), whole_number("epochs", epochs, 1)
        lr, seed, denoise = rate_number("lr", lr), seed_number("seed", seed), switch("denoise", denoise)
        data = plain(train_data)
        with untouched_rng(seed), torch.inference_mode(False), torch.enable_grad():
            net = AutoEncoder(data.x.size(1), hidden_channels).to(data.x.device, data.x.dtype)
            optimizer = torch.optim.Adam(net.parameters(), lr)
            generator = torch.Generator(device=data.x.device).manual_seed(seed)
            for _ in range(epochs):
                optimizer.zero_grad()
                loss = _error(net, data.x, data.edge_index, None, mask_ratio, denoise, generator)
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
        optimizer.zero_grad()
        return cls(TrainedModule(net), mask_ratio, denoise)

    def terms(self, model: Backbone, data: Data, generator: torch.Generator | None = None) -> dict[str, Tensor]:
        """``slaps``."""
        columns, own = data.x.size(1), self.autoencoder.module.encode.size(0)
        require(
            columns == own,
            f"the graph has {columns} feature columns but the graph of SLAPS.fit had {own}; "
            "fit it on the graph the model was trained on",
        )
        net, weight = self.autoencoder.like(data.x), data.get("edge_weight")
        return {"slaps": _error(net, data.x, data.edge_index, weight, self.mask_ratio, self.denoise, generator)}


def _error(
    net: AutoEncoder,
    x: Tensor,
    edge_index: Tensor,
    weight: Tensor | None,
    mask_ratio: float,
    denoise: bool,
    generator: torch.Generator | None,
) -> Tensor:
    mask = torch.rand(x.shape, generator=generator, device=x.device) < mask_ratio
    noise = torch.randn(x.shape, generator=generator, device=x.device).mul_(mask).to(x.dtype) if denoise else None
    squares = (net(x, noise, edge_index, weight) - x).square() * mask
    mean: Tensor = squares.sum() / mask.sum().clamp(min=1)
    return mean
