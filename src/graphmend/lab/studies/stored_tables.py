"""Renew the tables, figures, packed runs and numbers of ``docs/results.md`` from a folder of results.

Experiments without a result lose their files; those that other pages show are left out. Run it after more seeds:

    python -m graphmend.lab.studies.stored_tables --store bench
    python -m graphmend.lab.studies.stored_tables --store quiet --experiment efficiency
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

from graphmend.files.files import write_atomically, write_text
from graphmend.lab.bench.execute import with_needs
from graphmend.lab.bench.experiments import EXPERIMENTS
from graphmend.lab.bench.forest import forest
from graphmend.lab.bench.page import filled, opened
from graphmend.lab.bench.store import Store

DOCS = Path(__file__).parents[4] / "docs" / "results"
PAGE = DOCS.parent / "results.md"
ELSEWHERE = ("methods", "abnormal-methods")
"""Shown, with runs of their own, by ``docs/methods.md``."""


def main() -> None:
    """Render and pack everything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", type=Path, default=Path("bench"))
    parser.add_argument("--experiment", choices=EXPERIMENTS, help="only this one")
    options = parser.parse_args()
    store = Store(options.store)
    for name, experiment in EXPERIMENTS.items():
        if options.experiment not in (None, name):
            continue
        runs = with_needs(experiment.runs(experiment.choice))
        if name in ELSEWHERE:
            continue
        if not any(store.result(run) is not None for run in experiment.runs(experiment.choice)):
            for old in (*DOCS.glob(f"tables/{name}.*"), *DOCS.glob(f"runs/{name}.*")):
                old.unlink()  # of an earlier definition
            continue
        table = experiment.drawn(experiment.choice, store)
        figure = experiment.pictured(experiment.choice, store)
        if table is not None:
            write_text(DOCS / "tables" / f"{name}.md", table.markdown())
        if figure is not None:
            write_atomically(DOCS / "tables" / f"{name}.png", partial(figure.savefig, format="png", dpi=110))
        packed = store.pack(DOCS / "runs" / f"{name}.tar.xz", runs)
        print(f"{name}: {packed} of {len(runs)} runs")
    with opened(DOCS) as stored:
        write_text(PAGE, filled(PAGE, stored))
        write_atomically(DOCS / "tables" / "forest.png", partial(forest(stored).savefig, format="png", dpi=110))


if __name__ == "__main__":
    main()
