"""Many random inputs: ``python -m fuzz.run --inputs 20000``, or one of them again: ``--only calls:17``.

Exit code 1 if any of them ended in something else than a result or a refusal, or took too much time or memory.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter, defaultdict
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from fuzz.cases import REFUSAL, RESULT, VIOLATION, Outcome
from fuzz.families import FAMILIES, inputs
from fuzz.workers import MEMORY_LIMIT, TIME_LIMIT, Limits, run_inputs


class Summary:
    """Counts, extremes and violations by family."""

    def __init__(self) -> None:
        self.counts: dict[str, Counter[str]] = defaultdict(Counter)
        self.slowest: dict[str, Outcome] = {}
        self.largest: dict[str, Outcome] = {}
        self.violations: list[Outcome] = []

    def add(self, outcome: Outcome) -> None:
        family = outcome.family
        self.counts[family][outcome.kind] += 1
        if family not in self.slowest or outcome.seconds > self.slowest[family].seconds:
            self.slowest[family] = outcome
        if family not in self.largest or outcome.peak > self.largest[family].peak:
            self.largest[family] = outcome
        if outcome.kind == VIOLATION:
            self.violations.append(outcome)

    def table(self) -> Table:
        table = Table(title="Every input ends in a result or a refusal")
        for column in ("family", "inputs", "results", "refusals", "violations", "slowest", "most memory"):
            table.add_column(column, justify="left" if column == "family" else "right")
        for family, counts in sorted(self.counts.items()):
            slow, large = self.slowest[family], self.largest[family]
            numbers = [counts.total(), *(counts[kind] for kind in (RESULT, REFUSAL, VIOLATION))]
            extremes = [f"{slow.seconds:.1f} s (seed {slow.seed})", f"{large.peak / 2**30:.2f} GiB (seed {large.seed})"]
            table.add_row(family, *map(str, numbers), *extremes)
        return table

    def kinds(self) -> dict[str, list[Outcome]]:
        """Violations that look alike, the most frequent first."""
        alike: dict[str, list[Outcome]] = defaultdict(list)
        for outcome in self.violations:
            alike[outcome.problem.partition(": ")[0]].append(outcome)
        return dict(sorted(alike.items(), key=lambda item: -len(item[1])))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=20_000, help="how many")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first; the others count up from it")
    parser.add_argument("--only", metavar="FAMILY[:SEED]", help=f"one family of {', '.join(FAMILIES)}, or one input")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seconds", type=float, default=TIME_LIMIT, help="limit for each input")
    parser.add_argument("--memory", type=float, default=MEMORY_LIMIT / 2**30, help="limit of a process in GiB")
    parser.add_argument("--log", type=Path, help="write every violation with its traceback into this file")
    return parser.parse_args()


def main() -> int:
    """Run the inputs and say what became of them; the exit code."""
    options, console = _arguments(), Console(stderr=False)
    family, _, one = (options.only or "").partition(":")
    if family and family not in FAMILIES:
        console.print(f"there is no family {family}; choose one of {', '.join(FAMILIES)}")
        return 2
    chosen = [(family, int(one))] if one else list(inputs(options.inputs, options.seed))
    if family and not one:
        chosen = [(family, options.seed + index) for index in range(options.inputs)]
    summary = Summary()
    columns = (TextColumn("fuzzing"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[found]} violations"))
    with Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=Console(stderr=True)) as progress:
        task = progress.add_task("", total=len(chosen), found=0)
        limits = Limits(options.seconds, int(options.memory * 2**30))
        interrupted = False
        try:
            for outcome in run_inputs(chosen, FAMILIES, min(options.processes, len(chosen)), limits):
                summary.add(outcome)
                progress.update(task, advance=1, found=len(summary.violations))
                if one:
                    text = f"{outcome.name}\n{outcome.kind} {outcome.problem}\n{outcome.details}".rstrip()
                    console.print(escape(repr(text)[1:-1].replace("\\n", "\n")), highlight=False)
        except KeyboardInterrupt:
            interrupted = True  # what is known so far is worth telling
    console.print(summary.table())
    for kind, outcomes in summary.kinds().items():
        first = outcomes[0]
        seeds = " ".join(f"{outcome.family}:{outcome.seed}" for outcome in outcomes[:8])
        console.print(f"[bold]{len(outcomes)} x[/bold] {escape(kind)}", highlight=False)
        console.print(f"    {escape(repr(first.problem))}", highlight=False, soft_wrap=True)
        console.print(
            f"    {escape(repr(first.name))}\n    again with --only: {seeds}", highlight=False, soft_wrap=True
        )
    if options.log is not None:
        texts = [f"{o.family}:{o.seed} {o.name!r}\n{o.problem!r}\n{o.details}\n" for o in summary.violations]
        options.log.write_text("\n".join(texts), encoding="utf-8")
    return 130 if interrupted else 1 if summary.violations else 0


if __name__ == "__main__":
    sys.exit(main())
