"""The settings of all adapters as options of the command line, read from the adapters' own fields.

An option is made from the name, type and default of a field and from its entry in the docstring, so an adapter in the
registry has its options without a further line. Adapters import torch, which takes seconds: until they are imported, as
for help and completion, their source is read instead.
"""

from __future__ import annotations

import ast
import functools
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from graphmend.cli.common import number
from graphmend.cli.console import plain_text
from graphmend.errors import GraphMendError, choose, listed

REGISTRY = "graphmend.adapters.registry"
ADAPTERS = Path(__file__).parents[1] / "adapters"


class Setting(NamedTuple):
    """A setting of an adapter.

    Args:
        name: Its name.
        kind: Its type: ``int``, ``float``, ``bool``, ``str``, ``number`` (a count or a fraction), ``numbers``, or
            ``array`` (the name of an array in the graph file).
        default: Its value if none is given, if it can be written as text.
        text: What it is for.
    """

    name: str
    kind: str
    default: Any
    text: str


LOSS = (
    Setting("surrogate", "str", "contrastive", "Surrogate loss; 'graphmend list surrogates' explains all."),
    Setting("view", "str", "drop_edge", "Augmentation of the contrastive loss; 'graphmend list views' explains all."),
    Setting("label_mask", "array", None, "Mask in the graph file whose labels may be used, such as train_mask."),
    Setting("surrogate_weight", "float", 0.01, "Weight of the surrogate beside known labels."),
)
"""The options that an adapter with a surrogate loss has instead of that field."""

KINDS = {"int": "int", "float": "float", "bool": "bool", "str": "str", "float | int": "number", "Tensor": "array"}
KINDS |= {"Sequence[float]": "numbers"}
"""Types of fields that can be given on the command line."""

TYPES = {"int": (int, "NUMBER"), "float": (float, "NUMBER"), "bool": (bool, None), "array": (str, "ARRAY")}
TYPES |= {"str": (str, "NAME"), "number": (str, "NUMBER"), "numbers": (str, "NUMBERS")}
"""Type and placeholder of the option for each kind."""


def settings() -> dict[str, tuple[Setting, ...]]:
    """The settings of each adapter by its name."""
    registry = sys.modules.get(REGISTRY)
    return _from_source() if registry is None else {name: _of_class(kind) for name, kind in registry.ADAPTERS.items()}


def values_for(adapter: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The value of every setting of an adapter; a given one that does not apply is an error.

    Args:
        adapter: Its name.
        given: What was given on the command line.
    """
    own = {setting.name: setting for setting in choose("adapter", adapter, settings())}
    for name in sorted(given.keys() - own.keys()):
        owners = [owner for owner, those in settings().items() if name in (setting.name for setting in those)]
        owner = "gtrans" if "gtrans" in owners else owners[0]
        raise GraphMendError(
            f"{flag(name)} {given[name]} does not apply to --adapter {adapter}; "
            f"add --adapter {owner}, or leave the option out"
        )
    read = {name: _read(own[name], value) for name, value in given.items()}
    return {name: read.get(name, setting.default) for name, setting in own.items()}


def flag(name: str) -> str:
    """The option of that name."""
    return f"--{name.replace('_', '-')}"


def _read(setting: Setting, value: Any) -> Any:
    """The value of an option, as the adapter takes it."""
    if setting.kind == "number":
        return _number(setting.name, value)
    return [_number(setting.name, part) for part in value.split(",")] if setting.kind == "numbers" else value


def _number(name: str, text: str) -> float | int:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    raise GraphMendError(f"{flag(name)} must be a number, such as 0.05 or 100 (got {text!r})")


class WithSettings:
    """A command that takes an option for every setting of every adapter and hands them over as ``settings``."""

    def __init__(self, command: Callable[..., None]) -> None:
        functools.update_wrapper(self, command)
        self._command = command

    @property
    def __signature__(self) -> inspect.Signature:
        own = inspect.signature(self._command, eval_str=True)
        general = [parameter for name, parameter in own.parameters.items() if name != "settings"]
        return own.replace(parameters=[*general, *_options(set(own.parameters))])

    def __call__(self, **options: Any) -> None:
        """Call the command."""
        general = inspect.signature(self._command).parameters.keys() - {"settings"}
        settings = {name: value for name, value in options.items() if name not in general and value is not None}
        self._command(**{name: options[name] for name in general}, settings=settings)


def _options(taken: set[str]) -> Iterable[inspect.Parameter]:
    """One option for each name, whichever adapters have it; settings of the same adapters are listed together."""
    owners: dict[str, dict[str, Setting]] = {}
    for adapter, those in settings().items():
        for setting in those:
            if setting.name not in taken:
                owners.setdefault(setting.name, {})[adapter] = setting
    for name, by_adapter in sorted(owners.items(), key=lambda item: list(item[1])):
        kind, metavar = TYPES[next(iter(by_adapter.values())).kind]
        option = typer.Option(
            f"{flag(name)}/--no-{flag(name)[2:]}" if kind is bool else flag(name),
            help=_help(by_adapter),
            rich_help_panel=f"With --adapter {' or '.join(by_adapter)}",
            metavar=metavar,
            callback=number() if kind is float else None,
            show_default=False,
        )
        annotation: Any = Annotated[kind | None, option]
        yield inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def _help(by_adapter: Mapping[str, Setting]) -> str:
    """What the option is for, with its default, for each adapter where they differ."""
    texts: dict[str, list[str]] = {}
    for adapter, setting in by_adapter.items():
        default = "" if setting.default is None else f" [default: {setting.default}]"
        texts.setdefault(f"{setting.text}{default}", []).append(adapter)
    if len(texts) == 1:
        return next(iter(texts))
    return " ".join(f"{listed(adapters)}: {text}" for text, adapters in texts.items())


def _of_class(kind: Any) -> tuple[Setting, ...]:
    own = fields(kind) if is_dataclass(kind) else ()
    of_fields = {field.name: (str(field.type), field.default) for field in own if field.init}
    return _settings(of_fields, inspect.getdoc(kind))


@functools.cache
def _from_source() -> dict[str, tuple[Setting, ...]]:
    nodes: dict[str, ast.ClassDef] = {}
    names: dict[str, str] = {}
    for file in sorted(ADAPTERS.rglob("*.py")):
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef):
                nodes[node.name] = node
            elif isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "ADAPTERS":
                assert isinstance(node.value, ast.Dict)
                names = {
                    ast.literal_eval(key): ast.unparse(kind)
                    for key, kind in zip(node.value.keys, node.value.values, strict=True)
                    if key is not None
                }
    return {name: _of_node(nodes[kind]) for name, kind in names.items()}


def _of_node(node: ast.ClassDef) -> tuple[Setting, ...]:
    if not any(ast.unparse(decorator).startswith("dataclass") for decorator in node.decorator_list):
        return ()
    own = [item for item in node.body if isinstance(item, ast.AnnAssign) and item.simple]
    annotated = {ast.unparse(field.target): (ast.unparse(field.annotation), _literal(field.value)) for field in own}
    return _settings(
        {name: field for name, field in annotated.items() if not field[0].startswith(("ClassVar", "KW_ONLY"))},
        ast.get_docstring(node),
    )


def _literal(value: ast.expr | None) -> Any:
    try:
        return None if value is None else ast.literal_eval(value)
    except ValueError:
        return None


def _settings(of_fields: Mapping[str, tuple[str, Any]], doc: str | None) -> tuple[Setting, ...]:
    """The settings among some fields, which have a type and a default."""
    texts, own = _arguments(doc or ""), list[Setting]()
    for name, (annotation, default) in of_fields.items():
        kind = re.sub(r"^Annotated\[([^,]+),.*\]$", r"\1", annotation)
        if "Surrogate" in kind:
            own += LOSS
            continue
        kind = KINDS.get(" | ".join(part for part in kind.split(" | ") if part != "None"), "")
        if kind:
            plain = default if isinstance(default, bool | int | float | str) else None
            own.append(Setting(name, kind, plain, texts.get(name, "")))
    return tuple(own)


def _arguments(doc: str) -> dict[str, str]:
    """The text on each argument in the section Args of a docstring, without markup."""
    section = re.search(r"^Args:\n((?: .*\n?|\n(?= ))*)", doc, re.MULTILINE)
    entries = re.findall(r"^    (\w+): ((?:.*\n?)(?:     .*\n?)*)", section[1] if section else "", re.MULTILINE)
    return {name: plain_text(text) for name, text in entries}
