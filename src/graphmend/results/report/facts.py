"""What the page of a result says, as plain numbers and texts, which can be tested without a page."""

from __future__ import annotations

from dataclasses import dataclass

from graphmend.results.report.scores import Score

__all__ = [
    "BINS",
    "EDGES",
    "Change",
    "Facts",
    "Gauge",
    "Map",
    "Move",
    "Neighbour",
    "NodeFacts",
    "Predictions",
    "Question",
]

BINS = 20  # of confidence
EDGES = ("kept", "removed", "added")


@dataclass(frozen=True)
class Gauge:
    """One thing that was looked for.

    Args:
        name: What was measured.
        value: The number.
        limit: Its limit, as ``"at least 4"``.
        word: ``"found"``, ``"not found"`` and the like.
        holds: Whether it speaks for mending.
        above: Whether numbers above the limit speak for mending, or numbers below.
        place: Where the number is on a scale from 0 to 1 with the limit at 0.5.
    """

    name: str
    value: str
    limit: str
    word: str
    holds: bool
    above: bool
    place: float


@dataclass(frozen=True)
class Move:
    """How many nodes went from one class to another."""

    before: int
    after: int
    nodes: int


@dataclass(frozen=True)
class Change:
    """What was changed about the nodes and edges of one type, or of all.

    Args:
        name: The type; empty where there is only one.
        counts: What changed, how much of it, and of how much.
        pairs: Edges removed and added by the predicted classes of their ends before.
        largest: The nodes whose features moved farthest: node, distance, class before and after.
        columns: The feature columns that moved most: column, share of the changed rows in which it did, mean distance.
        columns_of: How many changed rows these were counted in.
    """

    name: str
    counts: tuple[tuple[str, int, int | None], ...]
    pairs: tuple[tuple[int, int, int, int], ...] = ()
    largest: tuple[tuple[int, float, int | None, int | None], ...] = ()
    columns: tuple[tuple[int, float, float], ...] = ()
    columns_of: int = 0


@dataclass(frozen=True)
class Predictions:
    """How predictions moved.

    Args:
        nodes: How many there are.
        changed: How many changed.
        moves: From class to class, the most frequent first.
        before: Nodes by predicted class before.
        after: The same after.
        sure_before: Nodes by the probability of their predicted class before, in :data:`BINS` steps from 0 to 1.
        sure_after: The same after.
        mean_before: The mean probability of the predicted class before.
        mean_after: The same after.
    """

    nodes: int
    changed: int
    moves: tuple[Move, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]
    sure_before: tuple[int, ...]
    sure_after: tuple[int, ...]
    mean_before: float
    mean_after: float


@dataclass(frozen=True)
class Map:
    """The embedding of some nodes, before and after, in one plane; coordinates run from 0 to 1000.

    Args:
        total: How many nodes there are.
        drawn: How many of them were drawn at random.
        share: Which share of the variance the plane has.
        nodes: The nodes.
        before: Places before, ``x0, y0, x1, y1, ...``.
        after: Places after.
        old: Classes before.
        new: Classes after.
        changed: Places in this list of those whose prediction changed.
        sure: The probability of the predicted class in percent before and after, ``b0, a0, b1, a1, ...``; empty where
            there are no classes.
        around: The neighbours of each node: how many there are, then four numbers for each of the first few: the node,
            its class after, how its edge is (a place in :data:`EDGES`), and 1 if its row changed.
        rows_changed: Places in this list of those whose own row changed.
        has_classes: Whether there are classes.
        circle: Middle and radius of the circle outside which distances are logarithmic; empty where all are true.
    """

    total: int
    drawn: int
    share: float
    nodes: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]
    old: tuple[int, ...]
    new: tuple[int, ...]
    changed: tuple[int, ...]
    sure: tuple[int, ...]
    around: tuple[tuple[int, ...], ...]
    rows_changed: tuple[int, ...]
    has_classes: bool
    circle: tuple[int, ...] = ()


@dataclass(frozen=True)
class Neighbour:
    """A node that sends to another one: its class now, its edge (kept, removed or added), and whether its row moved."""

    node: int
    group: int
    edge: str
    moved: bool


@dataclass(frozen=True)
class NodeFacts:
    """A node that was examined closely.

    Args:
        node: The node.
        columns: The columns of its row that moved most: column, before, after.
        neighbours: Some of those that send to it, what changed first.
        more: How many others there are.
        before: Its class before, if nodes have classes.
        after: Its class after.
        sure_before: The probability of that class before.
        sure_after: That of the class after.
        parts: Parts of the change, with their effects; ``None`` if these were not worked out.
        margin: What all of the change did to the node's margin.
    """

    node: int
    columns: tuple[tuple[int, float, float], ...]
    neighbours: tuple[Neighbour, ...]
    more: int
    before: int | None = None
    after: int | None = None
    sure_before: float | None = None
    sure_after: float | None = None
    parts: tuple[tuple[str, float], ...] | None = None
    margin: float = 0.0


@dataclass(frozen=True)
class Question:
    """A node or graph whose label would help to settle the matter, and its class as it was and with the change."""

    node: int
    before: int | None
    after: int | None


@dataclass(frozen=True)
class Facts:
    """All that a page says."""

    title: str
    graph: str
    decision: str
    sentence: str
    next_step: str
    gauges: tuple[Gauge, ...]
    changes: tuple[Change, ...]
    rows: str
    output: str
    predictions: Predictions | None
    scores: tuple[Score, ...]
    helped: int | None
    harmed: int | None
    scored: int
    map: Map | None
    nodes: tuple[NodeFacts, ...]
    questions: tuple[Question, ...]
    cannot_know: tuple[str, ...]
    made: tuple[tuple[str, str], ...]
    losses: tuple[tuple[int, float], ...] = ()
