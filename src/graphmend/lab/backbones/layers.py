"""What the backbones share: their stored arguments and checks, batch norms, a convolution and a perceptron."""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from graphmend.engine.adjacency import Adjacency
from graphmend.engine.cache import cached
from graphmend.engine.propagation import Propagation, gcn_norm
from graphmend.errors import READERS, GraphMendError, real_number, whole_number

P = ParamSpec("P")
Self = TypeVar("Self", bound=nn.Module)


def keeps_config(init: Callable[Concatenate[Self, P], None]) -> Callable[Concatenate[Self, P], None]:
    """Check a backbone's arguments and keep them as ``self.config``, so that a checkpoint can build it again."""
    signature = inspect.signature(init)

    @functools.wraps(init)
    def wrapped(self: Self, /, *args: P.args, **kwargs: P.kwargs) -> None:
        bound = signature.bind(self, *args, **kwargs)
        bound.apply_defaults()
        config = checked_config(dict(list(bound.arguments.items())[1:]), signature)
        object.__setattr__(self, "config", config)
        bound.arguments.update(config)
        try:
            init(*bound.args, **bound.kwargs)
        except (RuntimeError, MemoryError) as error:  # on a CPU, torch has no type for it
            if isinstance(error, RuntimeError) and "DefaultCPUAllocator" not in str(error):
                raise
            sizes = {name: value for name, value in config.items() if name.endswith("channels")}
            raise GraphMendError(
                f"a network of this size does not fit into the memory ({sizes}); take a smaller one"
            ) from error

    return wrapped


def checked_config(config: dict[str, Any], signature: inspect.Signature) -> dict[str, Any]:
    """The arguments as plain numbers, after a check of their types and of sizes that no network can have."""
    for name, value in config.items():
        if name.endswith("channels") or name in ("hops", "heads", "k", "walks", "walk_length"):
            whole_number(name, value, 1)
    whole_number("num_layers", config["num_layers"], 2, hint="there must be a hidden layer to embed with")
    real_number("dropout", config["dropout"], low=0, below=1)
    real_number("alpha", config.get("alpha", 0.0), low=0, high=1)
    return {name: READERS.get(_annotation(signature, name), _as_it_is)(name, value) for name, value in config.items()}


def _annotation(signature: inspect.Signature, name: str) -> str:
    annotation = signature.parameters[name].annotation
    return str(getattr(annotation, "__name__", annotation))


def _as_it_is(name: str, value: Any) -> Any:
    return value


def batch_norms(count: int, channels: int, batch_norm: bool) -> nn.ModuleList:
    """One batch normalisation per hidden layer, or identities."""
    return nn.ModuleList(nn.BatchNorm1d(channels) if batch_norm else nn.Identity() for _ in range(count))


def is_fixed(conv: nn.Module, norm: nn.Module) -> bool:
    """Whether a convolution and its normalisation are constants without hooks, so that they may be fused."""
    modules = (*conv.modules(), norm)
    if any(m.training or m._forward_hooks or m._forward_pre_hooks for m in modules):
        return False
    if type(norm) is nn.BatchNorm1d:
        if norm.running_mean is None or norm.running_var is None or not norm.affine:
            return False
    elif type(norm) is not nn.Identity:
        return False
    return not (torch.is_grad_enabled() and any(p.requires_grad for m in (conv, norm) for p in m.parameters()))


def affine(norm: nn.Module, bias: Tensor | None = None) -> tuple[Tensor | None, Tensor | None]:
    """Scale and shift of a batch normalisation in evaluation mode, or of none, that follows a bias."""
    if not isinstance(norm, nn.BatchNorm1d):
        return None, bias
    mean, var, weight, shift = norm.running_mean, norm.running_var, norm.weight, norm.bias
    assert mean is not None and var is not None

    def compute() -> tuple[Tensor, Tensor]:
        scale = weight * (var + norm.eps).rsqrt()
        return scale, shift + scale * (-mean if bias is None else bias - mean)

    return cached("affine", (mean, var, weight, shift, *(() if bias is None else (bias,))), compute)


class GraphConvolution(nn.Module):
    r"""One GCN layer :math:`\hat A X W + b` (Kipf & Welling, 2017) on an already normalised adjacency."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(nn.init.xavier_uniform_(torch.empty(in_channels, out_channels)))
        self.bias = nn.Parameter(torch.zeros(out_channels))

    def forward(self, x: Tensor, propagate: Propagation) -> Tensor:
        """Transform, then propagate: the product is as narrow as the layer."""
        return propagate(x @ self.weight) + self.bias

    def hidden(self, x: Tensor, propagate: Propagation, norm: nn.Module) -> Tensor:
        """The layer with normalisation and ReLU, fused into one where nothing is trained and there are no hooks."""
        if not is_fixed(self, norm):
            return F.relu(norm(self(x, propagate)))
        scale, shift = affine(norm, self.bias)
        return propagate(x @ self.weight, scale=scale, shift=shift, relu=True)


class MLP(nn.Module):
    """Dropout before every linear map; batch normalisation (if any) and ReLU after every hidden one."""

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        num_layers: int,
        batch_norm: bool,
        dropout: float,
    ) -> None:
        super().__init__()
        sizes = [in_channels, *[hidden_channels] * (num_layers - 1), out_channels]
        self.linears = nn.ModuleList(nn.Linear(a, b) for a, b in itertools.pairwise(sizes))
        self.norms = batch_norms(num_layers - 1, hidden_channels, batch_norm)
        self.dropout = dropout

    def hidden(self, x: Tensor) -> Tensor:
        """The representation before the last linear map."""
        for linear, norm in zip(self.linears, self.norms, strict=False):
            x = F.relu(norm(linear(F.dropout(x, self.dropout, self.training))))
        return x

    def forward(self, x: Tensor) -> Tensor:
        """Class scores."""
        out: Tensor = self.linears[-1](F.dropout(self.hidden(x), self.dropout, self.training))
        return out


class PredictThenPropagate(nn.Module):
    """A perceptron followed by a propagation without weights of its own.

    Class scores are the propagated output of the perceptron; the embedding is its hidden representation, propagated
    in the same way, because the hidden representation alone knows nothing of the edges.
    """

    config: dict[str, Any]

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        num_layers: int,
        batch_norm: bool,
        dropout: float,
    ) -> None:
        super().__init__()
        self.mlp = MLP(in_channels, hidden_channels, out_channels, num_layers, batch_norm, dropout)

    def diffuse(self, h: Tensor, propagate: Propagation) -> Tensor:
        """Spread ``h`` over the graph; each backbone has its own way."""
        raise TypeError(f"{type(self).__name__} does not say how it propagates")

    def embed(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        """The hidden representation, propagated."""
        return self.diffuse(self.mlp.hidden(x), gcn_norm(Adjacency.of(edge_index, x.size(0)), edge_weight, x.dtype))

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        """Class scores."""
        return self.diffuse(self.mlp(x), gcn_norm(Adjacency.of(edge_index, x.size(0)), edge_weight, x.dtype))
