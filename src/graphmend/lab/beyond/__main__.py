"""The command line of the harness.

python -m graphmend.lab.beyond train --store DIR [--suite trust] [--sources "cora,half-cora-*"] [--jobs 15]
python -m graphmend.lab.beyond pack --store DIR --out DIR [--sources ...]
python -m graphmend.lab.beyond unpack --store DIR FILE.tar ...
python -m graphmend.lab.beyond measure --store DIR --out DIR [--suite trust] [--methods gate,gate-blind] [--jobs 8]
python -m graphmend.lab.beyond tables --out DIR
python -m graphmend.lab.beyond all --store DIR --out DIR --docs docs [--suite trust] [--sources ...] [--jobs 8]

The last one does it all: it trains what the store lacks, measures the gate, collects its evidence and writes the page
(:mod:`graphmend.lab.beyond.page`); what exists is not done again, so it can be stopped and called again at any time.

A suite has a store of models in common with the others, but its rows go into a folder of their own.
"""

from __future__ import annotations

import argparse
import fnmatch
import math
import os
from collections.abc import Callable, Iterable
from pathlib import Path

from graphmend.files.files import write_bytes
from graphmend.lab.beyond.archive import pack, unpack
from graphmend.lab.beyond.collect import collect
from graphmend.lab.beyond.measure import measure
from graphmend.lab.beyond.methods import names
from graphmend.lab.beyond.models import BACKBONES
from graphmend.lab.beyond.page import page
from graphmend.lab.beyond.picture import picture
from graphmend.lab.beyond.rows import read_rows
from graphmend.lab.beyond.sources import HALVES, SETS, Source
from graphmend.lab.beyond.suites import SUITES, chosen
from graphmend.lab.beyond.tables import report
from graphmend.lab.beyond.targets import KINDS
from graphmend.lab.beyond.train import train

SOME = f"{', '.join(name for name in SETS if name not in HALVES)}, half-<graph>-<way>-<side>[-all]"


def main() -> None:
    """Parse and run one command."""
    arguments = _parser().parse_args()
    if getattr(arguments, "data", None):
        os.environ["GRAPHMEND_DATA"] = str(arguments.data.absolute())  # worker processes read it, too
    if arguments.command == "train":
        attacked = ("test", "val") if arguments.suite == "readme" else ("test",)
        train(arguments.store, _sources(arguments), attacked=attacked, device=arguments.device, jobs=arguments.jobs)
    elif arguments.command == "pack":
        pack(arguments.store, arguments.out, only=arguments.sources, jobs=arguments.jobs)
    elif arguments.command == "unpack":
        print(f"{unpack(arguments.archives, arguments.store)} files")
    elif arguments.command == "measure":
        measure(
            _sources(arguments),
            arguments.store,
            arguments.out,
            methods=arguments.methods or names(),
            kinds=arguments.kinds,
            suite=arguments.suite,
            device=arguments.device,
            jobs=arguments.jobs,
        )
    elif arguments.command == "all":
        _all(arguments)
    elif arguments.command == "tables":
        print(report(arguments.out, arguments.methods), end="")
    elif arguments.command == "picture":
        path = arguments.out / "cells.png"
        write_bytes(path, picture(read_rows(arguments.out), arguments.methods))
        print(path)


def _all(arguments: argparse.Namespace) -> None:
    """Train, measure, collect, and write the page."""
    for suite in SUITES if arguments.suite is None else (arguments.suite,):
        arguments.suite = suite
        sources, jobs, device = _sources(arguments), arguments.jobs, arguments.device
        train(arguments.store, sources, attacked=("test",), device=device, jobs=jobs)
        rows, found = (arguments.out / name / suite for name in ("rows", "evidence"))
        measure(sources, arguments.store, rows, methods=("gate", "gate-blind"), suite=suite, device=device, jobs=jobs)
        collect(sources, arguments.store, found, suite=suite, device=device, jobs=jobs, seconds=math.inf)
    looks = [arguments.docs / "results" / f"held_out{name}_cpu.jsonl" for name in ("_first", "", "_third")]
    page(arguments.out / "rows", arguments.out / "evidence", looks, arguments.docs)


def _sources(arguments: argparse.Namespace) -> list[Source]:
    names, backbones, seeds = arguments.sources, arguments.backbones, arguments.seeds
    return list(chosen(arguments.suite, names=names, backbones=backbones, seeds=seeds))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m graphmend.lab.beyond", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    store = argparse.ArgumentParser(add_help=False)
    store.add_argument("--store", type=Path, required=True, help="folder of models and attacked graphs")
    some = argparse.ArgumentParser(add_help=False)
    some.add_argument("--sources", type=_some_of(SETS), help=f"some of {SOME}, with commas; all by default")
    some.add_argument("--jobs", type=int, default=1, help="processes")
    runs = argparse.ArgumentParser(add_help=False)
    runs.add_argument("--suite", choices=SUITES, default="readme", help="which sets, models, seeds and targets")
    runs.add_argument("--seeds", type=int, help="run seeds, counted from 0; by default those of the suite")
    runs.add_argument("--backbones", type=_some_of(BACKBONES), help=f"some of {', '.join(BACKBONES)}; all by default")
    runs.add_argument("--device", default="cpu")
    runs.add_argument("--data", type=Path, help="folder of the published data; by default GRAPHMEND_DATA")
    commands.add_parser("train", parents=[store, some, runs], help="train models and attack graphs")
    packing = commands.add_parser("pack", parents=[store, some], help="write the store into archives")
    packing.add_argument("--out", type=Path, required=True)
    unpacking = commands.add_parser("unpack", parents=[store], help="read archives into the store")
    unpacking.add_argument("archives", type=Path, nargs="+")
    rows = argparse.ArgumentParser(add_help=False)
    rows.add_argument("--out", type=Path, required=True, help="folder of the rows, continued if it exists")
    rows.add_argument("--methods", type=_some_of(names()), help=f"some of {', '.join(names())}; all by default")
    measuring = commands.add_parser("measure", parents=[store, some, runs, rows], help="measure methods on targets")
    measuring.add_argument("--kinds", type=_some_of(KINDS), help=f"some of {', '.join(KINDS)}; all by default")
    whole = commands.add_parser("all", parents=[store, some, runs], help="everything, up to the page")
    whole.add_argument("--out", type=Path, required=True, help="folder of rows and evidence, continued if it exists")
    whole.add_argument("--docs", type=Path, required=True, help="where the page goes")
    whole.set_defaults(suite=None)
    commands.add_parser("tables", parents=[rows], help="write tables of the rows")
    commands.add_parser("picture", parents=[rows], help="draw the rows")
    return parser


def _some_of(known: Iterable[str]) -> Callable[[str], list[str]]:
    """A reader of names, or patterns such as ``half-cora-*``, with commas between them."""
    choices = list(known)

    def read(text: str) -> list[str]:
        found = {pattern: fnmatch.filter(choices, pattern) for pattern in text.split(",")}
        wrong = [pattern for pattern, names in found.items() if not names]
        if wrong:
            raise argparse.ArgumentTypeError(f"there is no {', '.join(wrong)}; choose some of {', '.join(choices)}")
        return list(dict.fromkeys(name for names in found.values() for name in names))

    return read


if __name__ == "__main__":
    main()
