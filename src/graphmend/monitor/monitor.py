"""The monitor: one graph after the other, and an alarm when the stream is no longer what it was."""

from __future__ import annotations

import json
import logging
import math
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any, Self

from torch import nn
from torch_geometric.data import Data

from graphmend.adapters.base import call
from graphmend.cards.source_card import SourceCard
from graphmend.errors import real_number, require, seed_number, switch
from graphmend.files.files import check_target, digest, path_of
from graphmend.graph.limits import Limits
from graphmend.model.call import Output
from graphmend.monitor.betting import capital_of, found_in, likeliest, limit_of, take
from graphmend.monitor.evidence import Bag, Detector
from graphmend.monitor.signs import KINDS, Look
from graphmend.monitor.state import RECENT, State, Watched, alone, append_line, read_state, write_state
from graphmend.results.adaptation import Adaptation
from graphmend.results.results import FAILED, Failure, without_locals

__all__ = ["LEARNED", "LOOKED_AT", "Alarm", "Entry", "Monitor"]

_LOG = logging.getLogger(__name__)

LEARNED, LOOKED_AT = "learned", "looked at"


@dataclass(frozen=True)
class Alarm:
    """The stream is no longer what it was.

    Args:
        graph: The graph at which the evidence sufficed, counted from 0.
        name: Its name.
        kind: The kind of trouble that explains it best, see :data:`~graphmend.monitor.KINDS`: of those with at least
            half of the evidence (in logarithms), the one whose score is farthest from the usual ones.
        kinds: That kind, and all others for which the evidence suffices, the strongest first.
        since: The graph with which it probably began.
        since_name: Its name, if that is still known.
        rate: The largest probability that a stream which never changes ever raises an alarm.

    Example:
        >>> import torch
        >>> import graphmend
        >>> from torch_geometric.data import Data
        >>> from torch_geometric.nn import GCN
        >>> def day(number, edges=120):
        ...     rng = torch.Generator().manual_seed(number)
        ...     x, edge_index = torch.randn(40, 4, generator=rng), torch.randint(40, (2, edges), generator=rng)
        ...     return Data(x=x, edge_index=edge_index).coalesce()
        >>> _ = torch.manual_seed(0)
        >>> model = GCN(4, 8, num_layers=2, out_channels=3)
        >>> card = graphmend.card(model, day(0), task="classes")
        >>> from graphmend.monitor import Alarm, Monitor
        >>> with Monitor(model, card, "state.json", mends=False) as monitor:
        ...     for number in range(1, 61):
        ...         _ = monitor.update(day(number, edges=120 if number < 40 else 300))
        >>> isinstance(monitor.alarm, Alarm), monitor.alarm.kind
        (True, 'edges')
    """

    graph: int
    name: str
    kind: str
    kinds: tuple[str, ...]
    since: int
    since_name: str
    rate: float

    def __str__(self) -> str:
        name = f" ({self.since_name})" if self.since_name else ""
        more = f"; also {', '.join(self.kinds[1:])}" if len(self.kinds) > 1 else ""
        return (
            f"since graph {self.since}{name} the stream has changed: {KINDS[self.kind]}{more}; "
            f"a stream that never changes says so with a probability of at most {self.rate:g}"
        )

    def summary(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {**asdict(self), "kinds": list(self.kinds)}

    @classmethod
    def of(cls, parts: dict[str, Any]) -> Self:
        """An alarm from its :meth:`summary`."""
        return cls(**{**parts, "kinds": tuple(parts["kinds"])})


@dataclass(frozen=True)
class Entry:
    """What a monitor notes of one graph.

    Args:
        graph: Which one it is, counted from 0.
        name: Its name.
        decision: The decision of the gate, ``"looked at"``, ``"learned"`` or ``"failed"``.
        sentence: The reason.
        scores: How bad it is, by kind; empty for a graph that failed.
        p_values: Its rank among the graphs before it, by kind; empty while there are too few of them.
        capital: The capital of the bets against each kind, which began with 1, as a power of ten.
        alarm: The alarm that this graph raised, if it did.

    Example:
        >>> import torch
        >>> import graphmend
        >>> from torch_geometric.data import Data
        >>> from torch_geometric.nn import GCN
        >>> def day(number, edges=120):
        ...     rng = torch.Generator().manual_seed(number)
        ...     x, edge_index = torch.randn(40, 4, generator=rng), torch.randint(40, (2, edges), generator=rng)
        ...     return Data(x=x, edge_index=edge_index).coalesce()
        >>> _ = torch.manual_seed(0)
        >>> model = GCN(4, 8, num_layers=2, out_channels=3)
        >>> card = graphmend.card(model, day(0), task="classes")
        >>> from graphmend.monitor import Entry, Monitor
        >>> with Monitor(model, card, "state.json", mends=False) as monitor:
        ...     _, entry = monitor.update(day(1), "Monday")
        >>> isinstance(entry, Entry), entry.name, entry.alarm
        (True, 'Monday', None)
    """

    graph: int
    name: str
    decision: str
    sentence: str
    scores: dict[str, float]
    p_values: dict[str, float]
    capital: dict[str, float]
    alarm: Alarm | None = None

    def summary(self) -> dict[str, Any]:
        """Ready for JSON."""
        numbers: tuple[str, ...] = ("scores", "p_values", "capital")
        rounded = {name: {kind: _rounded(v) for kind, v in getattr(self, name).items()} for name in numbers}
        return {**asdict(self), **rounded, "alarm": None if self.alarm is None else self.alarm.summary()}


class Monitor:
    """Watches a stream of graphs: mends or only examines each, and raises an alarm when the stream has changed.

    A stream that never changes raises an alarm *ever* with a probability of at most ``false_alarm_rate``, however long
    it is. The page ``docs/monitor.md`` says what is assumed. ``monitor.alarm`` is the current alarm.

    Args:
        model: A trained model, any PyG module; it is left as it was.
        card: Its source card, or the file that holds it.
        state: The file that holds what is remembered. A monitor with the same file continues where the last one was,
            even if that was killed. Without a file everything is in memory.
        log: A file that gets one JSON line for each graph.
        false_alarm_rate: The largest probability of an alarm on a stream that never changes.
        mends: Whether graphs are mended; otherwise they are only examined.
        limits: What may not change when a graph is mended.
        seed: Seed of what breaks ties between equal graphs, and of the adapters.
        output: Which part of what the model returns has the scores, see :func:`graphmend.mend`.

    Example:
        >>> from torch_geometric.data import Data
        >>> from graphmend.monitor import Monitor
        >>> import torch
        >>> import graphmend
        >>> from graphmend.lab.backbones import GCN
        >>> edges = torch.combinations(torch.arange(20))[::5].t()
        >>> model, days = GCN(3, 8, 2), [Data(x=torch.rand(20, 3), edge_index=edges) for _ in range(3)]
        >>> with Monitor(model, graphmend.card(model, days[0], task="classes")) as monitor:
        ...     for day in days:
        ...         result, entry = monitor.update(day)
        >>> entry.graph, entry.decision, monitor.alarm
        (2, 'left alone', None)
    """

    def __init__(
        self,
        model: nn.Module,
        card: SourceCard | str | PathLike[str],
        state: str | PathLike[str] | None = None,
        *,
        log: str | PathLike[str] | None = None,
        false_alarm_rate: float = 0.01,
        mends: bool = True,
        limits: Limits | None = None,
        seed: int = 0,
        output: Output = None,
    ) -> None:
        self.model, self.card = model, SourceCard.of(card)
        self.card.check_model(model)
        rate = real_number("false_alarm_rate", false_alarm_rate, above=0, below=1)
        own = State(_digest(self.card), rate, seed_number("seed", seed))
        self._look = Look(switch("mends", mends))
        self._options: dict[str, Any] = {"card": self.card, "limits": limits, "seed": own.seed, "output": output}
        self.path = None if state is None else path_of(state)
        self.log = None if log is None else path_of(log)
        if self.log is not None:
            check_target(self.log)
        with ExitStack() as stack:
            if self.path is not None:
                stack.enter_context(alone(self.path))
                own = _continued(read_state(self.path), own, self.path)
            self.state, self._open = own, stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the state, so that another monitor can use it."""
        self._open.close()

    @property
    def alarm(self) -> Alarm | None:
        """The current alarm."""
        return None if self.state.alarm is None else Alarm.of(self.state.alarm)

    @property
    def limit(self) -> float:
        """The capital, as a power of ten, from which the evidence for a kind suffices."""
        return limit_of(self.state)

    @property
    def capital(self) -> dict[str, float]:
        """What the bets against each kind have made of 1, as a power of ten."""
        return capital_of(self.state)

    @property
    def found(self) -> list[str]:
        """The kinds for which the evidence suffices now, the strongest first."""
        return found_in(self.state)

    def update(
        self,
        graph: Data | Exception,
        name: str = "",
        *,
        keep: Callable[[Adaptation], None] | None = None,
        files: dict[str, str] | None = None,
    ) -> tuple[Adaptation | Failure, Entry]:
        """Take the next graph: its result as from :func:`graphmend.mend`, and what was noted.

        A graph that cannot be used only leads to an entry with the decision ``"failed"``.

        Args:
            graph: The graph, or the exception that reading it raised.
            name: Its name, for messages.
            keep: Called with the result before the graph counts as taken, to write it somewhere: after a kill the graph
                is taken again.
            files: Marks of files, to be remembered together with this graph.
        """
        return self._take(graph, name, keep, files, learns=False)

    def learn(self, graph: Data, name: str = "") -> Entry:
        """Take a graph that is known to be fine, before the stream begins: others are compared with it.

        Such graphs take the place of the first ones of the stream, so they must be like these: held-out graphs, or
        those of previous days.
        """
        begun = any(kind.detector.rounds for kind in self.state.kinds.values())
        require(not begun, "the stream has begun, so no more graphs can be learned; call restart() first")
        return self._take(graph, name, None, None, learns=True)[1]

    def restart(self, *, forget: bool = False) -> None:
        """Start afresh after an alarm. The false-alarm rate holds from one start to the next.

        Args:
            forget: Whether also to forget the graphs that came before the first bet. They are kept by default, for a
                stream that was repaired; forget them if a new normal has begun.
        """
        kinds = {name: Watched() for name in KINDS}
        if not forget:
            kinds = {name: replace(kind, bag=_copy(kind.trusted), detector=Detector()) for name, kind in self._kinds}
        else:
            self.state.centre, self.state.centre_graphs = {}, 0
        self.state.kinds, self.state.alarm = kinds, None
        self._write()

    @property
    def _kinds(self) -> list[tuple[str, Watched]]:
        return list(self.state.kinds.items())

    def _take(
        self,
        graph: Data | Exception,
        name: str,
        keep: Callable[[Adaptation], None] | None,
        files: dict[str, str] | None,
        *,
        learns: bool,
    ) -> tuple[Adaptation | Failure, Entry]:
        state, index = self.state, self.state.graphs
        called = f" ({name})" if name else ""
        result = self._looked_at(graph, index, called)
        if learns and isinstance(result, Failure):
            raise result.error
        scores, p_values, decision = dict[str, float](), dict[str, float](), result.decision
        if not isinstance(result, Failure):
            if keep is not None:
                keep(result)
            decision = LEARNED if learns else decision if self._look.mends else LOOKED_AT
            scores, p_values = take(state, self._look.signs, index, learns=learns)
        sentence = "" if decision == LOOKED_AT else result.sentence
        entry = Entry(index, name, decision, sentence, scores, p_values, self.capital)
        found = self.found
        if state.alarm is None and found:
            alarm = self._alarm(found, entry)
            entry, state.alarm = replace(entry, alarm=alarm), alarm.summary()
            _LOG.warning("alarm with graph %d%s: %s", index, called, alarm)
        if decision != FAILED:
            _LOG.info("graph %d%s: %s%s", index, called, decision, f": {sentence}" if sentence else "")
        state.graphs += 1
        state.decisions[decision] += 1
        state.files = state.files if files is None else files
        state.recent = [*state.recent, entry.summary()][-RECENT:]
        if self.log is not None:
            state.log_bytes = append_line(self.log, entry.summary(), state.log_bytes)
        self._write()
        return result, entry

    def _looked_at(self, graph: Data | Exception, index: int, called: str) -> Adaptation | Failure:
        try:
            if isinstance(graph, Exception):
                raise graph
            return call(self._look, self.model, graph, **self._options)
        except Exception as error:
            reason = str(error) or type(error).__name__
            _LOG.warning("graph %d%s is left out: %s", index, called, reason)
            return Failure(index, reason, without_locals(error), graph if isinstance(graph, Data) else None)

    def _alarm(self, found: list[str], entry: Entry) -> Alarm:
        kind = likeliest(self.state, entry.scores)
        kinds = (kind, *(other for other in found if other != kind))
        since = self.state.kinds[kind].detector.since
        first = entry.graph if since is None else since
        names = {part["graph"]: part["name"] for part in [*self.state.recent, entry.summary()]}
        return Alarm(entry.graph, entry.name, kind, kinds, first, names.get(first, ""), self.state.rate)

    def _write(self) -> None:
        if self.path is not None:
            write_state(self.path, self.state)

    def __repr__(self) -> str:
        standing = "no alarm" if self.alarm is None else f"alarm: {self.alarm}"
        return f"Monitor({self.state.graphs} graphs, {standing})"


def _continued(stored: State | None, own: State, path: Path) -> State:
    """The state in the file, if it belongs to this monitor."""
    if stored is None:
        return own
    for what, before, now in (
        ("another source card", stored.card, own.card),
        (f"the false-alarm rate {stored.rate:g}", stored.rate, own.rate),
        (f"the seed {stored.seed}", stored.seed, own.seed),
    ):
        require(before == now, f"the state {path} was made with {what}; use that again, or give another file")
    return stored


def _digest(card: SourceCard) -> str:
    tensors, numbers = card.parts()
    return digest(tensors, json.dumps(numbers, sort_keys=True))


def _copy(bag: Bag) -> Bag:
    return Bag(Counter(bag.counts))


def _rounded(value: float) -> float | None:
    """Four digits are enough for a log; what is no finite number is ``null`` in JSON."""
    return float(f"{value:.4g}") if math.isfinite(value) else None
