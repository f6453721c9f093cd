"""The stream so far as one page of HTML that needs nothing from elsewhere."""

from __future__ import annotations

from html import escape
from typing import Any

from graphmend.errors import printable
from graphmend.monitor.monitor import Monitor
from graphmend.monitor.signs import KINDS

__all__ = ["page"]

COLOURS = {"rows": "#3f90da", "columns": "#bd1f01", "edges": "#832db6", "unknown": "#e76300", "mix": "#717581"}
"""Told apart with any kind of colour vision (Petroff, 2021)."""
WIDTH, HEIGHT, LEFT, BOTTOM = 880, 300, 40, 24
SHOWN = 30  # entries in the table
STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1f2430; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
.alarm { border-left: 4px solid #bd1f01; padding: .5rem 1rem; background: #fbecea }
.calm { border-left: 4px solid #3f90da; padding: .5rem 1rem; background: #ecf4fb }
.note { color: #5b6270 } svg { width: 100%; height: auto } text { font-size: 12px; fill: #5b6270 }
table { border-collapse: collapse; width: 100% } td, th { text-align: left; padding: .2rem .8rem .2rem 0;
border-bottom: 1px solid #e3e6ea; vertical-align: top } td.number, th.number { text-align: right }
"""


def page(monitor: Monitor, title: str = "A stream of graphs") -> str:
    """A page with the alarm that stands, the evidence over time, and the last graphs."""
    recent = monitor.state.recent
    alarm, title = monitor.alarm, escape(printable(title))
    status = f'<p class="calm">No alarm after {monitor.state.graphs} graphs.</p>'
    if alarm is not None:
        status = f'<p class="alarm">Alarm with graph {alarm.graph}: {_shown(alarm)}.</p>'
    counts = ", ".join(f"{number} {escape(name)}" for name, number in sorted(monitor.state.decisions.items()))
    note = (
        f"Graphs by decision: {counts or 'none'}. The drawing shows how much evidence there is, for each kind "
        f"of trouble, that the stream is no longer what it was, as a power of ten. A stream that never changes ever "
        f"reaches the dashed line with a probability of at most {monitor.state.rate:g}."
    )
    rows = "".join(_row(entry) for entry in reversed(recent[-SHOWN:]))
    head = "".join(f'<th class="number">{kind}</th>' for kind in KINDS)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>\n'
        f'<meta name="viewport" content="width=device-width"><style>{STYLE}</style></head><body>\n'
        f'<h1>{title}</h1>\n{status}\n{_drawing(monitor)}\n<p class="note">{note}</p>\n'
        f"<table><tr><th>graph</th><th></th><th>decision</th>{head}<th></th></tr>{rows}</table>\n</body></html>\n"
    )


def _drawing(monitor: Monitor) -> str:
    """The evidence for each kind over the last graphs."""
    recent = monitor.state.recent
    if not recent:
        return ""
    first, last = recent[0]["graph"], max(recent[-1]["graph"], recent[0]["graph"] + 1)
    values = [value for entry in recent for value in entry["capital"].values() if value is not None]
    top, low = max([1.3 * monitor.limit, *values]), min([-1.0, *values])

    def at(graph: float, value: float) -> tuple[float, float]:
        x = LEFT + (graph - first) / (last - first) * (WIDTH - LEFT - 10)
        return round(x, 1), round((top - value) / (top - low) * (HEIGHT - BOTTOM), 1)

    parts = []
    for value, dash, word in ((monitor.limit, "6 4", f"{monitor.limit:.1f}"), (0.0, "1 0", "0")):
        y = at(first, value)[1]
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH}" y1="{y}" y2="{y}" stroke="#94a4a2" stroke-dasharray="{dash}"/>')
        parts.append(f'<text x="0" y="{y + 4}">{word}</text>')
    if monitor.alarm is not None and monitor.alarm.since >= first:
        x = at(monitor.alarm.since, 0)[0]
        parts.append(f'<line x1="{x}" x2="{x}" y1="0" y2="{HEIGHT - BOTTOM}" stroke="#bd1f01" stroke-dasharray="2 3"/>')
        parts.append(f'<text x="{x + 4}" y="12">since {monitor.alarm.since}</text>')
    for place, (kind, colour) in enumerate(COLOURS.items()):
        points = [at(entry["graph"], entry["capital"][kind]) for entry in recent if kind in entry["capital"]]
        line = " ".join(f"{x},{y}" for x, y in points)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts.append(f'<text x="{LEFT + 110 * place}" y="{HEIGHT - 6}" style="fill:{colour}">{kind}</text>')
    parts.append(f'<text x="{WIDTH - 10}" y="{HEIGHT - 6}" text-anchor="end">graph {first} to {last}</text>')
    label = "Evidence of a change by kind, over the last graphs"
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">{"".join(parts)}</svg>'


def _row(entry: dict[str, Any]) -> str:
    scores = "".join(f'<td class="number">{_number(entry["scores"], kind)}</td>' for kind in KINDS)
    sentence = entry["sentence"]
    if entry["alarm"]:
        sentence = f"alarm: {entry['alarm']['kind']}. {sentence}"
    name, decision = _shown(entry["name"]), _shown(entry["decision"])
    return f"<tr><td>{entry['graph']}</td><td>{name}</td><td>{decision}</td>{scores}<td>{_shown(sentence)}</td></tr>\n"


def _number(scores: dict[str, float | None], kind: str) -> str:
    value = scores.get(kind)
    return "" if value is None else f"{value:.3g}"


def _shown(text: object) -> str:
    """Text from elsewhere, in which nothing is markup."""
    return escape(printable(str(text)))
