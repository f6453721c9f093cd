"""Identity."""

from __future__ import annotations

from dataclasses import dataclass

from graphmend.adapters.base import Adapter
from graphmend.adapters.case import Case
from graphmend.results.proposal import Proposal

__all__ = ["Identity"]


@dataclass(frozen=True)
class Identity(Adapter):
    """The adapter that changes nothing: plain prediction, the baseline of every comparison.

    Example:
        >>> import graphmend
        >>> from graphmend.lab.data import embedded
        >>> from torch_geometric.nn import GCN
        >>> data, model = embedded("wine").test[0], GCN(13, 16, num_layers=2, out_channels=3)
        >>> graphmend.mend(model, data, graphmend.Identity()).patch.is_empty
        True
    """

    uses_card = False

    def propose(self, case: Case) -> Proposal:
        """Nothing."""
        return Proposal(sentence="this adapter changes nothing")
