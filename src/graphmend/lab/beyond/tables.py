"""Tables of all methods in Markdown: overall, by kind of target, set and family, what was lost and recovered.

A *cell* is a set, a backbone and a target, averaged over seeds. A cell, or a single graph, is harmed if its metric
falls by more than 0.3 points. The *oracle* takes, in every cell, the best of doing nothing and all methods that were
measured there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import mean

from graphmend.errors import require
from graphmend.files.files import write_text
from graphmend.lab.beyond.cells import DAMAGE, HARM, ORACLE, Cell, cells_of, lost_accuracy, summary, with_oracle
from graphmend.lab.beyond.methods import names, version_of
from graphmend.lab.beyond.rows import failures, read_rows
from graphmend.lab.beyond.sources import FAMILY, SETS
from graphmend.lab.beyond.targets import KINDS

__all__ = ["report", "table", "tables"]


def report(out: Path, methods: Sequence[str] | None = None) -> str:
    """Read the rows below ``out``, write ``tables.md`` beside them and return its text.

    Args:
        out: The folder of the rows.
        methods: The methods that are shown and that the oracle chooses from; all when ``None``.
    """
    chosen = list(methods or names())
    versions = {name: version_of(name) for name in chosen}
    rows = read_rows(out, versions)
    require(len(rows) > 0, f"there are no rows of {', '.join(chosen)} in {out / 'rows'}; measure first")
    text = tables(cells_of(rows), chosen)
    if failed := failures(out, versions):
        text += "\nTargets with an error instead of a result, which are in no cell: "
        text += ", ".join(f"{name} {count}" for name, count in failed.items()) + ".\n"
    write_text(out / "tables.md", text)
    return text


def tables(cells: Sequence[Cell], methods: Sequence[str]) -> str:
    """All tables."""
    everything = with_oracle(cells)
    by_method = {name: [cell for cell in everything if cell.method == name] for name in [*methods, ORACLE]}
    by_method = {name: found for name, found in by_method.items() if found}
    seeds = sorted({cell.seeds for cell in cells})
    parts = [
        f"{len({cell.place for cell in cells})} cells, {' or '.join(map(str, seeds))} seeds each. "
        f"Changes are in points; *harmed* is the share of cells, or of single graphs, below {HARM}.",
        "## All cells",
        _overall(by_method),
        "## By kind of target: mean change (share of harmed cells)",
        _grouped(by_method, KINDS, lambda cell: cell.kind, "kind"),
        "## By set: mean change (share of harmed cells)",
        _grouped(by_method, SETS, lambda cell: cell.name, "set"),
        "## By family: mean change (share of harmed cells)",
        _grouped(by_method, dict.fromkeys(FAMILY.values()), lambda cell: FAMILY[cell.name], "family"),
        "## By set, shifted targets only (ood and citation)",
        _grouped(_only(by_method, ("ood", "citation")), SETS, lambda cell: cell.name, "set"),
        "## Lost to attacks and recovered",
        _recovered(by_method, cells),
        "## Risk against coverage",
        _risk(by_method),
    ]
    return "\n\n".join(parts) + "\n"


def _overall(by_method: dict[str, list[Cell]]) -> str:
    head = ["method", "cells", "mean change", "mean over sets", "harmed", "worst", "worst cell"]
    head += ["harmed graphs", "worst graph", "it is in", "acted", "seconds"]
    body = []
    for name, cells in by_method.items():
        s = summary(cells)
        sets = [mean(c.change for c in cells if c.name == set_name) for set_name in {c.name for c in cells}]
        numbers = [str(s.cells), _points(s.change), _points(mean(sets)), _percent(s.harmed), _points(s.worst.change)]
        graphs = [_percent(s.harmed_graphs), _points(s.worst_graph), str(s.worst_graph_in)]
        body.append([name, *numbers, str(s.worst), *graphs, _percent(s.acted), f"{s.seconds:.2f}"])
    return table(head, body)


def _grouped(
    by_method: dict[str, list[Cell]], groups: Iterable[str], group_of: Callable[[Cell], str], title: str
) -> str:
    """One line per group, one column per method, and the metric of the frozen model."""
    body = []
    for group in groups:
        here = {name: [c for c in cells if group_of(c) == group] for name, cells in by_method.items()}
        if not any(here.values()):
            continue
        before = {cell.place: cell.before for cells in here.values() for cell in cells}
        line = [group, str(len(before)), f"{mean(before.values()):.1f}"]
        for cells in here.values():
            line.append(f"{_points(summary(cells).change)} ({_percent(summary(cells).harmed)})" if cells else "")
        body.append(line)
    return table([title, "cells", "frozen model", *by_method], body)


def _recovered(by_method: dict[str, list[Cell]], cells: Sequence[Cell]) -> str:
    """The share of the lost accuracy that comes back: total change over total loss, by set and kind."""
    lost = lost_accuracy(cells)
    body = []
    for kind in DAMAGE:
        for name in SETS:
            line = []
            for found in by_method.values():
                here = [c for c in found if c.kind == kind and c.name == name and lost.get(c.place, 0.0) > 0]
                total = sum(lost[c.place] for c in here)
                line.append(f"{sum(c.change for c in here) / total:+.0%}" if here else "")
            if any(line):
                places = {p: v for p, v in lost.items() if p[0] == name and _kind_of(cells, p) == kind}
                body.append([kind, name, f"{mean(places.values()):.1f}", *line])
    return (
        table(["kind", "set", "mean loss", *by_method], body) if body else "No attacked or noisy target was measured."
    )


def _kind_of(cells: Sequence[Cell], place: tuple[str, str, str]) -> str:
    return next(cell.kind for cell in cells if cell.place == place)


def _risk(by_method: dict[str, list[Cell]]) -> str:
    """How often a method acts, and what happens in the cells in which it does."""
    body = []
    for name, cells in by_method.items():
        s = summary(cells)
        body.append([name, _percent(s.acted), _percent(s.harmed_of_acted), _points(s.change_of_acted)])
    return table(["method", "coverage: acted", "risk: harmed of those", "mean change of those"], body)


def _only(by_method: dict[str, list[Cell]], kinds: Sequence[str]) -> dict[str, list[Cell]]:
    return {name: [cell for cell in cells if cell.kind in kinds] for name, cells in by_method.items()}


def _points(value: float) -> str:
    return f"{value:+.2f}"


def _percent(value: float) -> str:
    return f"{100 * value:.1f} %"


def table(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [head, ["---"] * len(head), *body]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
