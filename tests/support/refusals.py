"""Wrong settings, each of which must be refused in one line that names it and its value."""

from __future__ import annotations

from collections.abc import Callable
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
