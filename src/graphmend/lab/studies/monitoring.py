"""How the monitor does: false alarms, the delay until an alarm, three real streams; beside three other detectors.

    python -m graphmend.lab.studies.monitoring --out docs/results/monitor_cpu.json

Graphs are random parts of digits (15 % of the nodes, GraphSAGE) and of Cora (30 %, GCN). Signs are measured once for
each graph of a pool; a stream draws from the pool with replacement, so its graphs are independent and alike, and
exchangeable by construction. False alarms are counted over 1,000 streams of 300 graphs. For the delay, 60 untouched
graphs are followed by up to 100 with a fault that stays the same, 30 streams for each fault and strength.

The other detectors get the same scores, one detector for each kind of trouble, after a standardisation by the graphs
that the monitor is warmed up with: an alarm where a score is more than three standard deviations above the mean (a
threshold per graph), ADWIN and Page-Hinkley with river's defaults.

Real streams are parts of Twitch by country, of generated transactions of Elliptic's size by time step, and of
arXiv by year (real citations, substitute features). After an alarm the monitor forgets and goes on.

Finished conditions are read from the file again, so an interrupted study goes on where it was.
"""

from __future__ import annotations

import argparse
import copy
import functools
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median, stdev
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GCN, GraphSAGE

import graphmend
from graphmend.adapters.base import call
from graphmend.errors import optional_module
from graphmend.files.files import read_json, write_text
from graphmend.files.provenance import provenance
from graphmend.graph.edits import subgraph
from graphmend.lab.data import load
from graphmend.lab.data.corruptions import FeatureNoise, RandomEdges
from graphmend.lab.data.shifts import ColumnShift, EdgeSubsample, LabelShift
from graphmend.lab.training import ERM
from graphmend.monitor.betting import WARM_UP, found_in, likeliest, take
from graphmend.monitor.signs import KINDS, Look, Signs
from graphmend.monitor.state import CENTRE, State

Row = dict[str, Any]
Change = Callable[[Data, int], Data]

RATE = 0.01
STREAMS, LENGTH = 1000, 300  # for false alarms
TRIALS, HEALTHY, FAULTY = 30, 60, 100  # for the delay
POOL, SMALL_POOL, FIRST = 300, 40, 10_000  # how many graphs, and the seed of the first
SIGMAS = 3.0
SPREAD = 1e-9  # the least standard deviation
MONITOR, THRESHOLD, ADAPTIVE, PAGE_HINKLEY = "monitor", "threshold per graph", "ADWIN", "Page-Hinkley"
DETECTORS = (MONITOR, THRESHOLD, ADAPTIVE, PAGE_HINKLEY)


@dataclass(frozen=True)
class Source:
    """A graph of which parts are drawn, with a model and its card."""

    graph: Data
    model: nn.Module
    card: graphmend.SourceCard
    share: float

    def part(self, seed: int, change: Change | None = None, before: Callable[[Data], Data] | None = None) -> Data:
        """A random part of the graph, with a change; ``before`` is what is done to the graph first."""
        whole = self.graph if before is None else before(self.graph)
        wanted = self.share * self.graph.num_nodes / whole.num_nodes
        graph = subgraph(whole, _some(whole.num_nodes, wanted, seed))
        return graph if change is None else change(graph, seed)

    def signs(self, graph: Data) -> Signs:
        """What the monitor measures of a graph."""
        look = Look(mends=False)
        call(look, self.model, graph, card=self.card)
        return look.signs


def _some(nodes: int, share: float, seed: int) -> Tensor:
    return torch.rand(nodes, generator=torch.Generator().manual_seed(seed)) < share


@functools.cache
def digits() -> Source:
    """Digits and GraphSAGE."""
    return _trained("digits", GraphSAGE, 0.15)


@functools.cache
def cora() -> Source:
    """Cora and a GCN."""
    return _trained("cora", GCN, 0.3)


def _trained(name: str, kind: Any, share: float) -> Source:
    splits = load(name)
    torch.manual_seed(0)
    model = kind(splits.test[0].num_features, 16, num_layers=2, out_channels=int(splits.meta["classes"]))
    model = ERM(epochs=60)(model, splits)
    data = splits.test[0]
    graph = Data(x=data.x, edge_index=data.edge_index, y=data.y)
    return Source(graph, model, graphmend.card(model, splits.train[0]), share)


def scrambled(graph: Data, seed: int, share: float) -> Data:
    """The columns of some nodes in another order, always the same: nodes like none that the model knows."""
    out = copy.copy(graph)
    order = torch.randperm(graph.num_features, generator=torch.Generator().manual_seed(1))
    where = _some(graph.num_nodes, share, seed + 10**6)
    out.x = torch.where(where[:, None], graph.x[:, order], graph.x)
    return out


def missing(graph: Data, seed: int, share: float) -> Data:
    """All features of some nodes missing."""
    out = copy.copy(graph)
    out.x = graph.x.masked_fill(_some(graph.num_nodes, share, seed + 10**6)[:, None], torch.nan)
    return out


def one_class(classes: int, weight: float) -> Callable[[Data], Data]:
    """The first class as often as the others times a weight."""
    return LabelShift(shares=(weight, *[1.0] * (classes - 1)))


def faults(classes: int) -> Iterator[tuple[str, str, str, Change | None, Callable[[Data], Data] | None]]:
    """Kind, name, strength and how to make it, of each fault."""
    for share in (0.02, 0.1, 0.3):
        noise = functools.partial(_noisy, share=share)
        yield "rows", "rows replaced by noise", f"{share:.0%} of the rows", noise, None
    for share in (0.02, 0.1, 0.3):
        yield "rows", "rows missing", f"{share:.0%} of the rows", functools.partial(missing, share=share), None
    for offset in (0.1, 0.3, 1.0):
        moved = ColumnShift(share=0.5, scale=1.0, offset=offset)
        text = f"up to {offset:g} standard deviations"
        yield "columns", "half of the columns moved", text, functools.partial(_moved, shift=moved), None
    for rate in (0.05, 0.2, 0.5):
        more = functools.partial(_with_edges, rate=rate)
        yield "edges", "random edges added", f"{rate:.0%} of the edges", more, None
    for keep in (0.9, 0.7, 0.5):
        yield "edges", "edges lost", f"{1 - keep:.0%} of the edges", functools.partial(_fewer, keep=keep), None
    for weight in (1.5, 2.0, 4.0):
        yield "mix", "one class more frequent", f"{weight:g} times", None, one_class(classes, weight)
    for share in (0.05, 0.2, 0.5):
        other = functools.partial(scrambled, share=share)
        yield "unknown", "nodes with scrambled columns", f"{share:.0%} of the nodes", other, None


def _noisy(graph: Data, seed: int, share: float) -> Data:
    return FeatureNoise(ratio=share, scale=1.0, seed=seed)(graph)


def _moved(graph: Data, _: int, shift: ColumnShift) -> Data:
    return shift(graph)


def _with_edges(graph: Data, seed: int, rate: float) -> Data:
    return RandomEdges(rate, seed=seed)(graph)


def _fewer(graph: Data, seed: int, keep: float) -> Data:
    return EdgeSubsample(keep=keep, seed=seed)(graph)


def pool(source: Source, size: int, first: int, change: Change | None = None, before: Any = None) -> list[Signs]:
    """The signs of some parts."""
    return [source.signs(source.part(seed, change, before)) for seed in range(first, first + size)]


def own_mix(source: Source, size: int) -> list[Signs]:
    """Parts of which each has a mix of classes of its own."""
    mixed = (LabelShift(concentration=2.0, seed=seed) for seed in range(size))
    return [source.signs(source.part(seed, None, shift)) for seed, shift in enumerate(mixed)]


def now_and_then(source: Source, size: int) -> list[Signs]:
    """Of five parts, one has rows that are broken: a stream that has always been like this."""
    noise = functools.partial(_noisy, share=0.1)
    return [source.signs(source.part(seed, noise if seed % 5 == 0 else None)) for seed in range(size)]


class Rivals:
    """The other detectors on the same scores."""

    def __init__(self) -> None:
        drift = optional_module("river.drift", "the comparison with other detectors", "pip install river")
        self.first: dict[str, list[float]] = {kind: [] for kind in KINDS}
        self.usual: dict[str, tuple[float, float]] = {}
        self.river = {(ADAPTIVE, kind): drift.ADWIN() for kind in KINDS}
        self.river |= {(PAGE_HINKLEY, kind): drift.PageHinkley() for kind in KINDS}

    def alarms(self, scores: dict[str, float], graph: int) -> dict[str, str]:
        """Which detector raises an alarm with this graph, and for which kind."""
        out: dict[str, str] = {}
        if graph < CENTRE:  # until then not every kind has a score
            return out
        for kind, score in scores.items():
            if kind not in self.usual:
                self._learn(kind, score)
                continue
            middle, spread = self.usual[kind]
            value = (min(score, 1e9) - middle) / spread
            if value > SIGMAS:
                out.setdefault(THRESHOLD, kind)
            for name in (ADAPTIVE, PAGE_HINKLEY):
                self.river[name, kind].update(value)
                if self.river[name, kind].drift_detected:
                    out.setdefault(name, kind)
        return out

    def _learn(self, kind: str, score: float) -> None:
        """The first scores say what is usual; the detectors of river learn from them, too."""
        values = self.first[kind]
        values.append(min(score, 1e9))
        if len(values) == WARM_UP:
            self.usual[kind] = middle, spread = mean(values), max(stdev(values), SPREAD)
            for value in values:
                for name in (ADAPTIVE, PAGE_HINKLEY):
                    self.river[name, kind].update((value - middle) / spread)


@dataclass(frozen=True)
class First:
    """The first alarm of a detector: the graph, the kind, and for the monitor since when."""

    graph: int
    kind: str
    since: int | None = None


def watched(stream: Sequence[Signs], seed: int) -> dict[str, First]:
    """The first alarm of each detector on a stream."""
    state, rivals, firsts = State("", RATE, seed), Rivals(), dict[str, First]()
    for graph, signs in enumerate(stream):
        scores, _ = take(state, signs, graph)
        for name, kind in rivals.alarms(scores, graph).items():
            firsts.setdefault(name, First(graph, kind))
        found = found_in(state) if MONITOR not in firsts else []
        if found:
            kind = likeliest(state, scores)
            firsts[MONITOR] = First(graph, kind, state.kinds[kind].detector.since)
        if len(firsts) == len(DETECTORS):
            break
    return firsts


def drawn(pool: Sequence[Signs], size: int, seed: int) -> list[Signs]:
    """A stream: graphs of a pool, each drawn independently of the others."""
    places = torch.randint(len(pool), (size,), generator=torch.Generator().manual_seed(seed)).tolist()
    return [pool[place] for place in places]


FALSE = {
    "digits, untouched": lambda: pool(digits(), POOL, FIRST),
    "digits, each with a mix of its own": lambda: own_mix(digits(), POOL),
    "digits, rows broken in every fifth": lambda: now_and_then(digits(), POOL),
    "Cora, untouched": lambda: pool(cora(), POOL, FIRST),
}


def false_alarms(name: str) -> list[Row]:
    """How many streams of a kind raise an alarm."""
    graphs = FALSE[name]()
    firsts = [watched(drawn(graphs, LENGTH, seed), seed) for seed in range(STREAMS)]
    return [
        {
            "study": "false alarms",
            "stream": name,
            "detector": detector,
            "streams": STREAMS,
            "graphs": LENGTH,
            "pool": POOL,
            "alarms": sum(detector in first for first in firsts),
        }
        for detector in DETECTORS
    ]


def delays(name: str) -> Iterator[tuple[str, Callable[[], list[Row]]]]:
    """Each fault and strength, as a name and how to measure it."""
    source = {"digits": digits, "Cora": cora}[name]
    classes = {"digits": 10, "Cora": 7}[name]

    @functools.cache
    def healthy() -> list[Signs]:
        return pool(source(), POOL, FIRST)

    for kind, fault, strength, change, before in faults(classes):

        def measured(kind: str = kind, fault: str = fault, strength: str = strength, *made: Any) -> list[Row]:
            bad = pool(source(), SMALL_POOL, FIRST + 10**5, *made)
            firsts = [
                watched([*drawn(healthy(), HEALTHY, seed), *drawn(bad, FAULTY, seed + 10**6)], seed)
                for seed in range(TRIALS)
            ]
            head = {"study": "delay", "data": name, "kind": kind, "fault": fault, "strength": strength}
            return [{**head, "detector": detector, **_delay(detector, kind, firsts)} for detector in DETECTORS]

        key = f"{name}, {fault}, {strength}"
        yield key, functools.partial(measured, kind, fault, strength, change, before)


def _delay(detector: str, kind: str, firsts: Sequence[dict[str, First]]) -> Row:
    own = [first[detector] for first in firsts if detector in first]
    right = [first for first in own if first.graph >= HEALTHY]
    waits = sorted(first.graph - HEALTHY + 1 for first in right)
    since = [abs(first.since - HEALTHY) for first in right if first.since is not None]
    return {
        "streams": len(firsts),
        "too early": len(own) - len(right),
        "found": len(right),
        "median": median(waits) if waits else None,
        "ninth decile": waits[int(0.9 * (len(waits) - 1))] if waits else None,
        "kind right": sum(first.kind == kind for first in right),
        "since off by": median(since) if since else None,
    }


def real(name: str) -> list[Row]:
    """The alarms of a monitor that forgets after each."""
    groups, source = REAL[name]()
    state, start, alarms, names = State("", RATE, 0), 0, list[Row](), list[str]()
    for group, graphs in groups:
        for graph in graphs:
            number = len(names)
            names.append(group)
            scores, _ = take(state, source.signs(graph), number)
            if found_in(state):
                kind = likeliest(state, scores)
                since = state.kinds[kind].detector.since
                begun = number if since is None else since
                alarms.append({"graph": number, "in": group, "kind": kind, "since": begun, "since in": names[begun]})
                state, start = State("", RATE, 0), number + 1
    counts = {group: names.count(group) for group in dict.fromkeys(names)}
    return [{"study": "real", "stream": name, "graphs": counts, "alarms": alarms, "last begun": start}]


Groups = Iterator[tuple[str, Iterator[Data]]]


def _fit(model: nn.Module, graphs: Sequence[Data], epochs: int) -> nn.Module:
    """Trained on the nodes of a mask, if a graph has one."""
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(epochs):
        for graph in graphs:
            mask = graph.get("mask", torch.ones(graph.num_nodes, dtype=torch.bool))
            optimizer.zero_grad()
            logits = model(graph.x, graph.edge_index)
            nn.functional.cross_entropy(logits[mask], graph.y[mask]).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    return model.eval()


def _source(graphs: Sequence[Data], classes: int, epochs: int) -> Source:
    torch.manual_seed(0)
    model = GraphSAGE(graphs[0].num_features, 16, num_layers=2, out_channels=classes)
    return Source(graphs[0], _fit(model, graphs, epochs), graphmend.card(model, list(graphs)), 1.0)


def twitch() -> tuple[Groups, Source]:
    """Fifths of each country: of England 50, of the others 20."""
    splits = load("twitch-e", undirected=True)
    named = zip(("ENGB", "ES", "FR", "PTBR", "RU", "TW"), [*splits.val, *splits.test], strict=True)

    def groups() -> Groups:
        for name, graph in named:
            seeds = range(50 if name == "ENGB" else 20)
            yield name, (subgraph(graph, _some(graph.num_nodes, 0.2, seed)) for seed in seeds)

    return groups(), _source(splits.train, 2, 20)


def elliptic() -> tuple[Groups, Source]:
    """Quarters of each step from 12 on; the model was trained on steps 7 to 11."""
    splits = load("elliptic-size", scale=0.2)

    def groups() -> Groups:
        for step, graph in enumerate([*splits.val, *splits.test], 12):
            part = torch.randint(4, (graph.num_nodes,), generator=torch.Generator().manual_seed(step))
            yield f"step {step}", (subgraph(graph, part == number) for number in range(4))

    return groups(), _source(splits.train, 2, 40)


def arxiv() -> tuple[Groups, Source]:
    """Tenths of the papers of a year with the papers that they cite; the model was trained until 2011."""
    splits = load("arxiv-votes-ood")
    whole = splits.test[-1]
    source, target = whole.edge_index

    def around(papers: Tensor) -> Data:
        kept = papers.clone()
        kept[target[papers[source]]] = True
        return subgraph(whole, kept & (whole.year <= whole.year[papers].max()))

    def groups() -> Groups:
        for year in range(2012, 2021):
            part = torch.randint(10, (whole.num_nodes,), generator=torch.Generator().manual_seed(year))
            yield str(year), (around((whole.year == year) & (part == number)) for number in range(10))

    return groups(), _source(splits.train, 40, 60)


REAL = {
    "Elliptic's size by step (generated)": elliptic,
    "arXiv by year (real citations, substitute features)": arxiv,
    "Twitch by country": twitch,
}


def conditions() -> Iterator[tuple[str, Callable[[], list[Row]]]]:
    """Everything that is measured, by name."""
    for name in FALSE:
        yield name, functools.partial(false_alarms, name)
    for name in ("digits", "Cora"):
        yield from delays(name)
    for name in REAL:
        yield name, functools.partial(real, name)


def main() -> None:
    """Measure what is not in the file yet, and write after each condition."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin nothing new after so many minutes")
    args = parser.parse_args()
    end = time.monotonic() + 60 * args.minutes
    report = read_json(args.out) if args.out.exists() else {"provenance": provenance("cpu", seeds=STREAMS), "rows": {}}
    for name, measure in conditions():
        if name in report["rows"]:
            continue
        if time.monotonic() > end:
            break
        report["rows"][name] = measure()
        write_text(args.out, json.dumps(report, indent=1) + "\n")
        print(f"{name}: {json.dumps(report['rows'][name])}", flush=True)


if __name__ == "__main__":
    main()
