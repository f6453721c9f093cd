"""The facts about a result, gathered from it; the model runs a few times for them and is left as it was."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from graphmend.files.provenance import provenance
from graphmend.outputs import Task, predictions, probabilities
from graphmend.results.comparison import Comparison
from graphmend.results.measures import PERCENT
from graphmend.results.plane import Groups, groups_of, plane, sampled
from graphmend.results.report.facts import (
    BINS,
    EDGES,
    Change,
    Facts,
    Gauge,
    Map,
    Move,
    NodeFacts,
    Predictions,
    Question,
)
from graphmend.results.report.neighbourhood import Around, around
from graphmend.results.report.scores import Score, scores_of
from graphmend.results.verdict import LEFT_ALONE, Verdict

if TYPE_CHECKING:
    from graphmend.results.adaptation import Adaptation
    from graphmend.results.patch import Patch

__all__ = [
    "all_scores",
    "cannot_know",
    "change_of",
    "facts_of",
    "gauges_of",
    "made_by",
    "output_note",
    "predictions_of",
]

POINTS = 2000  # nodes on the map
NODES = 8  # nodes that are examined one by one
NEIGHBOURS = 16  # of such a node that are drawn
DRAWN = 12  # of any other node on the map
LISTED = 8  # rows of a table
QUESTIONS = 10
COLUMNS_OF = 50_000  # changed rows from which changes of columns are counted
SECONDS = 0.8  # of processor time for explanations


def facts_of(result: Adaptation, y: Any = None, mask: Any = None, title: str = "") -> Facts:
    """The facts about a result; those that do not apply to the model's task are left out.

    Args:
        result: The result.
        y: True classes, labels or numbers, as :meth:`graphmend.Adaptation.compare` takes them.
        mask: The nodes that are scored.
        title: What the graph is called.
    """
    before, after = result.graph_before(), result.data
    compared = result.compare(y, mask) if y is not None or result.task.kind is not None else None
    task = result.task if compared is None else Task.of(compared.task)
    groups = groups_of(result)
    moved = result.patch.feature_change(after.x).cpu()
    chosen = _chosen(result, task, groups, moved)
    start = time.process_time()
    drawn = _map(result, chosen, groups, before, moved)
    run = (time.process_time() - start) / 2  # it has run the model twice
    near = around(before, result.patch, chosen, groups, moved, NEIGHBOURS)
    nodes = [_node(result, task, node, before, after, groups, own) for node, own in zip(chosen, near, strict=True)]
    return Facts(
        title=title,
        graph=f"{result.patch.nodes:,} nodes and {result.patch.edges:,} edge entries",
        decision=result.decision,
        sentence=result.sentence,
        next_step="" if result.verdict is None else result.verdict.next_step,
        gauges=gauges_of(result.verdict),
        changes=(change_of(result.patch, before, after, groups, moved, task, result.values_filled),),
        rows=task.rows,
        output=output_note(task, compared),
        predictions=predictions_of(result.before, result.logits) if task.kind == "classes" else None,
        scores=()
        if compared is None or y is None
        else all_scores(task, compared, result.before, result.logits, y, mask),
        helped=None if compared is None else compared.helped,
        harmed=None if compared is None else compared.harmed,
        scored=0 if compared is None else compared.nodes,
        map=drawn,
        nodes=tuple(_explained(result, nodes, run) if task.has_node_classes else nodes),
        questions=_questions(result, task),
        cannot_know=cannot_know(result.verdict),
        made=made_by(
            result.verdict,
            result.seconds,
            result.patch.before,
            str(result.logits.device),
            seed=result.require_rerun().seed,
        ),
        losses=tuple((step.index, step.loss) for step in result.history),
    )


def output_note(task: Task, compared: Comparison | None) -> str:
    """What the model's output is and how it moved, if it does not have classes."""
    if compared is None:
        return f"What the model's rows mean is not known ({task.doubt}), so nothing is said about its predictions"
    return "" if task.kind == "classes" else str(compared).splitlines()[0]


def all_scores(
    task: Task, compared: Comparison | None, before: Tensor, after: Tensor, y: Any, mask: Any
) -> tuple[Score, ...]:
    """The measures before and after: of classes with intervals, of everything else as they were compared."""
    if compared is None or y is None:
        return ()
    if task.kind == "classes":
        return scores_of(before, after, y, mask)
    both = [(name, old, compared.after[name]) for name, old in compared.before.items() if name in compared.after]
    return tuple(Score(name, old, new, new - old, is_share=name in PERCENT) for name, old, new in both)


def gauges_of(verdict: Verdict | None) -> tuple[Gauge, ...]:
    """What a gate looked for, in order."""
    evidence = () if verdict is None else verdict.evidence
    return tuple(Gauge(*item.cells, item.holds, item.above, round(item.place, 4)) for item in evidence)


def predictions_of(before: Tensor, after: Tensor) -> Predictions:
    """How the predictions of an output moved to those of another."""
    sure = [probabilities(logits.detach().double()).cpu() for logits in (before, after)]
    old, new = (predictions(logits).cpu() for logits in (before, after))
    classes, bins = sure[0].size(1), []
    confidence = [p.max(1).values.nan_to_num(nan=0.0) for p in sure]
    for p in confidence:
        places = (p * BINS).long().clamp(0, BINS - 1)
        bins.append(tuple(torch.bincount(places, minlength=BINS).tolist()))
    moves = torch.bincount((old * classes + new)[old != new], minlength=classes * classes)
    order = moves.argsort(descending=True, stable=True)[: int((moves > 0).sum())].tolist()
    return Predictions(
        nodes=old.numel(),
        changed=int((old != new).sum()),
        moves=tuple(Move(place // classes, place % classes, int(moves[place])) for place in order),
        before=tuple(torch.bincount(old, minlength=classes).tolist()),
        after=tuple(torch.bincount(new, minlength=classes).tolist()),
        sure_before=bins[0],
        sure_after=bins[1],
        mean_before=float(confidence[0].mean()) if old.numel() else 0.0,
        mean_after=float(confidence[1].mean()) if old.numel() else 0.0,
    )


def change_of(
    patch: Patch,
    before: Data,
    after: Data,
    groups: Groups | None,
    moved: Tensor,
    task: Task,
    values_filled: int = 0,
    name: str = "",
) -> Change:
    """What a patch changed about a graph.

    Args:
        patch: The patch.
        before: The graph as it was, with missing values filled.
        after: The mended graph.
        groups: Predicted classes of its nodes, if they have some.
        moved: How far the features of each node moved.
        task: What is predicted.
        values_filled: How many missing values were filled.
        name: The type of its nodes.
    """
    rows = patch.rows.cpu()
    some = rows if len(rows) <= COLUMNS_OF else rows[torch.from_numpy(sampled(len(rows), COLUMNS_OF))]
    distance = (after.x[some].float() - before.x[some].float()).nan_to_num(nan=0.0).abs().cpu()
    total = distance.sum(0)
    columns = total.argsort(descending=True)[:LISTED].tolist() if len(some) else []
    width = after.x.size(1)
    counts: list[tuple[str, int, int | None]] = [
        ("feature rows changed", patch.num_rows, patch.nodes),
        ("feature columns changed", int((total > 0).sum()), width),
        ("missing values filled", values_filled, patch.nodes * width),
        ("edge entries removed", patch.num_removed, patch.edges),
        ("edge entries added", patch.num_added, None),
        ("edge weights changed", patch.num_weights, patch.edges),
    ]
    known = groups if task.has_node_classes else None
    top = moved.argsort(descending=True)[:LISTED].tolist()
    return Change(
        name=name,
        counts=tuple(counts),
        pairs=() if known is None else _pairs(patch, torch.from_numpy(known.before)),
        largest=tuple((v, float(moved[v]), *_classes(known, v)) for v in top if float(moved[v]) > 0),
        columns=tuple(
            (c, float((distance[:, c] > 0).double().mean()), float(total[c]) / len(some))
            for c in columns
            if float(total[c]) > 0
        ),
        columns_of=len(some),
    )


def _classes(groups: Groups | None, node: int) -> tuple[int | None, int | None]:
    return (None, None) if groups is None else (int(groups.before[node]), int(groups.after[node]))


def _pairs(patch: Patch, old: Tensor) -> tuple[tuple[int, int, int, int], ...]:
    """Edges removed and added by the classes of their ends, most first."""
    classes = int(old.max()) + 1 if old.numel() else 1
    counts = [
        torch.bincount(old[source.cpu()] * classes + old[target.cpu()], minlength=classes * classes)
        for source, target in (patch.removed_edges(), patch.added_edges())
    ]
    both = counts[0] + counts[1]
    order = both.argsort(descending=True, stable=True)[: min(2 * LISTED, int((both > 0).sum()))].tolist()
    return tuple((p // classes, p % classes, int(counts[0][p]), int(counts[1][p])) for p in order)


def _chosen(result: Adaptation, task: Task, groups: Groups, moved: Tensor) -> list[int]:
    """The nodes to examine: those about which the model changed its mind most, then those that moved farthest."""
    order: list[int] = []
    if task.has_node_classes:
        first, second = (probabilities(logits.detach().double()).cpu() for logits in (result.before, result.logits))
        gain = (second - first).gather(1, torch.from_numpy(groups.after)[:, None]).view(-1).nan_to_num(nan=0.0)
        flipped = torch.from_numpy(groups.changed).nonzero().view(-1)
        order += flipped[gain[flipped].argsort(descending=True)[:NODES]].tolist()
    order += [node for node in moved.argsort(descending=True)[:NODES].tolist() if float(moved[node]) > 0]
    return list(dict.fromkeys(order))[:NODES]


def _node(
    result: Adaptation, task: Task, node: int, before: Data, after: Data, groups: Groups, near: Around
) -> NodeFacts:
    change = (after.x[node].double() - before.x[node].double()).nan_to_num(nan=0.0)
    columns = change.abs().argsort(descending=True)[:LISTED].tolist()
    facts = NodeFacts(
        node=node,
        columns=tuple((c, float(before.x[node, c]), float(after.x[node, c])) for c in columns if float(change[c]) != 0),
        neighbours=near.some,
        more=near.total - len(near.some),
    )
    if not task.has_node_classes:
        return facts
    sure = [float(probabilities(z[node : node + 1].detach().double()).max()) for z in (result.before, result.logits)]
    return replace(
        facts,
        before=int(groups.before[node]),
        after=int(groups.after[node]),
        sure_before=sure[0],
        sure_after=sure[1],
    )


def _explained(result: Adaptation, nodes: list[NodeFacts], run: float) -> list[NodeFacts]:
    """The nodes, with explanations for as many as there is time for.

    Args:
        result: The result.
        nodes: The nodes.
        run: How long one run of the model takes.
    """
    if result.model is not result.require_rerun().model:  # the model was changed, and no part of a graph
        return nodes
    out, left = [], SECONDS
    for node in nodes:
        parts = 2 + sum(other.moved + (other.edge != "kept") for other in node.neighbours)
        if parts * run > left:
            out.append(node)
            continue
        start = time.process_time()
        why = result.explain(node.node)
        left -= time.process_time() - start
        effects = tuple((part.label, part.effect) for part in why.parts)
        out.append(replace(node, parts=effects, margin=why.margin))
    return out


def _map(result: Adaptation, chosen: list[int], groups: Groups, before: Data, moved: Tensor) -> Map:
    total, has_classes = len(groups.before), result.task.kind == "classes"
    drawn = sampled(total, POINTS)
    nodes = np.union1d(drawn, np.array(chosen, dtype=np.int64))
    points = plane(result, nodes)
    both = np.concatenate([points.before, points.after])
    low, high = both.min(0), both.max(0)
    scale = 1000.0 / max(float((high - low).max()), 1e-12)  # one unit for both directions
    middle = (low + high) / 2

    def places(values: Any) -> tuple[int, ...]:
        scaled = 500.0 + (values - middle) * scale
        return tuple(np.rint(np.nan_to_num(scaled)).astype(int).reshape(-1).tolist())

    sure: tuple[int, ...] = ()
    if has_classes and len(result.logits) == total:
        both_sure = [
            probabilities(z.detach()[torch.from_numpy(nodes)].double()).max(1).values
            for z in (result.before, result.logits)
        ]
        sure = tuple((100 * torch.stack(both_sure, 1)).nan_to_num(nan=0.0).round().int().view(-1).tolist())
    near = around(before, result.patch, nodes.tolist(), groups, moved, DRAWN)
    return Map(
        total=total,
        drawn=len(drawn),
        share=points.share,
        nodes=tuple(nodes.tolist()),
        before=places(points.before),
        after=places(points.after),
        old=tuple(groups.before[nodes].tolist()),
        new=tuple(groups.after[nodes].tolist()),
        changed=tuple(groups.changed[nodes].nonzero()[0].tolist()),
        sure=sure,
        around=tuple(_flat(own) for own in near),
        rows_changed=tuple((moved.numpy()[nodes] > 0).nonzero()[0].tolist()),
        has_classes=has_classes,
        circle=() if points.circle is None else (*places(np.zeros((1, 2))), round(points.circle * scale)),
    )


def _flat(near: Around) -> tuple[int, ...]:
    """The neighbours of a node as numbers, see :class:`Map`."""
    numbers = [near.total]
    for other in near.some:
        numbers += [other.node, other.group, EDGES.index(other.edge), int(other.moved)]
    return tuple(numbers)


def _questions(result: Adaptation, task: Task) -> tuple[Question, ...]:
    if result.task.kind is None or result.alternative is None or result.alternative.logits is None:
        return ()
    nodes = result.questions(QUESTIONS).tolist()
    if task.kind != "classes":
        return tuple(Question(node, None, None) for node in nodes)
    own, other = predictions(result.logits), predictions(result.alternative.logits)
    old, new = (own, other) if result.alternative.is_considered else (other, own)
    return tuple(Question(node, int(old[node]), int(new[node])) for node in nodes)


def cannot_know(verdict: Verdict | None) -> tuple[str, ...]:
    """What a result like this one cannot say."""
    if verdict is None:
        return (
            "This method changes every graph that it is given; whether the change helps, it cannot tell.",
            "A lower loss is no proof: only labels of some nodes are.",
        )
    if verdict.regime == "labels":
        return ("A few labels decide between two versions of the graph; a third one, better than both, stays unseen.",)
    blind = (
        "There was no source card. Then only missing values and rows that are far from all others show; "
        "shifts and attacks do not.",
    )
    return (
        *(blind if verdict.regime == "blind" else ()),
        "A fault that happens to help the model is mended like any other.",
        "Rows that are wrong but look like true ones, such as values swapped between nodes, do not show.",
        "A shift that another mix of known nodes would explain is left alone.",
        "The evidence rests on the model's own predictions; where those are no better than chance, neither is it.",
        "Somebody who knows the gate can plan an attack that it does not see.",
    )


def made_by(
    verdict: Verdict | None, seconds: float, before: str, device: str, *, seed: int | None
) -> tuple[tuple[str, str], ...]:
    """How a result came about: versions, device, seed, card, seconds."""
    known = provenance(torch.device(device))
    card = {"card": "with a source card", "blind": "without a source card", "labels": "settled by labels"}
    rows = {
        "graph": before,
        "decided": None if verdict is None else card.get(verdict.regime, verdict.regime),
        "menders": None if verdict is None or verdict.decision == LEFT_ALONE else ", ".join(verdict.menders),
        "seed": None if seed is None else str(seed),
        "seconds": f"{seconds:.3g}",
        "written": time.strftime("%Y-%m-%d %H:%M"),
        **{name: None if value is None else str(value) for name, value in known.items()},
    }
    return tuple((name.replace("_", " "), value) for name, value in rows.items() if value)
