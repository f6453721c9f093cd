"""What ``graphmend explain`` does."""

from __future__ import annotations

from pathlib import Path

from torch_geometric.data import Data

from graphmend.adapters.base import Adapter, call
from graphmend.adapters.case import Case
from graphmend.cards.source_card import SourceCard
from graphmend.cli.card_files import card_beside
from graphmend.cli.models import device_of, for_model, load_any_model
from graphmend.errors import require
from graphmend.files.files import check_file
from graphmend.files.hetero_graphs import is_hetero_file
from graphmend.results.explain import Explanation
from graphmend.results.patch import Patch
from graphmend.results.proposal import Proposal
from graphmend.shards.folder import read_graph


class _Patched(Adapter):
    """Makes the change of a patch."""

    fills_missing = True

    def __init__(self, patch: Patch, mended: Data) -> None:
        self.patch, self.mended = patch, mended

    def propose(self, case: Case) -> Proposal:
        """The change, as a mender would propose it."""
        patch = self.patch
        has_weights = patch.weight_bits is not None or patch.new_weights is not None
        return Proposal(
            x=self.mended.x if patch.num_rows else None,
            removed=patch.removed if patch.num_removed else None,
            added=patch.added_edges() if patch.num_added else None,
            edge_weight=self.mended.edge_weight if has_weights else None,
        )


def explanation(
    node: int,
    graph: Path,
    patch_file: Path,
    model: Path | None,
    factory: str | None,
    weights: Path | None,
    output: str | int | None,
    task: str | None,
    device: str,
) -> Explanation:
    """Why the prediction of a node changed with a patch."""
    if not patch_file.is_dir():
        check_file(patch_file, "give the patch that 'graphmend mend' wrote")
    require(not is_hetero_file(graph), f"{graph} has several types of nodes; explain takes plain graphs")
    where = device_of(device)
    patch, original = Patch.load(patch_file), read_graph(graph)
    mended = patch.apply(original)
    net = load_any_model(model, factory=factory, weights=weights).to(where)
    data, changed = (for_model(one, net, where) for one in (original, mended))
    result = call(_Patched(patch, changed), net, data, output=output, task=task or _task_of(model, weights))
    return result.explain(node)


def _task_of(model: Path | None, weights: Path | None) -> str | None:
    """The task of a model of the library, which has classes, or that on the card beside the weights."""
    if weights is None or model is not None:
        return "classes"
    beside = card_beside(weights)
    return SourceCard.load(beside).known_task.kind if beside.is_file() else None
