"""The stream so far as one page of HTML that needs nothing from elsewhere."""

from __future__ import annotations

from html import escape
from typing import Any

from graphmend.errors import printable
from graphmend.monitor.monitor import Monitor
from graphmend.monitor.signs import KINDS
from graphmend.results.report.look import policy, style_sheet

__all__ = ["page"]

COLOURS = {"rows": 0, "columns": 2, "edges": 4, "unknown": 6, "mix": 8}
"""Places in the palette, told apart with any kind of colour vision."""
WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 880, 320, 44, 40, 16
FOUND = ' <b class="down">found</b>'
SHOWN = 30  # entries in the table
LONGEST = 200  # characters of a name or a sentence


def page(monitor: Monitor, title: str = "A stream of graphs") -> str:
    """A page with the alarm that stands, the evidence over time, and the last graphs."""
    state, alarm, css = monitor.state, monitor.alarm, style_sheet()
    badge = '<span class="badge failed">alarm</span>' if alarm else '<span class="badge">no alarm</span>'
    status = f"No sign that the stream has changed, after {state.graphs:,} graph{'' if state.graphs == 1 else 's'}"
    if alarm is not None:
        name = f" ({_shown(alarm.since_name)})" if alarm.since_name else ""
        status = f"Since graph {alarm.since}{name} the stream has changed: {_shown(KINDS[alarm.kind])}"
    counts = "".join(_tile(_shown(name), f"{number:,}") for name, number in sorted(state.decisions.items()))
    tiles = _tile("graphs", f"{state.graphs:,}") + counts
    if alarm is not None:
        tiles += _tile("alarm with graph", f"{alarm.graph:,}") + _tile("kinds found", escape(", ".join(alarm.kinds)))
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy(css)}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<title>{_shown(title)}</title><link rel="icon" href="data:,"><style>{css}</style></head><body>\n'
        f'<header><p class="where">GraphMend monitor · <bdi>{_shown(title)}</bdi></p><p>{badge}</p>'
        f'<h1>{status}</h1><dl class="tiles">{tiles}</dl></header>\n'
        f'<main id="main">{_evidence(monitor)}{_last(monitor)}</main>'
        "<footer><p>Written by GraphMend. This page stands on its own: it loads nothing and sends nothing.</p></footer>"
        "</body></html>\n"
    )


def _tile(name: str, value: str) -> str:
    return f"<div><dt>{name}</dt><dd>{value}</dd></div>"


def _evidence(monitor: Monitor) -> str:
    """The evidence for each kind of trouble over time, with what it is now and what would suffice."""
    found, capital = monitor.found, monitor.capital
    legend = "".join(
        f"<li>{_dot(kind)}<b>{kind}</b>: {escape(text)}, evidence {capital[kind]:+.1f}"
        f"{FOUND if kind in found else ''}</li>"
        for kind, text in KINDS.items()
    )
    return (
        '<section aria-labelledby="h-evidence"><h2 id="h-evidence">Is the stream still what it was?</h2>'
        f'{_drawing(monitor)}<ul class="keys">{legend}</ul>'
        '<p class="note">For each kind of trouble the drawing shows how much evidence there is that the stream is no '
        f"longer what it was, as a power of ten. A stream that never changes ever reaches the dashed line at "
        f"{monitor.limit:.1f} with a probability of at most {monitor.state.rate:g}. A fault that was there from the "
        "first graph on does not show, and that the stream has changed does not say that something is wrong.</p>"
        "</section>"
    )


def _dot(kind: str) -> str:
    circle = f'<circle cx="5" cy="5" r="5" class="c{COLOURS[kind]}"/>'
    return f'<svg class="dot" viewBox="0 0 10 10" aria-hidden="true">{circle}</svg>'


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
        return round(x, 1), round(TOP + (top - value) / (top - low) * (HEIGHT - BOTTOM - TOP), 1)

    parts = []
    for value, kind, word in ((monitor.limit, "bar", f"{monitor.limit:.1f}"), (0.0, "axis", "0")):
        y = at(first, value)[1]
        parts.append(f'<line class="{kind}" x1="{LEFT}" x2="{WIDTH}" y1="{y}" y2="{y}"/>')
        parts.append(f'<text class="soft" x="0" y="{y + 4}">{word}</text>')
    for kind, colour in COLOURS.items():
        points = [at(entry["graph"], entry["capital"][kind]) for entry in recent if kind in entry["capital"]]
        parts.append(f'<polyline class="s{colour}" points="{" ".join(f"{x},{y}" for x, y in points)}"/>')
    since = monitor.alarm.since if monitor.alarm is not None else -1
    if since >= first:
        x = at(since, 0)[0]
        side, anchor = (-6, "end") if x > WIDTH / 2 else (6, "start")
        parts.append(f'<line class="since" x1="{x}" x2="{x}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>')
        parts.append(f'<text x="{x + side}" y="{TOP + 10}" text-anchor="{anchor}">since graph {since}</text>')
    parts.append(f'<text class="soft" x="{LEFT}" y="{HEIGHT - 8}">graph {first}</text>')
    parts.append(f'<text class="soft" x="{WIDTH - 10}" y="{HEIGHT - 8}" text-anchor="end">graph {last}</text>')
    label = "Evidence of a change by kind over the last graphs; the list below has the numbers of now"
    return f'<svg class="series" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">{"".join(parts)}</svg>'


def _last(monitor: Monitor) -> str:
    """The last graphs as a table."""
    rows = "".join(_row(entry) for entry in reversed(monitor.state.recent[-SHOWN:]))
    head = "".join(f'<th scope="col" class="n">{kind}</th>' for kind in KINDS)
    return (
        '<section aria-labelledby="h-last"><h2 id="h-last">The last graphs</h2>'
        '<p class="note">Scores by kind of trouble: the larger, the worse. Only their ranks among all before count.</p>'
        '<div class="scroll" tabindex="0" role="region" aria-labelledby="h-last"><table><thead><tr>'
        f'<th scope="col">graph</th><th scope="col">name</th><th scope="col">decision</th>{head}'
        f'<th scope="col">why</th></tr></thead><tbody>{rows}</tbody></table></div></section>'
    )


def _row(entry: dict[str, Any]) -> str:
    scores = "".join(f'<td class="n">{_number(entry["scores"], kind)}</td>' for kind in KINDS)
    sentence = entry["sentence"]
    if entry["alarm"]:
        sentence = f"alarm: {entry['alarm']['kind']}. {sentence}"
    name, decision = _shown(entry["name"]), _shown(entry["decision"])
    return (
        f'<tr><th scope="row">{entry["graph"]}</th><td><bdi>{name}</bdi></td><td>{decision}</td>{scores}'
        f'<td class="why">{_shown(sentence)}</td></tr>\n'
    )


def _number(scores: dict[str, float | None], kind: str) -> str:
    value = scores.get(kind)
    return "" if value is None else f"{value:.3g}"


def _shown(text: object) -> str:
    """Text from elsewhere, in which nothing is markup, and which is not endless."""
    shown = printable(str(text))
    return escape(shown if len(shown) <= LONGEST else f"{shown[:LONGEST]}\N{HORIZONTAL ELLIPSIS}")
