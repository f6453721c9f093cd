"""Structure attacks."""

from __future__ import annotations

from typing import Any

from graphmend.files.files import write_arrays
from graphmend.lab.attacks import PRBCD
from graphmend.lab.attacks.pairs import UndirectedGraph
from graphmend.lab.bench.run import Run
from graphmend.lab.bench.workspace import Workspace
from graphmend.lab.data.splits import node_mask
from graphmend.results.scores import score

__all__ = ["attack"]


def attack(run: Run, workspace: Workspace) -> dict[str, Any]:
    """Flip edges so that a trained model errs on the test nodes, and leave the flips for others.

    With ``nodes = "all"`` the attacker's loss counts all nodes, as in the paper.
    """
    options = dict(run.settings)
    settings = options.pop("train")
    data = workspace.splits(settings).test[0]
    model = workspace.model(settings)
    nodes = None if options.pop("nodes", "test") == "all" else node_mask(data)
    transform = PRBCD(model, nodes=nodes, seed=settings["seed"], **options)
    harmed = transform(data)
    flips = UndirectedGraph.of(data).changes_to(UndirectedGraph.of(harmed))
    write_arrays(workspace.store.artefact(run, ".npz"), {"flips": flips.cpu().numpy()})

    def accuracy(graph: Any) -> float:
        return 100 * score("accuracy", model(graph.x, graph.edge_index).detach(), data.y, node_mask(data))

    return {"flips": flips.numel(), "clean": accuracy(data), "attacked": accuracy(harmed)}
