"""Merging values in a tree, so that the result does not depend on who made them, and when."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from graphmend.errors import require

__all__ = ["Tree", "merged"]

T = TypeVar("T")
R = TypeVar("R")


def merged(function: Callable[[T], R], items: Iterable[T], merge: Callable[[R, R], R]) -> R:
    """What a function gives for all items, merged in pairs in their order."""
    tree = Tree(merge)
    for item in items:
        tree.add(function(item))
    return tree.total()


class Tree(Generic[R]):
    """Merges values in pairs as they come, and the results in pairs again; the pairs depend only on the order.

    So sums of floats are the same on every run, and are off by the depth of the tree, not by the number of values.

    Args:
        merge: Makes one value of two neighbours.
    """

    def __init__(self, merge: Callable[[R, R], R]) -> None:
        self.merge = merge
        self._parts: list[tuple[int, R]] = []  # each of as many values as 2 to the power of its level

    def add(self, value: R) -> None:
        """Add the next value."""
        level = 0
        while self._parts and self._parts[-1][0] == level:
            value, level = self.merge(self._parts.pop()[1], value), level + 1
        self._parts.append((level, value))

    def total(self) -> R:
        """All of them merged."""
        require(bool(self._parts), "there is nothing to merge; give at least one item")
        value = self._parts.pop()[1]
        while self._parts:
            value = self.merge(self._parts.pop()[1], value)
        return value
