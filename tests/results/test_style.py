"""The look of figures: colours that everybody can tell apart, and titles that are never cut."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from graphmend.results import style
from support.colours import SIGHT, difference

pytest.importorskip("matplotlib")


@pytest.mark.parametrize("sight", SIGHT)
def test_any_two_colours_of_classes_can_be_told_apart(sight: str) -> None:
    pairs = itertools.combinations(style.COLOURS, 2)
    assert min(difference(a, b, sight) for a, b in pairs) > 15  # a difference of 2.3 can just be seen


def test_classes_beyond_the_palette_share_a_colour() -> None:
    colours = [style.class_colour(number) for number in range(style.CLASSES + 2)]
    assert colours[-1] == colours[-2] == style.OTHERS not in colours[:-2] and len(set(colours)) == style.CLASSES + 1


def test_titles_are_wrapped_and_whole() -> None:
    text = "What a figure shows may take some more words than fit into a single line of it, and all of them count"
    figure = style.figure(5, 4)
    axes = figure.subplots()
    style.heading(figure, text, text)
    style.title(axes, text)
    style.dress(figure)
    figure.draw_without_rendering()
    width = figure.bbox.width
    for part in (figure._suptitle, *figure.texts, axes._left_title):
        assert part.get_text().replace("\n", " ") == text
        assert part.get_window_extent().x0 >= 0 and part.get_window_extent().x1 <= width
    assert len(figure.texts) == 2


@pytest.mark.parametrize("note", ["", "A note that is so long that it takes several lines of the figure. " * 3])
def test_legend_note_and_panels_do_not_cover_each_other(note: str) -> None:
    figure = style.figure(6, 4)
    axes = figure.subplots()
    axes.set(xlabel="a word below the axis")
    style.legend(figure, axes, style.class_marks(range(12), "class", "ring"))
    style.heading(figure, "What it shows", note)
    figure.draw_without_rendering()
    legend, label = figure.legends[0].get_window_extent(), axes.xaxis.label.get_window_extent()
    assert (
        legend.y0 >= 0 and legend.y1 <= label.y0 and (not note or figure.texts[-1].get_window_extent().y1 <= legend.y0)
    )


def test_faint_points_are_below_all_others() -> None:
    axes = style.figure(5, 4).subplots()
    style.points(axes, np.arange(6.0).reshape(3, 2), ["#000000"] * 3, np.array([False, True, False]))
    (drawn,) = axes.collections
    assert drawn.get_offsets().tolist()[0] == [2.0, 3.0] and drawn.get_alpha()[0] < drawn.get_alpha()[1]


def test_many_points_are_small_and_few_are_large() -> None:
    axes = style.figure(5, 4).subplots()
    for number in (50, 10_000):
        style.points(axes, np.zeros((number, 2)), ["#000000"] * number)
    few, many = axes.collections
    assert few.get_sizes()[0] > many.get_sizes()[0] and few.get_alpha() > many.get_alpha()


def test_numbers_of_classes_do_not_cover_each_other() -> None:
    axes = style.figure(5, 4).subplots()
    places = np.array([[0.0, 0.0], [0.001, 0.0], [1.0, 1.0]])
    style.labels(axes, places, np.array([0, 1, 2]))
    assert [text.get_text() for text in axes.texts] == ["0", "2"]
