"""What is said when a model fails."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch_geometric.data import Data

from graphmend.engine.report import Stopped
from graphmend.errors import GraphMendError

__all__ = ["cannot_run", "failures_named", "first_line"]


@contextmanager
def failures_named(data: Data) -> Iterator[None]:
    """Inside, an error of the model becomes a sentence about model and graph."""
    try:
        yield
    except (GraphMendError, Stopped, torch.OutOfMemoryError):
        raise
    except Exception as error:
        raise GraphMendError(cannot_run(data, error)) from error


def cannot_run(data: Data, error: Exception) -> str:
    """The sentence for a model that does not go with a graph."""
    return (
        f"the model cannot run on this graph, whose x has shape {tuple(data.x.shape)}: {first_line(error)}; "
        "check feature width, dtype and device"
    )


def first_line(error: Exception) -> str:
    """Type and message of an error, short enough to be part of a sentence."""
    return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no message'}"
