"""The tables in ``docs/models.md``; ``PYTHONPATH=src:tests python -m support.zoo.table`` writes them."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

from torch import nn

from support.zoo.specimens import SPECIMENS

PAGE = Path(__file__).parents[3] / "docs" / "models.md"
MENDED, REFUSED = "mended", "refused"


def rows(kind: str) -> list[list[str]]:
    """The cells of a table."""
    chosen = {name: s for name, s in SPECIMENS.items() if (s.refused is None) == (kind == MENDED)}
    if kind == MENDED:
        return [
            [name, signature(s.trained), _given(s.output), _given(s.task), "yes" if s.edges else "no"]
            for name, s in chosen.items()
        ]
    return [[name, signature(s.trained), str(s.refused)] for name, s in chosen.items()]


def signature(model: nn.Module) -> str:
    """How a model is called, with what has a default in brackets."""
    parameters = inspect.signature(model.forward).parameters.values()
    if parameters and all(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters):
        return "`forward(*args)`"
    needed = [p.name for p in parameters if p.default is p.empty]
    optional = [p.name for p in parameters if p.default is not p.empty]
    optional = [*optional[:3], "..."] if len(optional) > 3 else optional
    names = [", ".join(needed), f"[{', '.join(optional)}]" if optional else ""]
    return f"`{' '.join(filter(None, names))}`" if parameters else "nothing"


def _given(option: str | int | None) -> str:
    return "" if option is None else f"`{option!r}`"


def rendered(page: str) -> str:
    """The page with its tables and numbers as they are now."""
    headings = {
        MENDED: ["model", "`forward` takes", "`output=`", "`task=`", "edges, too"],
        REFUSED: ["model", "`forward` takes", "why"],
    }
    for kind, heading in headings.items():
        body = [heading, ["---"] * len(heading), *rows(kind)]
        table = "\n".join(f"| {' | '.join(cells)} |" for cells in body)
        pattern = rf"(<!-- {kind}: .*? -->\n).*?(<!-- end -->)"
        page, number = re.subn(
            pattern, lambda found, table=table: f"{found[1]}{table}\n{found[2]}", page, flags=re.DOTALL
        )
        assert number == 1, f"docs/models.md has no place for the table of models that are {kind}"
    return page


if __name__ == "__main__":
    PAGE.write_text(rendered(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
