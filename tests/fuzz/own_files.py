"""Checkpoints, source cards and patches: damaged, or forged so that their checksums fit."""

from __future__ import annotations

import copy
import functools
import json
import random
import struct
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import load, save
from torch import Tensor, nn
from torch_geometric.data import Data

import graphmend
from fuzz.cases import Case
from fuzz.damage import damaged
from fuzz.graph_defects import CLASSES, IN, odd_graph, specimen_graph
from fuzz.watching import left_alone
from graphmend import GTrans, Identity, Patch, SourceCard, mend
from graphmend.adapters import Align, Impute, Purify, Reweight
from graphmend.files.files import digest
from graphmend.lab.backbones import GCN, load_model, save_model
from graphmend.lab.data import Splits
from graphmend.lab.training import ERM


class Specimens(NamedTuple):
    """A model, a graph, and one valid file of each kind that goes with them."""

    model: nn.Module
    graph: Data
    mended: Data
    files: dict[str, bytes]


@functools.cache
def specimens() -> Specimens:
    """The same in every process; not to be changed."""
    with torch.random.fork_rng(), tempfile.TemporaryDirectory() as folder:
        torch.manual_seed(0)
        graph, model, path = specimen_graph(), GCN(IN, 4, CLASSES).eval(), Path(folder) / "file"
        ERM(epochs=40, lr=0.05)(model, Splits.transductive(graph))  # so that it tells classes apart
        result = mend(model, graph, GTrans(steps=4, lr_feature=0.1, budget=3, feature_steps=2, edge_steps=2))
        writers: dict[str, Callable[[Path], None]] = {
            "model": lambda path: save_model(model, path),
            "card": graphmend.card(model, graph, task="classes").save,
            "patch": result.patch.save,
        }
        files = {}
        for kind, write in writers.items():
            write(path)
            files[kind] = path.read_bytes()
    return Specimens(model, graph, result.data, files)


class Parts(NamedTuple):
    """What a file of ours is made of: tensors, and a header that is JSON or, in a checkpoint, text by name."""

    tensors: dict[str, Tensor]
    header: dict[str, Any]


def _metadata(content: bytes) -> dict[str, str]:
    (length,) = struct.unpack("<Q", content[:8])
    metadata: dict[str, str] = json.loads(content[8 : 8 + length])["__metadata__"]
    return metadata


def parts_of(kind: str, content: bytes) -> Parts:
    """Take a valid file apart."""
    metadata = _metadata(content)
    metadata.pop("checksum", None)
    if kind == "model":
        return Parts(dict(sorted(load(content).items())), {**metadata, "config": json.loads(metadata["config"])})
    return Parts(dict(sorted(load(content).items())), json.loads(metadata["graphmend"]))


def sealed(kind: str, parts: Parts, seal: bool = True) -> bytes:
    """Put a file together again, with a checksum that fits what it now holds."""
    tensors, header = parts.tensors, dict(parts.header)
    if kind == "model":
        metadata = {name: value if isinstance(value, str) else to_json(value) for name, value in header.items()}
    else:
        metadata = {"graphmend": to_json(header)}
    if seal:
        metadata["checksum"] = digest(tensors, json.dumps(metadata, sort_keys=True))
    return save(tensors, metadata)


class _Raw(str):
    """Goes into JSON as it stands."""


def to_json(value: Any) -> str:
    """JSON, in which a text of the kind above stands without quotes."""
    marks: dict[str, str] = {}

    def marked(thing: Any) -> Any:
        if isinstance(thing, _Raw):
            marks[f"raw{len(marks)}"] = str(thing)
            return f"raw{len(marks) - 1}"
        if isinstance(thing, dict):
            return {key: marked(item) for key, item in thing.items()}
        return [marked(item) for item in thing] if isinstance(thing, list) else thing

    text = json.dumps(marked(value))
    for mark, raw in marks.items():
        text = text.replace(f'"{mark}"', raw)
    return text


ODD_JSON: tuple[Any, ...] = (
    None, "", "x", [], {}, -1, 0, 1, 1.5, True, False, 10**9, 10**12, 10**30, -(10**18), 1e308, [1, 2], {"a": 1},
    _Raw("NaN"), _Raw("Infinity"), _Raw("-Infinity"), _Raw("1e999"), _Raw("9" * 5000), _Raw("[" * 100_000),
    _Raw('{"a":' * 20_000), _Raw("[" * 400 + "]" * 400), "[bold red]text[/bold red]", "[/]", "[link=x]",
    "\x1b[31mred\x07", "\r\nline", "\u202eright to left", "\ud800", "long " * 3000, "../../x", "gcn", "gat", "3",
    "torch.float32", "None",
)  # fmt: skip


def _changed_header(rng: random.Random, parts: Parts) -> str:
    """Change, drop or add one entry anywhere in the header."""
    place: Any = parts.header
    where = []
    while True:
        inner = [key for key, value in place.items() if isinstance(value, dict) and value]
        if not inner or rng.random() < 0.2:
            break
        where.append(rng.choice(inner))
        place = place[where[-1]]
    deed = rng.choice(("changed", "changed", "changed", "changed", "dropped", "added"))
    key = (
        rng.choice([*place]) if place and deed != "added" else rng.choice(("more", "", "self", "tensors", "x\x1b[31m"))
    )
    if deed == "dropped":
        del place[key]
        return f"{'.'.join([*where, key])} dropped"
    value = place[key] = rng.choice(ODD_JSON)
    return f"{'.'.join([*where, key])} = {str(value)[:30]!r}"


def _odd_tensor(rng: random.Random, old: Tensor) -> tuple[str, Tensor]:
    flat = old.reshape(-1)
    kinds: dict[str, Callable[[], Tensor]] = {
        "another type": lambda: old.to(
            rng.choice((torch.float64, torch.float16, torch.int32, torch.uint8, torch.bool))
        ),
        "short integers": lambda: old.to(torch.int16),
        "no dimension": lambda: torch.tensor(1),
        "no entries": lambda: old[:0],
        "one dimension": lambda: flat,
        "one more dimension": lambda: old.unsqueeze(0),
        "one entry less": lambda: old[:-1],
        "one entry more": lambda: torch.cat([old, old[-1:]]),
        "transposed": lambda: old.t().contiguous(),
        "negative": lambda: torch.full_like(old, -1),
        "large": lambda: torch.full_like(old, 10**9 if not old.is_floating_point() else 1e30),
        "largest": lambda: torch.full_like(old, 2**62 if old.dtype == torch.long else 100),
        "next": lambda: old + 1,
        "zeros": lambda: torch.zeros_like(old),
        "reversed": lambda: old.flip(0),
        "NaN": lambda: torch.full_like(old, torch.nan),
        "infinite": lambda: torch.full_like(old, torch.inf),
        "float8": lambda: old.to(torch.float8_e4m3fn),
        "bfloat16": lambda: old.to(torch.bfloat16),
        "complex": lambda: old.to(torch.complex64),
    }
    kind = rng.choice(list(kinds))
    try:
        return kind, kinds[kind]().contiguous()
    except (RuntimeError, IndexError, TypeError):  # which has no sense for this one
        return "random", torch.randint(0, 9, old.shape)


def _changed_tensor(rng: random.Random, parts: Parts) -> str:
    name = rng.choice([*parts.tensors])
    deed = rng.choice(("changed", "changed", "changed", "changed", "changed", "dropped", "added", "renamed"))
    if deed == "changed":
        told, parts.tensors[name] = _odd_tensor(rng, parts.tensors[name])
        return f"{name}: {told}"
    if deed == "added":
        added = rng.choice(
            ("more", "nodes", "removed.more", "added.more", "removed.", "new_weights", "weight_bits", "self")
        )
        parts.tensors[added] = torch.ones(rng.choice((1, 3, 40)))
        return f"a tensor {added}"
    value = parts.tensors.pop(name)
    if deed == "renamed":
        parts.tensors[name + rng.choice(("2", " ", "\x1b[31m"))] = value
    return f"{name} {deed}"


def _forged_safetensors(rng: random.Random, kind: str) -> tuple[str, bytes]:
    """A file whose outer header does not fit its content."""
    content = specimens().files[kind]
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    name = rng.choice([key for key in header if key != "__metadata__"])
    entry = header[name]
    deed = rng.choice(("dtype", "shape", "data_offsets", "metadata", "length", "header"))
    if deed == "dtype":
        entry["dtype"] = rng.choice(("F8_E4M3", "BF16", "U64", "X", 3, None, "C64", "I8", "F4"))
    elif deed == "shape":
        entry["shape"] = rng.choice(([], [0], [-1], [2**63], [10**12, 10**12], "x", [1.5], [1] * 100))
    elif deed == "data_offsets":
        entry["data_offsets"] = rng.choice(([0, 0], [0, 2**40], [8, 0], [-1, 4], [0, 4], "x"))
    elif deed == "metadata":
        header["__metadata__"] = rng.choice((None, "x", {"graphmend": 3}, {}, {"graphmend": ""}, {"format": None}, []))
    text = (
        json.dumps(header).encode() if deed != "header" else rng.choice((b"", b"{}", b"[]", b"{" * 1000, b"\xff" * 20))
    )
    size = len(text) if deed != "length" else rng.choice((0, 1, 2**40, 2**64 - 1, length - 1, length + 1))
    return f"outer {deed}", struct.pack("<Q", size) + text + content[8 + length :]


def odd_own_file(rng: random.Random, kind: str) -> tuple[str, bytes]:
    """A file of this kind with something wrong, and what it is."""
    chance, content = rng.random(), specimens().files[kind]
    if chance < 0.03:
        return "no fault", content
    if chance < 0.15:
        return damaged(rng, content)
    if chance < 0.25:
        return _forged_safetensors(rng, kind)
    if chance < 0.28:
        other = rng.choice(("model", "card", "patch"))
        return f"a {other}", specimens().files[other]
    if chance < 0.31:
        texts = (
            "",
            "3",
            "[]",
            "null",
            "{",
            "[" * 100_000,
            "\x1b[31m",
            '{"format": 3}',
            '{"format": "graphmend-patch-99\x1b"}',
        )
        return "another header", save({"x": torch.ones(2)}, {"graphmend": rng.choice(texts)})
    parts = parts_of(kind, content)
    told = []
    for _ in range(rng.choice((1, 1, 2))):
        change = _changed_header if rng.random() < (0.7 if kind != "patch" else 0.35) else _changed_tensor
        told.append(change(rng, parts))
        if not parts.tensors or not parts.header:
            break
    try:
        return ", ".join(told), sealed(kind, parts, rng.random() < 0.9)
    except (UnicodeEncodeError, ValueError, RuntimeError, TypeError):  # what cannot be written at all
        return "no fault", content


def own_files(rng: random.Random, folder: Path) -> Case:
    """Reading and using checkpoints, source cards and patches."""
    kind = rng.choice(("model", "card", "patch", "patch"))
    told, content = odd_own_file(rng, kind)
    path = folder / f"{kind}.safetensors"
    path.write_bytes(content)
    return Case(f"{kind}, {told}", lambda: USES[kind](rng, path))


ODD_NUMBERS: tuple[Any, ...] = (
    *(_Raw(text) for text in ("NaN", "Infinity", "-Infinity", "1e999", "1" + "0" * 400, "-1e-300")),
    *(0, -1, 0.0, -0.5, 1e-30, 1e30, 1e300, 10**19, True, None, "1", *(1, 0.5, 0.9, 2, 3, 100) * 3),
)


def cards(rng: random.Random, folder: Path) -> Case:
    """Source cards whose numbers cannot be, with checksums that fit, and every mender that reads them."""
    parts, told = parts_of("card", specimens().files["card"]), []
    numbers = parts.header["numbers"]
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        if rng.random() < 0.6:
            name = rng.choice([name for name, value in numbers.items() if type(value) in (int, float)])
            numbers[name] = rng.choice(ODD_NUMBERS)
            told.append(f"{name} = {str(numbers[name])[:20]}")
        else:
            told.append(_changed_tensor(rng, parts))
    path = folder / "card.safetensors"
    path.write_bytes(sealed("card", parts) if parts.tensors else specimens().files["card"])
    return Case(f"card, {', '.join(told)}", lambda: _use_card(rng, path))


def _use_model(rng: random.Random, path: Path) -> None:
    model = load_model(path)
    data = copy.copy(specimens().graph)
    data.x = data.x.to(next((p.dtype for p in model.parameters() if p.is_floating_point()), data.x.dtype))
    left_alone(lambda: Identity()(model, data), model, data)


def _use_card(rng: random.Random, path: Path) -> None:
    card = SourceCard.load(path)
    card.summary()
    model, graph = specimens().model, copy.copy(rng.choice((specimens().graph, specimens().mended)))
    adapter = rng.choice((None, None, Align(), Impute(), Purify(), Reweight()))
    left_alone(lambda: mend(model, graph, adapter, card=card).summary(), model, graph)


def _use_patch(rng: random.Random, path: Path) -> None:
    patch = Patch.load(path)
    patch.summary()
    deeds: tuple[Callable[[], object], ...] = (
        lambda: left_alone(lambda: patch.apply(graph), graph),
        lambda: left_alone(lambda: patch.revert(mended), mended),
        lambda: patch.apply(odd_graph(rng)[1]),
        lambda: patch.revert(odd_graph(rng)[1]),
        lambda: patch.save(path),
    )
    graph, mended = copy.copy(specimens().graph), copy.copy(specimens().mended)
    rng.choices(deeds, weights=(6, 6, 1, 1, 1))[0]()


USES: dict[str, Callable[[random.Random, Path], None]] = {"model": _use_model, "card": _use_card, "patch": _use_patch}
