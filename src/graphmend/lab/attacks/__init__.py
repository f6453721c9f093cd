"""Attacks on the edges of a graph: :class:`PRBCD` and :class:`GRBCD`, transforms whose randomness comes from their
seed."""

from graphmend.lab.attacks.attack import EdgeAttack
from graphmend.lab.attacks.grbcd import GRBCD
from graphmend.lab.attacks.prbcd import PRBCD

__all__ = ["ATTACKS", "GRBCD", "PRBCD", "EdgeAttack"]

ATTACKS: dict[str, type[EdgeAttack]] = {"grbcd": GRBCD, "prbcd": PRBCD}
"""Every attack by name.

Example:
    >>> from graphmend.lab.attacks import ATTACKS
    >>> list(ATTACKS)
    ['grbcd', 'prbcd']
"""
