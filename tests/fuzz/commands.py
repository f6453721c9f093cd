"""The command line, in this process, with plausible arguments over sound and odd files.

The commands and their options are read from the program itself, so a new one is tried without a change here.
"""

from __future__ import annotations

import copy
import functools
import json
import os
import random
import string
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import typer
from safetensors.torch import save
from typer.testing import CliRunner

from fuzz.cases import Case, Violation, has_control_characters
from fuzz.graph_defects import CLASSES, IN
from fuzz.graph_files import NPZ, PT, arrays_of, odd_file, packed, saved, valid_npz, valid_pt
from fuzz.odd_values import WORDS, is_costly
from fuzz.own_files import odd_own_file, specimens
from graphmend import GraphMendError
from graphmend.adapters import ADAPTERS
from graphmend.cli import app
from graphmend.lab.backbones import BACKBONES, GCN
from graphmend.surrogates import SURROGATES
from graphmend.transforms import VIEWS

GATE = "gate"
LEFT_OUT = {"demo", "fetch", "check", "bench"}
"""Commands that take minutes or need the network."""
OFTEN = {"mend": 10, "info": 4, "card": 3, "data list": 0.2}
"""How often a command is tried, relative to 2 for others."""
LIKELY = {"graph": 0.97, "model": 0.97, "out": 0.97, "patch": 0.97, "path": 0.9, "json": 0.4, "quiet": 0.3} | {
    "epochs": 1.0, "adapter": 1.0, "factory": 0.01, "weights": 0.01, "dataset": 0.02, "device": 0.04, "no_card": 0.1,
    "questions": 0.3, "labels": 0.25, "verdict_only": 0.1,
}  # fmt: skip
"""How often an option is given; others are given seldom."""
FACTORY = """
from graphmend.lab.backbones import GCN
def build():
    return GCN({0}, 4, {1})
class Interrupted(GCN):
    def forward(self, *arguments):
        raise KeyboardInterrupt
def interrupted():
    return Interrupted({0}, 4, {1})
class Failing(GCN):
    def forward(self, *arguments):
        raise RuntimeError("one\\ntwo [/bold] \\x1b[31m")
def failing():
    return Failing({0}, 4, {1})
def broken():
    raise SystemExit(7)
def none():
    return None
"""


FACTORIES = ("build", "build", "build", "interrupted", "interrupted", "failing", "broken", "none", "missing")


@functools.cache
def _commands() -> dict[str, Any]:
    """Every command by the words that call it."""
    found: dict[str, Any] = {}

    def walk(command: Any, words: tuple[str, ...]) -> None:
        inner = getattr(command, "commands", None)
        if inner is None:
            found[" ".join(words)] = command
            return
        for name, child in inner.items():
            if name not in LEFT_OUT:
                walk(child, (*words, name))

    walk(typer.main.get_command(app), ())
    return found


class Files:
    """Files of all kinds in a folder, each of them odd now and then."""

    def __init__(self, rng: random.Random, folder: Path) -> None:
        self.rng, self.folder, self.told = rng, folder, list[str]()
        (folder / "fuzz_factory.py").write_text(FACTORY.format(IN, CLASSES))
        self.model = self._write("model.safetensors", "model")
        if rng.random() < 0.5:
            self.card = self._write("model.card.safetensors", "card")

    def _write(self, name: str, kind: str) -> Path:
        """A checkpoint, a card or a patch."""
        path, content = self.folder / name, specimens().files[kind]
        if self.rng.random() < 0.15:
            told, content = odd_own_file(self.rng, kind)
            self.told.append(f"{name}: {told}")
        path.write_bytes(content)
        return path

    def graph(self) -> Path:
        rng, npz = self.rng, self.rng.random() < 0.7
        stem = rng.choice(("graph", "graph", "[bold]graph", "other", "gr aph", "model"))
        path, told = self.folder / f"{stem}{'.npz' if npz else '.pt'}", ""
        if rng.random() < 0.35:
            told, content = odd_file(rng, NPZ if npz else PT)
            self.told.append(f"{path.name}: {told}")
        elif rng.random() < 0.25:
            data = specimens().mended
            content = packed(rng, arrays_of(data)) if npz else saved(data)
        else:
            content = valid_npz(rng) if npz else valid_pt()
        path.write_bytes(content)
        return path

    def own(self, kind: str) -> Path:
        return self._write(f"given.{kind}.safetensors", kind)

    def weights(self) -> Path:
        path = self.folder / "weights.safetensors"
        with torch.random.fork_rng():
            path.write_bytes(save(GCN(IN, self.rng.choice((4, 4, 4, 5)), CLASSES).state_dict()))
        return path

    def labels(self) -> Path:
        path = self.folder / "labels.csv"
        path.write_bytes(odd_labels(self.rng))
        return path

    def anything(self) -> Path:
        """A file of any kind, or something that is none."""
        make = self.rng.choice((self.graph, lambda: self.own("card"), lambda: self.own("patch"), self.labels))
        kinds: tuple[Callable[[], Path], ...] = (make, make, make, make, lambda: self.model, self._no_file)
        return self.rng.choice(kinds)()

    def _no_file(self) -> Path:
        path = self.folder / self.rng.choice(
            ("missing.npz", "folder.npz", "pipe.npz", "loop.npz", "x.safetensors", "a\x00b.npz")
        )
        if path.name == "folder.npz":
            path.mkdir(exist_ok=True)
        elif path.name == "pipe.npz" and not path.exists():
            os.mkfifo(path)
        elif path.name == "loop.npz" and not path.is_symlink():
            path.symlink_to(path)
        return path

    def output(self) -> Path:
        places = (
            "out",
            "out",
            "out",
            "out/deep",
            "model.safetensors",
            "graph.npz",
            ".",
            "new.safetensors",
            "/dev/null/x",
            "x.npz",
        )
        return self.folder / self.rng.choice(places)


def odd_labels(rng: random.Random) -> bytes:
    """A file of node,label, more or less."""
    rows = [f"{node},{rng.randrange(CLASSES)}" for node in rng.sample(range(20), rng.randint(1, 20))]
    text = ("node,label\n" if rng.random() < 0.5 else "") + "\n".join(rows)
    odd = (
        *[text] * 9, "", "\n\n", "node,label\n", "0", "0,0,0", "a,b", "0,0\n0,1", "-1,0", "1.5,0", "99999999999,0",
        "0,99", f"{10**30},1", f"0,{10**30}", "9" * 5000 + ",0", "0;1", '"0","1"', '"0', "\x1b[31m,0", "[bold],0",
        "0,0\r1,1\r\n", "0,0\x00", "x" * 200_000, "0,0\n" * 5000, "0,0,\n" * 3, "\ufeff0,1", " 0 , 1 ", "٣,1",
    )  # fmt: skip
    chosen = rng.choice(odd).encode()
    return rng.choice((*[chosen] * 12, rng.randbytes(50), chosen[:-1] + b"\xff", chosen.decode().encode("utf-16")))


def _type_of(parameter: Any) -> str:
    """The type of an option, as different versions of typer tell it."""
    described = getattr(parameter, "type_descriptor", None)
    return str(getattr(parameter, "type", "") if described is None else described.annotation).lower()


def _value(rng: random.Random, name: str, kind: str, files: Files) -> str:
    """A value for an option of this name and type."""
    places: dict[str, Callable[[], Path]] = {
        "graph": files.graph,
        "source": files.graph,
        "model": lambda: files.model,
        "card": lambda: files.own("card"),
        "patch": lambda: files.own("patch"),
        "weights": files.weights,
        "labels": files.labels,
        "out": files.output,
        "path": files.anything,
        "data_dir": lambda: files.folder,
    }
    choices: dict[str, tuple[str, ...]] = {
        "adapter": (*ADAPTERS, GATE, "gtrans", "gtrans"),
        "backbone": tuple(BACKBONES),
        "surrogate": tuple(SURROGATES),
        "view": tuple(VIEWS),
        "mode": ("auto", "eager"),
        "device": ("cpu", "cpu", "cpu", "cuda", "tpu", "cpu:0", "meta", "cuda:-1", ""),
        "dataset": ("wine", "missing"),
        "label_mask": ("train_mask", "y", "x", "none"),
        "embedding": ("conv1", "a", "layers", "convs.0", ""),
        "factory": ("json", "no.such:f", ":", "os:getcwd", "a:b:c", *(f"fuzz_factory:{name}" for name in FACTORIES)),
        "budget": ("0.1", "3", "0", "1.5", "-1", "many", "nan", "inf", "1e400", str(10**30), "0x1"),
    }
    if name in places and rng.random() < 0.95:
        return str(places[name]())
    if "path" in kind:
        return str(files.anything())
    if name in choices and rng.random() < 0.9:
        return rng.choice(choices[name])
    if is_costly(name):
        return rng.choice(("0", "1", "2", "2", "-1", "1.5", "x"))
    if name == "seed":
        return rng.choice(("0", "1", "-1", str(2**31), str(2**63 - 1), str(2**63), str(2**64), str(10**30)))
    if "int" in kind:
        return rng.choice(("0", "1", "2", "3", "-1", "64", "1000000", str(10**12), str(10**30), "x"))
    if "float" in kind:
        return rng.choice(("0", "0.1", "0.5", "1", "2", "-1", "nan", "inf", "-inf", "1e-300", "1e300", "1e400", "x"))
    return rng.choice((*WORDS, "x", "", "[bold]", "\x1b[31m", "é", "".join(rng.sample(string.printable, 8))))


def _arguments(rng: random.Random, words: str, command: Any, files: Files) -> list[str]:
    """The words of a command line."""
    line, rest = words.split(), list[str]()
    adapter = rng.choice(("gtrans", "gtrans", GATE, GATE, *ADAPTERS))
    for parameter in command.params:
        name, panel = (parameter.name or "").rstrip("_"), getattr(parameter, "rich_help_panel", None) or ""
        chance = LIKELY.get(name, 0.6 if parameter.required else 0.08)
        if ("--adapter" in panel or GATE in panel) and adapter not in panel:  # an option of another adapter
            chance = 0.002
        if name == "help" or rng.random() > chance:
            continue
        times = rng.choice((1, 1, 1, 1, 2)) if getattr(parameter, "multiple", False) else 1
        for _ in range(times):
            fixed = {"epochs": "1", "adapter": adapter}.get(name)
            value = _value(rng, name, _type_of(parameter), files) if fixed is None or rng.random() < 0.03 else fixed
            if parameter.param_type_name == "argument":
                rest.append(value)
            else:
                line += [parameter.opts[0]] if getattr(parameter, "is_flag", False) else [parameter.opts[0], value]
    if "--model" in line and rng.random() < 0.2:
        at, factory = line.index("--model"), f"fuzz_factory:{rng.choice(FACTORIES)}"
        line[at : at + 2] = ["--factory", factory, "--weights", str(files.weights())]
    if words == "mend" and adapter == GATE and "--out" in line and rng.random() < 0.3:
        line[line.index("--out") : line.index("--out") + 2] = ["--verdict-only"]
    return [word.replace("\x00", "") for word in (*line, *rest)]


def commands(rng: random.Random, folder: Path) -> Case:
    """Any command."""
    files = Files(rng, folder)
    found = _commands()
    weights = [OFTEN.get(words, 2) for words in found]
    words = rng.choices(list(found), weights=weights)[0]
    line = _arguments(rng, words, found[words], files)
    told = " ".join(line).replace(str(folder), ".")
    name = f"graphmend {told[:300]!r}" + "".join(f" [{text}]" for text in files.told)
    return Case(name, lambda: _invoke(line, folder), may_seed=True)


def label_files(rng: random.Random, folder: Path) -> Case:
    """Labels for a graph that has moved, so that there is something to settle."""
    for kind, name in (("model", "model.safetensors"), ("card", "model.card.safetensors")):
        (folder / name).write_bytes(specimens().files[kind])
    data = copy.copy(specimens().graph)
    data.x = 3 * data.x + 2
    (folder / "graph.npz").write_bytes(packed(rng, arrays_of(data)))
    content = odd_labels(rng)
    (folder / "labels.csv").write_bytes(content)
    more = rng.choice((["--json"], ["--quiet"], ["--questions", "5"], []))
    line = ["mend", "--model", "model.safetensors", "--graph", "graph.npz", "--labels", "labels.csv", "--verdict-only"]
    return Case(f"labels {content[:80]!r} {' '.join(more)}", lambda: _invoke([*line, *more], folder), may_seed=True)


def _invoke(line: list[str], folder: Path) -> None:
    """Run a command and look at its exit code and at what it printed."""
    here = Path.cwd()
    os.chdir(folder)
    try:
        result = CliRunner().invoke(app, line)
    finally:
        os.chdir(here)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    interrupted = "interrupted" in " ".join(line)
    if result.exit_code not in (0, 2, *((130,) if interrupted else ())):
        raise Violation(f"exit code {result.exit_code}: {result.stderr[-200:]!r}")
    for text in (result.stdout, result.stderr):
        if has_control_characters(text, allowed="\n\t\r") and not any(map(has_control_characters, line)):
            raise Violation(f"control characters from a file in the output: {text[:300]!r}")
    if "Traceback" in result.stderr:
        raise Violation(f"a traceback: {result.stderr[-300:]!r}")
    if result.exit_code == 2:
        raise GraphMendError("the command ended with code 2")
    if result.exit_code == 0 and "--json" in line:
        _check_json(result.stdout)


def _check_json(text: str) -> None:
    def refuse(constant: str) -> None:
        raise Violation(f"{constant} in the JSON output, which is not JSON")

    try:
        json.loads(text, parse_constant=refuse)
    except ValueError as error:
        raise Violation(f"the output of --json is not JSON ({error}): {text[:100]!r}") from error
