"""Every number a rule of the gate may look at, and what every candidate would do: rules are then tried without a model.

For one graph, :func:`evidence` runs each mender whether or not the gate would, and notes all that the card and the model
say before and after. Labels are read by the caller only, for the score.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from graphmend.adapters.align import running_moments
from graphmend.adapters.alignment import alignment
from graphmend.adapters.base import Task
from graphmend.adapters.impute import abnormal_rows, outlying_rows, refilled
from graphmend.adapters.purify import Purify, excess_of, worst_edges
from graphmend.cards.moments import moments
from graphmend.cards.observation import probabilities
from graphmend.cards.rows import EMPTY_ROW, projected, row_statistics
from graphmend.cards.source_card import SourceCard
from graphmend.engine.linear_maps import LinearMaps
from graphmend.engine.report import Stopped
from graphmend.frozen import FrozenGNN
from graphmend.gate.case import Case, Look, backing, flipped
from graphmend.graph.edits import without_edges
from graphmend.graph.limits import Limits
from graphmend.results.history import History

__all__ = ["evidence"]

Numbers = dict[str, float]


@torch.no_grad()
def evidence(model: nn.Module, data: Data, card: SourceCard, seed: int = 0) -> tuple[Numbers, dict[str, Tensor]]:
    """The numbers by name, and the model's output for each candidate.

    Args:
        model: The frozen model.
        data: The graph, complete.
        card: The model's source card.
        seed: Seed of everything random.
    """
    with FrozenGNN(model, data, seed=seed) as frozen:
        generator = torch.Generator(device=data.x.device).manual_seed(seed)
        task = Task(model, data, Limits(), seed, generator, History(data.x.device, None, False), "auto", card)
        task.frozen = frozen
        return _collect(task, card.to(data.x.device, data.x.dtype))


def _collect(task: Task, card: SourceCard) -> tuple[Numbers, dict[str, Tensor]]:
    data = task.data
    case = Case(task, card)
    before = case.look(case.features())
    out: dict[str, Tensor] = {"leave": before.logits}
    rows = abnormal_rows(data.x, card)
    outlying = outlying_rows(data.x)
    empty = row_statistics(data.x)[:, 0] <= EMPTY_ROW
    numbers: Numbers = {
        "noise": case.noise,
        "rows noise": card.rows_noise_for(case.nodes),
        "rows shift": card.rows.distance(moments(projected(data.x))),
        "density": case.density,
        "nodes": case.nodes / card.nodes,
        "unseen": case.unseen_mass(),
        "abnormal": float(rows.double().mean()),
        "outlying": float(outlying.double().mean()),
        "empty": float(empty.double().mean()),
        "clarity": card.edge_clarity,
        **_of_look("", case, before),
    }
    start, x = before, data.x
    if bool(rows.any()) and float(rows.double().mean()) <= 0.5:
        x = refilled(data.x, data.edge_index, rows)
        start = case.look(x)
        out["rows"] = start.logits
        numbers |= {**_of_look("rows: ", case, start), "rows: rows shift": card.rows.distance(moments(projected(x)))}
    if bool(outlying.any()):
        out["blind rows"] = case.look(refilled(data.x, data.edge_index, outlying)).logits
    for name, base_x, base in (("align", data.x, before), ("rows align", x, start)):
        if name == "align" or start is not before:
            numbers |= _aligned(name, case, base_x, base, out)
    numbers |= _cut(case, before, out)
    _blind_alignment(case, out)
    return numbers, out


def _of_look(name: str, case: Case, look: Look) -> Numbers:
    logits = probabilities(look.logits, case.card.temperature)
    return {
        f"{name}shift": case.shift(look),
        f"{name}u first": look.first_mix.unexplained,
        f"{name}u z": look.z_mix.unexplained,
        f"{name}outside first": look.first_mix.outside,
        f"{name}outside z": look.z_mix.outside,
        f"{name}agreement": look.agreement,
        f"{name}explained": case.explained_by_classes(look),
        f"{name}prior": case.distance_to_prior(look),
        f"{name}homophily": case.homophily(look) / max(case.card.homophily, 1e-12),
        f"{name}confidence": float(logits.amax(1).mean()),
    }


def _aligned(name: str, case: Case, x: Tensor, base: Look, out: dict[str, Tensor]) -> Numbers:
    maps, weight = LinearMaps(x), case.frozen.first_map
    change = alignment(case.first_layer, maps, weight, case.card.first)
    whole = case.look(change.of(maps))
    out[name] = whole.logits
    out[f"half {name}"] = case.frozen(change.added_to(x, 0.5), case.data.edge_index)
    shares, opinion = base.shares.unsqueeze(0), None
    for _ in range(3):
        other = alignment(case.first_layer, maps, weight, case.card.expected(shares.mean(0)))
        opinion = case.frozen(other.of(maps), case.data.edge_index)
        shares = probabilities(opinion, case.card.temperature)
    assert opinion is not None
    out[f"class {name}"] = opinion
    moved = change.added_to(x)
    return {
        **_of_look(f"{name}: ", case, whole),
        f"{name}: flips": flipped(base.logits, whole.logits),
        f"{name}: backing": backing(base, whole),
        f"{name}: second opinion": float((shares.argmax(1) == whole.classes).double().mean()),
        f"{name}: rows shift": case.card.rows.distance(moments(projected(moved))),
        f"{name}: abnormal": float(abnormal_rows(moved, case.card).double().mean()),
    }


def _cut(case: Case, before: Look, out: dict[str, Tensor]) -> Numbers:
    excess = excess_of(case.task, case.card)
    numbers = {"excess": excess.share, "kept": excess.kept}
    removed = worst_edges(excess.fits, Purify().strength * excess.share, case.task)
    if removed.numel() == 0:
        return numbers
    keep = torch.ones(case.data.edge_index.size(1), dtype=torch.bool, device=removed.device)
    keep[removed] = False
    after = case.look(case.features(), without_edges(case.data, keep))
    out["purify"] = after.logits
    flips = before.classes != after.classes
    share, confidence = float(flips.double().mean()), before.probability.amax(1)
    confident = float((confidence[flips] > confidence.median()).double().mean()) if bool(flips.any()) else 0.0
    cut = removed.numel() / excess.fits.numel()
    return numbers | {
        "purify: flips": share,
        "purify: confident": confident,
        "purify: per cut": share / cut,
        "purify: cut": cut,
        "purify: backing": backing(before, after),
        **_of_look("purify: ", case, after),
    }


def _blind_alignment(case: Case, out: dict[str, Tensor]) -> None:
    try:
        target = running_moments(case.task)
    except Stopped:
        return
    maps = LinearMaps(case.data.x)
    change = alignment(case.first_layer, maps, case.frozen.first_map, target)
    out["half blind align"] = case.frozen(change.added_to(case.data.x, 0.5), case.data.edge_index)


def numbers_of(values: dict[str, Any]) -> Numbers:
    """Rounded for storing."""
    return {name: float(f"{value:.5g}") for name, value in values.items()}
