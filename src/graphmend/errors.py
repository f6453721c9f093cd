"""Errors, each one sentence with the value and the remedy, and checks of plain arguments.

Numbers are checked when an object is created, long before they are used. NumPy's numbers are accepted and kept as
Python's, so that an object looks and hashes the same either way; text, truth values and NaN are not numbers.
"""

from __future__ import annotations

import functools
import importlib
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import fields
from numbers import Integral, Real
from types import NoneType
from typing import Annotated, Any, TypeVar, cast, get_args, get_origin, get_type_hints

T = TypeVar("T")
Reader = Callable[[str, Any], Any]
"""Takes a name, for the message, and a value; returns the value as it is kept, or raises."""


class GraphMendError(ValueError):
    """A problem with what the caller passed in; the message names the value and the remedy, on one printable line.

    Example:
        >>> import graphmend
        >>> try:
        ...     graphmend.GTrans(steps=-1)
        ... except graphmend.GraphMendError as error:
        ...     print(error)
        GTrans's steps must be a whole number of at least 0 (got -1)
    """

    def __init__(self, message: object = "") -> None:
        super().__init__(printable(str(message)))


class UnsupportedLayerError(GraphMendError):
    """A layer of the user's model cannot take edge weights, so edges cannot be learned for it.

    Example:
        >>> import graphmend, torch
        >>> from graphmend.lab.data import embedded
        >>> from torch_geometric.nn import PNAConv
        >>> data = embedded("wine").test[0]
        >>> model = PNAConv(13, 3, ["max"], ["identity"], torch.tensor([0, 1]))
        >>> with graphmend.FrozenGNN(model, data) as frozen:
        ...     try:
        ...         frozen.require_edge_weights()
        ...     except graphmend.UnsupportedLayerError:
        ...         print("only its features can be learned")
        only its features can be learned
    """


class MissingDataError(GraphMendError):
    """The files of a data set are not here and cannot be downloaded."""


class ModelFailedError(GraphMendError):
    """The user's model raised an error of its own while it ran, which is the cause of this one."""


def require(condition: bool, message: str) -> None:
    """Raise :class:`GraphMendError` with ``message`` unless ``condition`` holds."""
    if not condition:
        raise GraphMendError(message)


def printable(text: str, keep: str = "") -> str:
    """``text`` with control characters as escapes, so that no name from a file can steer a terminal or fake a line.

    Args:
        text: Anything, such as the name of a file.
        keep: Control characters that stay.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in text)


def shown(value: object, limit: int = 80) -> str:
    """A value as part of a sentence: its ``repr`` on one line, cut off if it is too long."""
    try:
        text = " ".join(repr(value).split())
    except Exception:  # an integer of thousands of digits, or an object of the user's own
        text = f"a {type(value).__name__}"
    return text if len(text) <= limit else f"{text[:limit]}..."


def listed(names: Iterable[object]) -> str:
    """``a, b, c`` in sorted order."""
    return ", ".join(sorted(str(name) for name in names))


def one_of(kind: str, name: str, choices: Collection[str]) -> str:
    """``name``, if it is one of the choices; the error lists them."""
    is_known = isinstance(name, str) and name in choices
    require(is_known, f"unknown {kind} {shown(name)}; choose one of {listed(choices)}")
    return name


def choose(kind: str, name: str, choices: Mapping[str, T]) -> T:
    """Look ``name`` up in a literal dict of choices; the error lists them."""
    return choices[one_of(kind, name, choices)]


def switch(name: str, value: Any) -> bool:
    """``value`` as ``True`` or ``False``."""
    is_bool = isinstance(value, bool) or type(value).__name__ in ("bool", "bool_")  # NumPy's
    require(is_bool, f"{name} must be True or False (got {shown(value)})")
    return bool(value)


def text(name: str, value: Any) -> str:
    """``value`` as a text."""
    require(isinstance(value, str), f"{name} must be a text (got {shown(value)})")
    return str(value)


def whole_number(name: str, value: Any, low: int = 0, *, hint: str = "") -> int:
    """``value`` as an ``int`` of at least ``low``.

    Args:
        name: What it is called, for the message.
        value: What the caller has.
        low: The lowest value.
        hint: What to know about it, for the message.
    """
    is_whole = isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= low
    require(is_whole, _wrong(name, f"a whole number of at least {low}", value, hint))
    return int(value)


def real_number(
    name: str,
    value: Any,
    low: float = -math.inf,
    high: float = math.inf,
    *,
    above: float = -math.inf,
    below: float = math.inf,
    hint: str = "",
) -> float:
    """``value`` as a finite ``float`` in a range.

    Args:
        name: What it is called, for the message.
        value: What the caller has.
        low: The lowest value.
        high: The highest value.
        above: What it must be larger than.
        below: What it must be smaller than.
        hint: What to know about it, for the message.
    """
    number = as_float(value)
    good = math.isfinite(number) and low <= number <= high and above < number < below
    require(good, _wrong(name, _range(low, high, above, below), value, hint))
    return number


def rate_number(name: str, value: Any, *, may_be_zero: bool = False) -> float:
    """``value`` as a learning rate or a weight decay, no larger than an optimiser of torch takes in any precision."""
    return real_number(name, value, 0, 1e3) if may_be_zero else real_number(name, value, above=0, high=1e3)


def decay_number(name: str, value: Any) -> float:
    """``value`` as a weight decay, which may be 0."""
    return rate_number(name, value, may_be_zero=True)


def real_numbers(name: str, value: Any, **options: Any) -> tuple[float, ...]:
    """``value`` as several numbers, at least one; ``options`` are those of :func:`real_number`."""
    is_list = isinstance(value, Sequence) and not isinstance(value, str) and len(value) > 0
    require(is_list, f"{name} must be numbers in a list, at least one (got {shown(value)})")
    return tuple(real_number(f"{name}[{index}]", part, **options) for index, part in enumerate(value))


def seed_number(name: str, value: Any, bits: int = 63) -> int:
    """``value`` as a seed for random generators with this number of bits."""
    is_seed = isinstance(value, Integral) and not isinstance(value, bool) and 0 <= int(value) < 2**bits
    require(is_seed, _wrong(name, f"a whole number from 0 to 2**{bits} - 1", value, ""))
    return int(value)


def check_fields(owner: object, read: Callable[..., Any], *names: str, optional: bool = False, **options: Any) -> None:
    """Read fields of a dataclass by one of the functions above, and keep what it returns.

    Args:
        owner: The dataclass, which may be frozen.
        read: Such as :func:`whole_number`.
        names: The fields.
        optional: Whether they may be ``None``.
        options: Further arguments of ``read``.

    Example:
        >>> from dataclasses import dataclass
        >>> @dataclass(frozen=True)
        ... class Walk:
        ...     length: int = 3
        ...     def __post_init__(self):
        ...         check_fields(self, whole_number, "length", low=1)
        >>> Walk(0)
        Traceback (most recent call last):
            ...
        graphmend.errors.GraphMendError: Walk's length must be a whole number of at least 1 (got 0)
    """
    for name in names:
        value = getattr(owner, name)
        if value is not None or not optional:
            object.__setattr__(owner, name, read(f"{type(owner).__name__}'s {name}", value, **options))


def at_least(low: int, hint: str = "") -> Reader:
    """A reader of whole numbers from ``low`` on."""
    return functools.partial(whole_number, low=low, hint=hint)


def within(
    low: float = -math.inf,
    high: float = math.inf,
    *,
    above: float = -math.inf,
    below: float = math.inf,
    hint: str = "",
) -> Reader:
    """A reader of finite numbers in a range; arguments as for :func:`real_number`."""
    return functools.partial(real_number, low=low, high=high, above=above, below=below, hint=hint)


def among(choices: Collection[str]) -> Reader:
    """A reader of one of several names."""
    return lambda name, value: one_of(name.rpartition("'s ")[2], value, choices)


def read_fields(owner: object) -> None:
    """Read all fields of a dataclass, which may be frozen, as their annotations say, and keep what the readers return.

    ``int`` is a whole number of at least 0, ``float`` a finite number, ``bool`` and ``str`` are checked for their type,
    and ``| None`` makes a field optional. A narrower range goes beside the type; fields of other types are left alone.

    Example:
        >>> from dataclasses import dataclass
        >>> @dataclass(frozen=True)
        ... class Walk:
        ...     length: Annotated[int, at_least(1)] = 3
        ...     restart: Annotated[float | None, within(0, 1)] = None
        ...     def __post_init__(self):
        ...         read_fields(self)
        >>> Walk(0)
        Traceback (most recent call last):
            ...
        graphmend.errors.GraphMendError: Walk's length must be a whole number of at least 1 (got 0)
    """
    for name, (read, is_optional) in _readers(cast(Any, type(owner))).items():
        value = getattr(owner, name)
        if value is not None or not is_optional:
            object.__setattr__(owner, name, read(f"{type(owner).__name__}'s {name}", value))


@functools.cache
def _readers(kind: Any) -> dict[str, tuple[Reader, bool]]:
    """The reader of each field that has one, and whether the field may be ``None``."""
    hints, readers = get_type_hints(kind, include_extras=True), dict[str, tuple[Reader, bool]]()
    for name in (field.name for field in fields(kind)):
        annotated = get_args(hints[name]) if get_origin(hints[name]) is Annotated else (hints[name],)
        types = [part for part in get_args(annotated[0]) or annotated[:1] if part is not NoneType]
        read = annotated[1] if len(annotated) > 1 else READERS.get(getattr(types[0], "__name__", ""))
        if read is not None and (len(annotated) > 1 or len(types) == 1):
            readers[name] = read, NoneType in get_args(annotated[0])
    return readers


READERS: dict[str, Reader] = {
    "bool": switch,
    "float": real_number,
    "int": whole_number,
    "str": text,
}
"""How an argument is read according to its annotation, if there is no range to check."""


def as_float(value: Any) -> float:
    """A number as a ``float``, infinite if it is too large for one; NaN for anything else."""
    if not isinstance(value, Real) or isinstance(value, bool):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf  # type: ignore[operator]


def _range(low: float, high: float, above: float, below: float) -> str:
    """``a number in [0, 1)``, for a message."""
    least, most = max(low, above), min(high, below)
    if math.isfinite(least) and math.isfinite(most):
        left, right = "(" if above >= low else "[", ")" if below <= high else "]"
        return f"a number in {left}{least:g}, {most:g}{right}"
    if math.isfinite(least):
        return f"a finite number {'above' if above >= low else 'of at least'} {least:g}"
    if math.isfinite(most):
        return f"a finite number {'below' if below <= high else 'of at most'} {most:g}"
    return "a finite number"


def _wrong(name: str, wanted: str, value: Any, hint: str) -> str:
    return f"{name} must be {wanted} (got {shown(value)})" + (f"; {hint}" if hint else "")


def optional_module(name: str, purpose: str, install: str) -> Any:
    """A module of an optional package, imported when it is needed; an error says how to install it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise GraphMendError(f"{purpose} needs {name.split('.')[0]} ({error}); {install}") from error
