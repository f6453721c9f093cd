"""Identity."""

from __future__ import annotations

from dataclasses import dataclass

from graphmend.adapters.base import Adapter
from graphmend.adapters.case import Case
from graphmend.results.proposal import Proposal

__all__ = ["Identity"]


@dataclass(frozen=True)
class Identity(Adapter):
    """The adapter that changes nothing: plain prediction, the baseline of every comparison."""

    uses_card = False

    def propose(self, case: Case) -> Proposal:
        """Nothing."""
        return Proposal(sentence="this adapter changes nothing")
