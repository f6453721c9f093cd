"""Hands the figures of a gallery page to sphinx-gallery, which by itself sees those of pyplot only."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure
from sphinx_gallery.scrapers import figure_rst


def figures(block: Any, variables: dict[str, Any], settings: dict[str, Any]) -> str:
    """Save every new figure among the variables of a page, and return what shows them."""
    values = variables["example_globals"].values()
    paths = []
    for figure in [value for value in values if isinstance(value, Figure) and not hasattr(value, "is_shown")]:
        figure.is_shown = True
        path = next(variables["image_path_iterator"])
        figure.savefig(path, dpi=140)
        paths.append(path)
    return figure_rst(paths, settings["src_dir"])
