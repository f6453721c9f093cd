"""Mending a heterogeneous graph: one node type at a time, one patch for the whole."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from os import PathLike
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import HeteroData

from graphmend.adapters.base import call, proposes
from graphmend.adapters.case import Needs
from graphmend.adapters.gate import Gate
from graphmend.adapters.gtrans import GTrans
from graphmend.adapters.identity import Identity
from graphmend.adapters.missing import Filling
from graphmend.contracts import Adapter
from graphmend.errors import GraphMendError, listed, require, seed_number
from graphmend.graph.checks import first_entry, is_finite
from graphmend.graph.limits import Limits
from graphmend.graph.stores import EdgeType, check_hetero, feature_types, private_copy
from graphmend.graph.tasks import check_task
from graphmend.hetero.calling import HeteroCaller, Place
from graphmend.hetero.card import HeteroCard, frozen_caller, look_at
from graphmend.hetero.one_type import OneType, output_of, plain_graph, task_of_type
from graphmend.hetero.patch import HeteroPatch
from graphmend.hetero.relations import relation_of
from graphmend.hetero.result import HeteroAdaptation, joined_verdict
from graphmend.model.call import Output
from graphmend.outputs import Task, changed_rows
from graphmend.results.adaptation import Adaptation
from graphmend.results.history import Step

__all__ = ["mend_hetero"]


def mend_hetero(
    model: nn.Module,
    data: HeteroData,
    adapter: Adapter | None = None,
    *,
    card: HeteroCard | str | PathLike[str] | None = None,
    limits: Limits | Mapping[str, Limits] | None = None,
    seed: int = 0,
    progress: bool = False,
    callback: Callable[[Step], None] | None = None,
    mode: str = "auto",
    output: Output = None,
    task: str | None = None,
) -> HeteroAdaptation:
    """Mend a heterogeneous graph for a frozen model; arguments as in :func:`graphmend.mend`.

    Broken rows of every node type are repaired first, because those of one type distort what is seen of the others;
    then each type is judged on the repaired graph. Adapters other than the gate work on one type after the other.

    Args:
        model: The model, called as ``model(x_dict, edge_index_dict)``, with ``edge_weight_dict`` or ``edge_attr_dict``
            besides, or as ``model(data)``; it is left as it was.
        data: The graph; it is left as it was.
        adapter: A method that leaves the model as it is; ``None`` stands for the gate.
        card: What the model saw in training, from :func:`graphmend.card`, or the file that holds it.
        limits: What may not change: for all node types, or by node type.
        seed: Seed of everything random.
        progress: Whether to show progress bars.
        callback: Called after every step.
        mode: ``"auto"``, or ``"eager"`` for plain computation.
        output: Which part of what the model returns has the scores, or the node type that it predicts, if it returns
            scores by type.
        task: What the rows of the predicted type are, if neither the card nor the labels ``y`` say.

    Example:
        >>> import torch
        >>> from torch_geometric.data import HeteroData
        >>> from torch_geometric.nn import HGTConv
        >>> _ = torch.manual_seed(0)
        >>> data = HeteroData()
        >>> data["paper"].x, data["author"].x = torch.randn(60, 4), torch.randn(30, 3)
        >>> data["author", "writes", "paper"].edge_index = torch.stack([torch.arange(60) % 30, torch.arange(60)])
        >>> class Net(torch.nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.conv = HGTConv({"paper": 4, "author": 3}, 8, data.metadata())
        ...         self.last = torch.nn.Linear(8, 2)
        ...     def forward(self, x_dict, edge_index_dict):
        ...         return self.last(self.conv(x_dict, edge_index_dict)["paper"].relu())
        >>> model = Net()
        >>> from graphmend.hetero import mend_hetero
        >>> today = data.clone()
        >>> today["author"].x[:3] *= 100
        >>> mend_hetero(model, today).patch.nodes["author"].num_rows
        3
    """
    start = time.perf_counter()
    adapter = Gate() if adapter is None else adapter
    needs = _served(adapter)
    seed, task = seed_number("seed", seed), check_task(task)
    check_hetero(data, missing_allowed=True)
    if card is not None:
        card = HeteroCard.of(card)
        card.check(data)
        output = card.output if output is None else output
        known = card.task.kind
        require(
            task in (None, known),
            f"the source card was made with task={known!r}, not {task!r}; leave task= out, or make another card",
        )
    missing = [kind for kind in feature_types(data) if not is_finite(data[kind].x)]
    for kind in missing:
        x = data[kind].x
        require(
            needs.fills_missing,
            f"node type {kind!r}: x holds {int(x.isnan().sum())} missing values, first {first_entry(x, x.isnan())}, "
            f"and {needs.name} does not fill them; use Impute() >> {needs.name}",
        )
    own = _limits_of(limits, data)
    with frozen_caller(model, seed, output) as caller:
        options = {"seed": seed, "progress": progress, "callback": callback, "mode": mode}
        work = _Work(model, caller, data, adapter, card, own, options, missing, task)
        if proposes(adapter) and isinstance(adapter, Gate):
            work.rows_then_rest()
        else:
            work.in_turn()
        return work.result(time.perf_counter() - start)


def _served(adapter: Any) -> Needs:
    """What an adapter needs, if it serves heterogeneous graphs."""
    name = getattr(adapter, "__name__", type(adapter).__name__)
    require(
        proposes(adapter),
        f"{name} does not serve a HeteroData; use an adapter that has propose(case) -> Proposal",
    )
    needs = Needs.of(adapter)
    require(
        not needs.changes_model,
        f"{needs.name} changes the model and does not serve a HeteroData; use Gate, Impute, Align, Purify or GTrans",
    )
    return needs


def _limits_of(limits: Limits | Mapping[str, Limits] | None, data: HeteroData) -> dict[str, Limits]:
    kinds = feature_types(data)
    if not isinstance(limits, Mapping):
        given = type(limits).__name__
        good = limits is None or isinstance(limits, Limits)
        require(good, f"limits must be a graphmend.Limits, or one by node type (got {given})")
        return dict.fromkeys(kinds, Limits() if limits is None else limits)
    unknown = set(limits) - set(kinds)
    require(not unknown, f"limits name the node types {listed(unknown)}, which the graph does not have with features")
    return {kind: limits.get(kind, Limits()) for kind in kinds}


class _Work:
    """The graph as it is changed, and what was done to each node type.

    Args:
        model: The caller's model.
        caller: The same, frozen.
        data: The caller's graph.
        adapter: Who mends.
        card: The source card, if there is one.
        limits: What may not change, by node type.
        options: The further options of the call.
        missing: The node types in which values are missing.
        task: The task, if the caller has named it.
    """

    def __init__(
        self,
        model: nn.Module,
        caller: HeteroCaller,
        data: HeteroData,
        adapter: Adapter,
        card: HeteroCard | None,
        limits: dict[str, Limits],
        options: dict[str, Any],
        missing: list[str],
        task: str | None,
    ) -> None:
        self.model, self.caller, self.data, self.adapter, self.card = model, caller, data, adapter, card
        self.limits, self.options = limits, options
        self.kinds = feature_types(data)
        self.now = private_copy(data)
        self.kept: dict[EdgeType, Tensor] = {}  #: positions of the edges that are left, of types that lost some
        self.results: dict[str, list[Adaptation]] = {kind: [] for kind in self.kinds}
        self._missing = {kind: self.now[kind].x for kind in missing}
        self._taken: list[Adaptation] = []
        self._changes = 0
        filled = {kind: self._filled(kind) for kind in missing}
        for kind, x in filled.items():
            self.now[kind].x = x
        self.filled = HeteroPatch.make(data, filled, {})[0] if filled else None
        if card is None:
            self.node_type, self.place = look_at(caller, self.now, getattr(adapter, "embedding", None))
        else:
            self.node_type, self.place = card.node_type, Place.of(card.place)
        self.before = self._logits()
        self.task: Task = task_of_type([self.before], [data], self.node_type, task) if card is None else card.task

    def _filled(self, kind: str) -> Tensor:
        graph = plain_graph(self.now, kind, relation_of(self.now, kind))
        card = None if self.card is None else self.card[kind].to(graph.x.device, graph.x.dtype)
        return Filling.of(graph, card, self.limits[kind]).x

    @torch.no_grad()
    def _logits(self) -> Tensor:
        return output_of(self.caller(self.now), self.node_type)

    def rows_then_rest(self) -> None:
        """The gate: rows of all types first, then each type on the repaired graph."""
        judged: dict[str, int] = {}
        for kind in self.kinds:
            result = self._adapted(kind)
            verdict = result.verdict
            if verdict is not None and "impute" in verdict.menders:
                self._take(kind, result)
            else:
                self.results[kind] = [result]
            judged[kind] = self._changes
        for kind in self.kinds:
            if judged[kind] == self._changes:
                result = self.results[kind][-1]
                is_open = not self._is_taken(result)
            else:
                result, is_open = self._adapted(kind), True
                self.results[kind] = [*filter(self._is_taken, self.results[kind]), result]
            if is_open and not result.patch.is_empty:
                self.results[kind].remove(result)
                self._take(kind, result)

    def in_turn(self) -> None:
        """Another adapter: one type after the other."""
        for kind in self.kinds:
            self._take(kind, self._adapted(kind))

    def _is_taken(self, result: Adaptation) -> bool:
        return any(result is taken for taken in self._taken)

    def _adapted(self, kind: str) -> Adaptation:
        """What the adapter does to one node type, as the graph is now."""
        view = OneType.of(self.caller, [self.now], kind, self.node_type, self.place)
        graph = view.plain_graphs()[0]
        limits, adapter = self.limits[kind], self.adapter
        if view.edge_type is None:  # edges that are not the graph's own cannot be removed
            edges = torch.ones(graph.edge_index.size(1), dtype=torch.bool, device=graph.x.device)
            limits = Limits(**{**vars(limits), "frozen_edges": edges})
            if isinstance(adapter, GTrans):
                adapter = replace(adapter, edge_steps=0) if adapter.feature_steps else Identity()
        if kind in self._missing:
            graph.x = self._missing[kind]
        card = None if self.card is None else self.card[kind]
        try:
            return call(adapter, view, graph, card=card, limits=limits, task=self.task.kind, **self.options)
        except GraphMendError as error:
            raise type(error)(f"node type {kind!r}: {error}") from error

    def _take(self, kind: str, result: Adaptation) -> None:
        """Change the graph as a result has changed one node type of it."""
        self.results[kind].append(result)
        self._taken.append(result)
        patch, was_missing = result.patch, self._missing.pop(kind, None) is not None
        if patch.is_empty and not was_missing:
            return
        self._changes += 1
        name = Needs.of(self.adapter).name
        require(patch.num_added == 0, f"{name} adds edges, which a HeteroData is not served with; use space='existing'")
        has_weights = patch.weight_bits is not None or patch.new_weights is not None
        require(not has_weights, f"{name} changes edge weights, which a HeteroData is not served with")
        self.now = copy.copy(self.now)
        self.now[kind].x = result.data.x
        edge_type = relation_of(self.now, kind).edge_type
        if patch.num_removed and edge_type is not None:
            self._remove(edge_type, patch.removed)

    def _remove(self, edge_type: EdgeType, removed: Tensor) -> None:
        store = self.now[edge_type]
        edges = store.edge_index.size(1)
        keep = torch.ones(edges, dtype=torch.bool, device=removed.device)
        keep[removed] = False
        for name, value in list(store.items()):
            if isinstance(value, Tensor) and name != "edge_index" and value.shape[:1] == (edges,):
                store[name] = value[keep]
        store.edge_index = store.edge_index[:, keep]
        kept = self.kept.get(edge_type, torch.arange(edges, device=removed.device))
        self.kept[edge_type] = kept[keep]

    def result(self, seconds: float) -> HeteroAdaptation:
        """One result of everything."""
        x = {kind: self.now[kind].x for kind in self.kinds}
        removed = {}
        for edge_type, kept in self.kept.items():
            gone = torch.ones(self.data[edge_type].edge_index.size(1), dtype=torch.bool, device=kept.device)
            gone[kept] = False
            removed[edge_type] = gone.nonzero().view(-1)
        patch, mended = HeteroPatch.make(self.data, x, removed)
        logits = self._logits() if self._changes else self.before
        flips = float(changed_rows(self.task, self.before, logits).double().mean()) if self.task.predicts else None
        verdicts = {
            kind: [result.verdict for result in results if result.verdict is not None]
            for kind, results in self.results.items()
        }
        verdict = None
        if all(verdicts.values()):
            has_mixed = any(source != target for source, _, target in self.data.edge_types)
            verdict = joined_verdict(
                verdicts, flips, self.task, has_mixed_edges=has_mixed, is_changed=not patch.is_empty
            )
        reasons = [f"{kind}: {r.reason}" for kind, own in self.results.items() for r in own if r.reason is not None]
        number = sum(map(len, self.results.values()))
        return HeteroAdaptation(
            self.model,
            mended,
            logits,
            self.before,
            patch,
            self.node_type,
            self.results,
            reason="; ".join(reasons) if len(reasons) == number else None,
            seconds=seconds,
            verdict=verdict,
            filled=self.filled,
            task=self.task,
        )
