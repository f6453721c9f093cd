"""What must be refused: wrong settings, in a line that names them and their values, and files, before they are read."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from graphmend.errors import GraphMendError, shown


def wrong(**values: list[Any]) -> pytest.MarkDecorator:
    """Parametrises a test with ``setting`` and ``value``: every listed value of every setting."""
    cases = [(setting, value) for setting, several in values.items() for value in several]
    ids = [f"{setting}={shown(value, 20)}" for setting, value in cases]
    return pytest.mark.parametrize(("setting", "value"), cases, ids=ids)


def assert_refused(call: Callable[..., Any], setting: str, value: Any, **others: Any) -> None:
    """Calls with this setting, and says what is missing from the message."""
    with pytest.raises(GraphMendError) as caught:
        call(**{**others, setting: value})
    message = str(caught.value)
    assert setting in message and "\n" not in message
    assert not isinstance(value, (int, float, str)) or shown(value) in message


@contextmanager
def refused_cheaply(message: str, most: int) -> Iterator[None]:
    """Inside, something is refused with this message before it has taken so many bytes."""
    tracemalloc.start()
    try:
        with pytest.raises(GraphMendError, match=message):
            yield
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < most
