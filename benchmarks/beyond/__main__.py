"""The command line of the harness.

python -m benchmarks.beyond train --store DIR [--sources cora,citeseer] [--seeds 5] [--device cuda] [--jobs 8]
python -m benchmarks.beyond pack --store DIR --out DIR [--sources ...]
python -m benchmarks.beyond unpack --store DIR FILE.tar ...
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from benchmarks.beyond.archive import pack, unpack
from benchmarks.beyond.sources import BACKBONES, SETS
from benchmarks.beyond.train import train
from graphmend.errors import listed, require


def main() -> None:
    """Parse and run one command."""
    arguments = _parser().parse_args()
    if getattr(arguments, "data", None):
        os.environ["GRAPHMEND_DATA"] = str(arguments.data.absolute())  # worker processes read it, too
    if arguments.command == "train":
        train(
            arguments.store,
            names=arguments.sources or list(SETS),
            seeds=arguments.seeds,
            backbones=arguments.backbones or list(BACKBONES),
            device=arguments.device,
            jobs=arguments.jobs,
        )
    elif arguments.command == "pack":
        pack(arguments.store, arguments.out, only=arguments.sources, jobs=arguments.jobs)
    elif arguments.command == "unpack":
        print(f"{unpack(arguments.archives, arguments.store)} files")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.beyond", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    store = argparse.ArgumentParser(add_help=False)
    store.add_argument("--store", type=Path, required=True, help="folder of models and attacked graphs")
    some = argparse.ArgumentParser(add_help=False)
    some.add_argument("--sources", type=_names, help=f"some of {', '.join(SETS)}, with commas; all by default")
    some.add_argument("--jobs", type=int, default=1, help="processes")
    runs = argparse.ArgumentParser(add_help=False)
    runs.add_argument("--seeds", type=int, default=5, help="run seeds, counted from 0")
    runs.add_argument("--backbones", type=_backbones, help=f"some of {', '.join(BACKBONES)}; all by default")
    runs.add_argument("--device", default="cpu")
    runs.add_argument("--data", type=Path, help="folder of the published data; by default GRAPHMEND_DATA")
    commands.add_parser("train", parents=[store, some, runs], help="train models and attack graphs")
    packing = commands.add_parser("pack", parents=[store, some], help="write the store into archives")
    packing.add_argument("--out", type=Path, required=True)
    unpacking = commands.add_parser("unpack", parents=[store], help="read archives into the store")
    unpacking.add_argument("archives", type=Path, nargs="+")
    return parser


def _names(text: str) -> list[str]:
    return _chosen(text, list(SETS), "source")


def _backbones(text: str) -> list[str]:
    return _chosen(text, list(BACKBONES), "backbone")


def _chosen(text: str, known: list[str], kind: str) -> list[str]:
    names = text.split(",")
    wrong = [name for name in names if name not in known]
    require(not wrong, f"there is no {kind} {listed(wrong)}; choose some of {', '.join(known)}")
    return names


if __name__ == "__main__":
    main()
