"""Trial runs that show whether edges can fade in a model: weight 1 must change nothing, weight 0 must remove an
edge."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from graphmend.graph.edits import reordered, without_edges
from graphmend.model.call import Caller
from graphmend.model.comparing import is_coarse, precision, slope
from graphmend.model.edge_weights import Weighting, own_weights, patched, patched_plainly
from graphmend.model.failures import first_line
from graphmend.model.restore import untouched_rng
from graphmend.model.scripted import is_scripted

__all__ = ["Outcome", "try_weighting", "why_no_weighting_can_work"]

_LOG = logging.getLogger(__name__)
_EXACT_GRADIENTS = (patched, patched_plainly)  # our own code, whose gradients are finite everywhere


FAINT = 1e-3  # the weight of an edge that should hardly count


class Outcome(NamedTuple):
    """What a trial of a weighting has shown.

    Args:
        why_not: Why edges cannot fade with it, as a part of a sentence about the model; ``None`` if they can.
        reacts_to_edges: Whether the model reacts to edges on this graph; otherwise the trial says nothing.
    """

    why_not: str | None
    reacts_to_edges: bool


@torch.no_grad()
def try_weighting(
    weighting: Weighting, model: nn.Module, caller: Caller, graph: Data, fresh: Callable[[Data], Data], seed: int
) -> Outcome:
    """Whether outputs and gradients are right, for edges in any order, since added edges come last.

    Every run begins with the same state of the random generators, so that a model that always drops draws the same
    nodes each time.

    Args:
        weighting: The weighting to try.
        model: The model, in eval mode.
        caller: How it is called, or how its ``embed`` is.
        graph: The graph to try it on.
        fresh: Makes a copy of a graph for the model to keep.
        seed: Seed of the edges that are dropped, and of all random numbers of the model.
    """
    generator = torch.Generator(device=graph.x.device).manual_seed(seed)
    order = torch.randperm(graph.edge_index.size(1), generator=generator, device=graph.x.device)
    data = reordered(graph, order)
    source, target = data.edge_index
    dropped = torch.rand(source.numel(), generator=generator, device=data.x.device) < 0.5
    dropped |= (source != target).cumsum(0) == 1  # the first edge, so that the smallest graph drops one
    keep = ~(dropped & (source != target))
    ones = torch.ones_like(keep, dtype=data.x.dtype)

    def plainly(part: Data) -> Tensor:
        with untouched_rng(seed):
            return caller(fresh(part))  # type: ignore[no-any-return]

    def weighted(part: Data, presence: Tensor) -> Tensor:
        with untouched_rng(seed):
            return weighting(model, caller, fresh(part), presence)  # type: ignore[no-any-return]

    try:
        whole, part = plainly(data), plainly(without_edges(data, keep))
        pairs = [(whole, weighted(data, ones)), (part, weighted(data, keep.to(ones.dtype)))]
        plain = slope(data, plainly)
        steep = slope(data, lambda graph: weighted(graph, ones))
        if weighting is own_weights:  # which removes edges of weight 0, so that only small weights are informative
            rest = keep | _first_of_each_target(data.edge_index, data.x.size(0))
            faint = torch.where(rest, 1.0, FAINT).to(ones.dtype)
            fades = plainly(without_edges(data, rest)), weighted(data, faint)
        finite = weighting in _EXACT_GRADIENTS or _has_finite_gradient(lambda p: weighted(data, p), keep.to(ones.dtype))
    except Exception as error:  # the model does not accept weights in this way
        _LOG.debug("%s does not work for %s: %s", weighting.__name__, type(model).__name__, error)
        return Outcome(f"it fails with edge weights: {first_line(error)}", reacts_to_edges=False)
    reacts = not torch.equal(whole, part)
    if weighting is own_weights and not _is_near(*fades, whole):
        return Outcome("an edge does not fade as its weight goes to 0", reacts)
    if not finite:
        return Outcome("its gradient for the weight of an edge is not finite", reacts)
    return Outcome(_difference(pairs, plain, steep, data.x), reacts)


def _difference(pairs: list[tuple[Tensor, Tensor]], plain: Tensor, steep: Tensor, x: Tensor) -> str | None:
    """How outputs and gradients with weights differ from those without, if they differ by more than rounding."""
    (whole, ones), (part, zeros) = pairs
    kind = precision(x)
    coarse, eps = is_coarse(kind), torch.finfo(kind).eps
    effect = (whole - part).abs().max()
    # small compared with the effect of the edges, and rounding compared with the output
    rounding = (8 if coarse else 100) * eps * whole.abs().max()
    tolerance = (1e-7 if kind == torch.float64 else 1e-3) * effect + rounding
    if not bool((whole - ones).abs().max() <= tolerance):
        return "an edge of weight 1 is something else to it than an edge without a weight"
    if not bool((part - zeros).abs().max() <= tolerance):
        return "it does not treat an edge of weight 0 as absent"
    if coarse and bool(effect > 0) and not bool(effect > 2 * rounding):
        return f"{kind} is too coarse to see what its edges do: use float32"
    # a lost path is off by far more; in half precision a ReLU may switch here and there
    limit = 0.3 if coarse else 1e-2
    if bool((plain - steep).abs().max() > limit * plain.abs().max()):
        return "its gradient for the features is lost on the way through edge weights"
    return None


def _first_of_each_target(edge_index: Tensor, nodes: int) -> Tensor:
    """One edge to every node that has any, as a mask: a normalised sum over faint edges alone is not faint."""
    target, places = edge_index[1], torch.arange(edge_index.size(1), device=edge_index.device)
    first = places.new_full((nodes,), edge_index.size(1)).scatter_reduce(0, target, places, "amin")
    return first[target] == places


def _is_near(without: Tensor, faint: Tensor, whole: Tensor) -> bool:
    effect = (whole - without).abs().max()
    return bool((without - faint).abs().max() <= 0.1 * effect + 8 * torch.finfo(whole.dtype).eps * whole.abs().max())


def _has_finite_gradient(run: Callable[[Tensor], Tensor], presence: Tensor) -> bool:
    """Whether gradients are finite even if all edges of a node are absent, whose degree a layer may divide by."""
    with torch.enable_grad():
        presence = presence.clone().requires_grad_()
        out = run(presence)
        if not out.requires_grad:
            return True
        gradient = torch.autograd.grad(out.float().square().sum(), presence, allow_unused=True)[0]
    return gradient is None or bool(gradient.isfinite().all())


@torch.no_grad()
def why_no_weighting_can_work(model: nn.Module, run: Callable[[], Tensor]) -> str | None:
    """What is wrong with a model as a whole, as a part of a sentence about it."""
    if is_scripted(model):
        return (
            "TorchScript hides its layers, and it has no edge_weight that does what edges do: "
            "pass the model it was made from"
        )
    if not torch.equal(run(), run()):
        return (
            "it gives different outputs on the same graph, as with dropout that is always on: "
            "drop in training only, F.dropout(x, training=self.training)"
        )
    return None
