"""Renew the tables, figures and packed runs of ``docs/results.md`` from a folder of results.

Experiments without a single result are left out, and so are those that other pages show. Run it after more seeds:

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
from graphmend.lab.bench.store import Store

DOCS = Path(__file__).parents[4] / "docs" / "results"
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
        if name in ELSEWHERE or not any(store.path(run).exists() for run in runs):
            continue
        table = experiment.drawn(experiment.choice, store)
        figure = experiment.pictured(experiment.choice, store)
        if table is not None:
            write_text(DOCS / "tables" / f"{name}.md", table.markdown())
        if figure is not None:
            write_atomically(DOCS / "tables" / f"{name}.png", partial(figure.savefig, format="png", dpi=110))
        packed = store.pack(DOCS / "runs" / f"{name}.tar.xz", runs)
        print(f"{name}: {packed} of {len(runs)} runs")


if __name__ == "__main__":
    main()
