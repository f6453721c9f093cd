"""How every figure looks: one palette, whole titles, quiet axes, and many points as a density.

Nothing of matplotlib's global state is read or changed: a figure is made, drawn on, and dressed at the end.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from graphmend.errors import listed, optional_module, require
from graphmend.files.files import write_atomically

__all__ = [
    "AFTER",
    "BAD",
    "BEFORE",
    "CLASSES",
    "COLOURS",
    "FAINT",
    "GOOD",
    "INK",
    "MUTED",
    "OTHERS",
    "class_colour",
    "class_marks",
    "dress",
    "figure",
    "heading",
    "legend",
    "points",
    "save",
    "title",
]

Array = np.ndarray[Any, np.dtype[Any]]

COLOURS = (
    "#3f90da", "#ffa90e", "#bd1f01", "#94a4a2", "#832db6", "#a96b59", "#e76300", "#b9ac70", "#717581", "#92dadd",
)  # fmt: skip
"""Ten colours that are told apart with any kind of colour vision (Petroff, 2021, arXiv:2107.02270)."""
CLASSES = len(COLOURS)  # classes with a colour of their own
OTHERS = "#d9d9d9"
INK, MUTED, FAINT = "#1f2430", "#5b6270", "#e3e6ea"
BEFORE, AFTER = "#717581", "#3f90da"
GOOD, BAD = "#3f90da", "#bd1f01"
NEAR = 0.05  # of a panel: closer than that, two numbers would cover each other
DENSE = 1500  # points of one kind above which their density is drawn
_INSTALL = "install it with: pip install 'graphmend[plot]'"
_MIDDLE = {"ha": "center", "va": "center"}
NOTE = 8.5  # points of the letters of a note
LEGEND, ENTRY = 0.3, 1.0  # inches that a line of a legend is high, and that a word in it is wide
_EM = 0.55  # mean width of a character, in units of the font's size
"""How wide a letter is on average."""


def class_colour(number: int) -> str:
    """The colour of a class; those beyond the palette share one."""
    return COLOURS[number] if 0 <= number < CLASSES else OTHERS


def figure(width: float, height: float) -> Any:
    """An empty ``matplotlib.figure.Figure`` of that many inches, in which nothing overlaps."""
    made = optional_module("matplotlib.figure", "a plot", _INSTALL).Figure(
        figsize=(width, height), dpi=130, layout="constrained", facecolor="white"
    )
    made.get_layout_engine().set(w_pad=0.12, h_pad=0.12, wspace=0.04, hspace=0.04)
    return made


def form_of(made: Any, path: str | Path) -> str:
    """The format that the ending of a file's name stands for, if figures can be saved in it."""
    form, forms = Path(path).suffix[1:].lower(), made.canvas.get_supported_filetypes()
    require(form in forms, f"a figure cannot be saved as {str(path)!r}; end the name with one of {listed(forms)}")
    return form


def save(made: Any, path: str | Path) -> None:
    """Write a figure; the ending decides on the format."""
    form = form_of(made, path)
    write_atomically(path, lambda temporary: made.savefig(temporary, format=form))


def wrapped(text: str, inches: float, size: float) -> str:
    """All of a text, in lines that fit into a width."""
    width = max(12, int(inches * 72 / (_EM * size)))
    return "\n".join(line for part in text.splitlines() for line in textwrap.wrap(part, width) or [""])


def heading(made: Any, text: str, note: str = "") -> None:
    """Write what a figure shows at its top, in full, and a note in smaller letters at its foot, below the legend."""
    width, height = made.get_size_inches()
    lines = wrapped(text, width - 0.4, 13)
    made.suptitle(lines, x=0.012, ha="left", fontsize=13, fontweight="bold", color=INK, parse_math=False)
    foot = 0.0
    if note:
        lines = wrapped(note, width - 0.4, NOTE)
        foot = ((lines.count("\n") + 1) * NOTE * 1.35 + 6) / 72 / height
        made.text(0.012, 5 / 72 / height, lines, fontsize=NOTE, color=MUTED, va="bottom", parse_math=False)
    for below in made.legends:
        below.set_in_layout(False)
        below.set_bbox_to_anchor((0, foot, 1, 1 - foot), made.transFigure)
        foot += LEGEND * math.ceil(len(below.get_texts()) / below._ncols) / height
    made.get_layout_engine().set(rect=(0, foot, 1, 1 - foot))


def title(axes: Any, text: str, note: str = "") -> None:
    """What a panel shows: at its top on the left, wrapped to its width and never cut."""
    made = axes.figure
    columns = axes.get_gridspec().ncols if axes.get_gridspec() is not None else 1
    width = made.get_size_inches()[0] / columns - 0.7
    lines = wrapped(text, width, 10.5) + (f"\n{wrapped(note, width, 10.5)}" if note else "")
    axes.set_title(lines, loc="left", fontsize=10.5, color=INK, pad=8, parse_math=False)


def dress(made: Any) -> None:
    """Quiet axes for all panels of a finished figure: no box, thin ticks, a faint grid behind the data."""
    for axes in made.axes:
        axes.set_facecolor("white")
        axes.spines[["top", "right"]].set_visible(False)
        axes.spines[["left", "bottom"]].set_color("#b5bac2")
        axes.tick_params(colors=MUTED, labelsize=8.5, length=3, width=0.6)
        axes.xaxis.label.set(color=MUTED, fontsize=9)
        axes.yaxis.label.set(color=MUTED, fontsize=9)
        axes.set_axisbelow(True)
        legend = axes.get_legend()
        if legend is not None:
            legend.set_frame_on(False)
            for text in legend.get_texts():
                text.set(color=INK, fontsize=8.5)


def density(axes: Any, places: Array) -> None:
    """The density of points, if there are too many to draw each: darker hexagons hold more of them."""
    axes.hexbin(*places.T, gridsize=45, bins="log", cmap="Blues", mincnt=1, linewidths=0)


def labels(axes: Any, places: Array, groups: Array) -> None:
    """Write the number of each class where its points are, unless numbers would cover each other."""
    effects = optional_module("matplotlib.patheffects", "a plot", _INSTALL)
    halo = [effects.withStroke(linewidth=2.5, foreground="white")]
    size = np.ptp(places, axis=0) + 1e-12
    taken: list[Array] = []
    for number in np.unique(groups)[:CLASSES]:
        place = np.median(places[groups == number], axis=0)
        if all(np.abs((place - other) / size).max() > NEAR for other in taken):
            taken.append(place)
            axes.text(*place, str(number), fontsize=12, fontweight="bold", color=INK, path_effects=halo, **_MIDDLE)


def class_marks(groups: Iterable[int], name: str, ring: str = "") -> dict[str, dict[str, str]]:
    """What the colours of classes stand for, and rings if there is a word for them; for :func:`legend`."""
    present = sorted(set(groups))
    marks = {f"{name} {number}": {"color": class_colour(number)} for number in present if number < CLASSES}
    marks |= {"others": {"color": OTHERS}} if len(marks) < len(present) else {}
    return marks | ({ring: {"facecolors": "none", "edgecolors": INK}} if ring else {})


def legend(made: Any, axes: Any, marks: Mapping[str, Any], inches: float = ENTRY) -> None:
    """What dots or lines stand for, below all panels; call it before :func:`heading`.

    Args:
        made: The figure.
        axes: One of its panels.
        marks: How a dot looks by its word, or what is drawn already, such as a line.
        inches: How wide a word is.
    """
    handles = [axes.scatter([], [], s=30, **look) if isinstance(look, dict) else look for look in marks.values()]
    made.legend(
        handles,
        list(marks),
        loc="lower left",
        ncols=max(1, int(made.get_size_inches()[0] / inches)),
        frameon=False,
        fontsize=8.5,
        labelcolor=INK,
        columnspacing=1.2,
        handletextpad=0.4,
    )


def points(axes: Any, places: Array, colours: list[str], is_faint: Array | None = None, **more: Any) -> None:
    """Draw points, small and transparent if there are many, so that their density shows.

    Args:
        axes: Where to draw.
        places: The points.
        colours: One for each.
        is_faint: Those that are hardly to be seen, below all others.
        more: For matplotlib's ``scatter``.
    """
    many = min(1.0, max(0.0, (len(places) - 200) / (DENSE - 200)))
    size, alpha = 26 - 18 * many, 0.9 - 0.45 * many
    look: dict[str, Any] = {"s": size, "linewidths": 0, "rasterized": len(places) > DENSE, **more}
    if is_faint is None:
        axes.scatter(*places.T, c=colours, alpha=alpha, **look)
        return
    order = np.argsort(~is_faint, kind="stable")
    shares = np.where(is_faint[order], 0.2, 0.85)
    axes.scatter(*places[order].T, c=[colours[k] for k in order], alpha=shares, **look)
