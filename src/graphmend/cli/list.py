"""``graphmend list``."""

from __future__ import annotations

from typing import Annotated

import typer

from graphmend.cli.common import JsonFlag, reported
from graphmend.errors import choose

FAMILIES = {
    "backbones": "models; 'graphmend train --backbone NAME', graphmend.lab.backbones",
    "trainers": "ways to train a model; 'graphmend train --trainer NAME', graphmend.lab.training",
    "adapters": "methods that mend; 'graphmend mend --adapter NAME', graphmend.adapters",
    "surrogates": "losses without test labels; 'graphmend mend --surrogate NAME', graphmend.surrogates",
    "views": "random changes for contrastive losses; 'graphmend mend --view NAME', graphmend.transforms",
    "corruptions": "harm to a graph that knows no model; graphmend.lab.data",
    "purifiers": "filters of suspicious edges; graphmend.transforms",
    "attacks": "changes of edges that harm a model most; graphmend.lab.attacks",
    "datasets": "graphs, and the shift between training and test; 'graphmend train --dataset NAME', graphmend.lab.data",
    "shifts": "simulated differences between training and test graphs; graphmend.lab.data.shifts",
    "metrics": "scores of predictions; graphmend.results.scores",
}
"""What each family is, and where its names are used."""


@reported
def list_(
    family: Annotated[
        str | None,
        typer.Argument(help=f"One of {', '.join(FAMILIES)}; without it, all.", metavar="FAMILY", show_default=False),
    ] = None,
    json_: JsonFlag = False,
) -> None:
    """List everything that has a name: what it does, in one sentence, and what it needs.

    Example:

    ```
    graphmend list
    graphmend list adapters --json
    ```
    """
    if family is not None:
        choose("family", family, FAMILIES)
    from graphmend.cli.list_run import run_list

    run_list(FAMILIES if family is None else {family: FAMILIES[family]}, json_)
