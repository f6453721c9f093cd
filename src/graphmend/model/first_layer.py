"""Finding the first layer of any model: its output before any activation, and its linear maps.

A shift of the features shows there first, in the model's own units, and it is the last place from which a linear map
leads back to the features.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch_geometric.nn import BatchNorm as GraphBatchNorm
from torch_geometric.nn import MessagePassing

from graphmend.engine.linear_maps import LinearMaps
from graphmend.engine.low_rank import Leaves
from graphmend.errors import GraphMendError, require
from graphmend.model.embedding import Call, Tap
from graphmend.model.failures import first_line
from graphmend.model.scripted import is_scripted, require_visible_layers

__all__ = ["FirstLayer", "find_first_layer", "response_of_mean"]

_ROUNDING = 1e-5  # times the largest number, up to which two gradients count as equal
_GOLDEN = 0.618034  # its multiples modulo 1 have no pattern in which errors could cancel
LEAST_RESPONSE = 1e-4  # times an output's largest number: other features must move the output at least that far
_LOG = logging.getLogger(__name__)
_NORMS = (_BatchNorm, GraphBatchNorm)


@dataclass(frozen=True)
class FirstLayer:
    """Where the first pre-activation is taken from.

    Args:
        tap: Takes it from a running model.
        norm: Name of the batch normalisation behind it, if there is one.
    """

    tap: Tap
    norm: str | None = None


class _Output(NamedTuple):
    call: Call
    module: nn.Module
    input: Any
    value: Tensor


def find_first_layer(model: nn.Module, run: Callable[[Tensor, bool], object], x: Tensor) -> FirstLayer:
    """The last output that is affine in the features, or the convolution it is a part of.

    Runs with pairs of feature matrices, and with their means, show which outputs are affine in the features; a run with
    half of the edges shows which of them react to edges. The last affine output that reacts, and comes before a batch
    normalisation (which is affine, too, once training is over), is the first layer of a GCN, of GraphSAGE and of GIN.
    If none reacts, the first layer is the convolution around the last affine output (GAT), or that output itself (a
    linear map before everything else). A convolution without affine outputs or modules inside is taken as it is. In a
    model that reads no edges, every output counts as one that reacts.

    Args:
        model: The model.
        run: Runs it on given features, with all edges or with half of them.
        x: Features to try it with.
    """
    other = x.roll(1, dims=0) * 0.7 + x.flip(0) * 0.6
    first, bare = (_outputs(model, partial(run, x, with_all_edges), x) for with_all_edges in (True, False))
    # other features may be such that the model cannot take them: negative ones, or numbers it looks up in a table
    second, middle, third, between = (
        _outputs_if_any(model, partial(run, values, True), x)
        for values in (other, (x + other) / 2, -other, (x - other) / 2)
    )
    trials = [bare, *(seen for seen in (second, middle, third, between) if seen)]
    calls = [call for call in first if all(call in seen for seen in trials)]

    def is_affine(call: Call) -> bool:
        value = first[call].value
        if not second or not middle or not _is_middle(value, second[call].value, middle[call].value):
            return False
        if not _is_moved(value, second[call].value):
            return False
        if not third or not between:
            return True
        # negative features reveal a ReLU that is active at every node, unless the model cannot take them
        opposite, half = third[call].value, between[call].value
        return not bool(opposite.isfinite().all()) or _is_middle(value, opposite, half)

    def follows(call: Call) -> bool:
        return not second or not torch.equal(first[call].value, second[call].value)

    def varies(call: Call) -> bool:
        return _varies(first[call].value) or (x.size(0) == 1 and follows(call))

    following = [c for c in calls if follows(c)]
    reacting = [c for c in following if not torch.equal(first[c].value, bare[c].value)] or following
    affine = _before_batch_norm([c for c in following if is_affine(c) and varies(c)], first)
    chosen = _chosen(affine, reacting, first)
    if chosen is None:
        require_visible_layers(model, "its first layer")
        raise GraphMendError(_nothing_found(model, x))
    norms = [c for c in first if isinstance(first[c].module, _BatchNorm) and _same(first[c].input, first[chosen].value)]
    return FirstLayer(Tap(chosen, output=True), norms[0].name if norms else None)


def _chosen(affine: list[Call], reacting: list[Call], outputs: dict[Call, _Output]) -> Call | None:
    both = [c for c in affine if c in reacting]
    if both:
        return both[-1]
    layers = [c for c in reacting if not _holds_layers(outputs[c].module)]
    if affine:
        around = [c for c in layers if affine[-1].name.startswith(f"{c.name}.") and c.turn == affine[-1].turn]
        return around[0] if around else affine[-1]
    weighted = [c for c in layers if any(True for _ in outputs[c].module.parameters())]
    return weighted[0] if weighted else None


def _holds_layers(module: nn.Module) -> bool:
    """Whether a module holds convolutions but is not one itself, such as a whole model inside a wrapper."""
    return not isinstance(module, MessagePassing) and any(isinstance(m, MessagePassing) for m in module.modules())


def _nothing_found(model: nn.Module, x: Tensor) -> str:
    name = type(model).__name__
    if not _varies(x):
        return (
            f"the node features do not vary: all {x.size(0)} rows of x that were tried are equal, so that the first "
            f"layer of {name} cannot be found; check x, or give a graph whose nodes differ"
        )
    return (
        f"no layer of {name} was found that takes the node features; "
        "make its weights a module of their own, such as an nn.Linear"
    )


def _before_batch_norm(affine: list[Call], outputs: dict[Call, _Output]) -> list[Call]:
    """The affine outputs up to the first batch normalisation that something affine comes before."""
    before: list[Call] = []
    for call in affine:
        if not isinstance(outputs[call].module, _NORMS):
            before.append(call)
        elif before:
            break
    return before


def response_of_mean(first_layer: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    r"""How the mean of the first layer follows a shift of all feature rows, ``(columns, width)``.

    For a layer :math:`\sum_k P_k X W_k + b` this is :math:`\sum_k \kappa_k W_k`, where :math:`\kappa_k` is the mean row
    sum of :math:`P_k`; for any other layer it is the derivative at the features.
    """
    leaves = Leaves(LinearMaps(x))
    with torch.enable_grad():
        mean = first_layer(leaves.features).mean(0)
        if leaves.products and mean.requires_grad:
            rows = _responses(mean, leaves.products)
            return (rows.to(leaves.weights.dtype) @ leaves.weights).t().contiguous()
        shift = torch.zeros_like(x[:1]).requires_grad_()
        mean = first_layer(x + shift).mean(0)
        wanted = mean if mean.requires_grad else ()
        straight = [torch.autograd.grad(m, shift, retain_graph=True, allow_unused=True)[0] for m in wanted]
    complete = len(straight) > 0 and all(row is not None for row in straight)
    require(complete, "the first layer of the model has no gradient for the features; does it run under no_grad?")
    return torch.cat([row for row in straight if row is not None]).t().contiguous()


def _responses(mean: Tensor, products: list[Tensor]) -> Tensor:
    """How each unit follows a shift of all rows of some products, ``(units, columns of all products)``.

    Most layers sum each column of a product over neighbours separately, so that unit i depends on column i alone. Then
    a single gradient of all units together holds all numbers, and a second one in another direction shows whether that
    is the case; otherwise each unit needs a gradient of its own.
    """
    units = mean.numel()
    if all(product.size(1) == units for product in products):
        direction = 1 + (torch.arange(units, dtype=mean.dtype, device=mean.device) * _GOLDEN) % 1
        together, turned = (_response(mean @ d, products).view(-1, units) for d in (torch.ones_like(mean), direction))
        if (turned - direction * together).abs().amax() <= _ROUNDING * together.abs().amax():
            return torch.cat([block.diag() for block in together], dim=1)
    return torch.stack([_response(unit, products) for unit in mean])


def _response(value: Tensor, products: list[Tensor]) -> Tensor:
    """How a number follows a shift of all rows of some products: its gradients, summed over the nodes."""
    gradients = torch.autograd.grad(value, products, retain_graph=True, allow_unused=True)
    return torch.cat(
        [torch.zeros_like(p[0]) if g is None else g.sum(0) for g, p in zip(gradients, products, strict=True)]
    )


def _outputs(model: nn.Module, run: Callable[[], object], x: Tensor) -> dict[Call, _Output]:
    """The outputs of all modules with one row of numbers per node, in the order in which the modules finish."""
    layers = {name: module for name, module in model.named_modules() if name or isinstance(module, MessagePassing)}
    names = {module: name for name, module in layers.items() if not is_scripted(module)}
    turns: Counter[nn.Module] = Counter()
    outputs: dict[Call, _Output] = {}

    def before(module: nn.Module, args: tuple[Any, ...]) -> None:
        turns[module] += 1

    def after(module: nn.Module, args: tuple[Any, ...], out: Any) -> None:
        if isinstance(out, Tensor) and out.dim() >= 2 and out.size(0) == x.size(0) and out.is_floating_point():
            call = Call(names[module], turns[module])
            outputs[call] = _Output(call, module, args[0] if args else None, out.detach().flatten(1).clone())

    handles = [module.register_forward_pre_hook(before) for module in names]
    handles += [module.register_forward_hook(after) for module in names]
    try:
        with torch.no_grad():
            run()
    finally:
        for handle in handles:
            handle.remove()
    return outputs


def _outputs_if_any(model: nn.Module, run: Callable[[], object], x: Tensor) -> dict[Call, _Output]:
    """The same; empty if the model cannot take these features."""
    try:
        return _outputs(model, run, x)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:
        _LOG.debug("a trial with other features was left out: %s", first_line(error))
        return {}


def _is_middle(first: Tensor, second: Tensor, middle: Tensor) -> bool:
    size = max(float(first.abs().max()), float(second.abs().max()))
    error = float((0.5 * (first + second) - middle).abs().max())
    return error <= max(200 * torch.finfo(first.dtype).eps, 1e-12) * max(size, 1e-12)


def _is_moved(first: Tensor, second: Tensor) -> bool:
    """Whether other features make a difference beyond rounding; a constant output is affine, too."""
    return float((first - second).abs().max()) > LEAST_RESPONSE * float(first.abs().max())


def _varies(value: Tensor) -> bool:
    return value.size(0) > 1 and not torch.equal(value, value[:1].expand_as(value))


def _same(given: Any, value: Tensor) -> bool:
    return isinstance(given, Tensor) and given.flatten(1).shape == value.shape and torch.equal(given.flatten(1), value)
