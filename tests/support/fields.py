"""The types of a dataclass's fields, as they are written."""

from __future__ import annotations

import re
from dataclasses import Field
from typing import Any


def type_of(field: Field[Any]) -> str:
    """The type of a field without what narrows its range: ``float`` for ``Annotated[float, within(0, 1)]``."""
    return re.sub(r"^Annotated\[([^,]+),.*\]$", r"\1", str(field.type))
