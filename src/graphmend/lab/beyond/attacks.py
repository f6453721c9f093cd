"""Attacked Planetoid graphs, computed once per set, rate and seed and kept in the store.

PR-BCD flips edges so that the GCN of the same set and seed errs on the test nodes; the attacker knows the labels of
the training nodes and the model's own predictions elsewhere. Budget, block and epochs are those of
``graphmend.lab.studies.attack_strength``. Models with other backbones get the same graph: for them the attack is a
transferred one. A stored graph names its victim by a checksum; if the model was trained again, the attack is, too.

Such an attack leaves validation nodes nearly unharmed, so that they cannot choose the settings of a defence. For that
the clean graph is also attacked at its validation nodes, with as many flips per attacked node.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch_geometric.data import Data

from graphmend.errors import GraphMendError
from graphmend.files.files import digest, read_arrays, write_arrays
from graphmend.lab.attacks import PRBCD
from graphmend.lab.attacks.pairs import UndirectedGraph
from graphmend.lab.beyond.sources import Source, model_of, splits_of

__all__ = ["ATTACKED", "RATES", "attack_path", "attacked_graph"]

ATTACKED = ("cora", "citeseer", "pubmed")
RATES = (0.05, 0.1, 0.15, 0.2, 0.25)
BLOCK_SIZE, EPOCHS = 250_000, 125


def attack_path(source: Source, rate: float, store: Path, nodes: str = "test") -> Path:
    """Where the flipped pairs of an attack lie."""
    ending = "" if nodes == "test" else f"-{nodes}"
    return store / "attacks" / f"{source.name}-{source.seed}-{rate:.2f}{ending}.npz"


def attacked_graph(
    source: Source, rate: float, store: Path, device: str | torch.device = "cpu", nodes: str = "test"
) -> Data:
    """The graph of a set after the attack on its GCN, on the CPU.

    Args:
        source: The source, for its set and its seed.
        rate: Flips as a fraction of the undirected edges, when the test nodes are attacked.
        store: Where models and flips are kept.
        device: Where to compute the attack, if it is not there.
        nodes: The attacked nodes, ``"test"`` or ``"val"``; both graphs have the nodes in ``mask``.
    """
    splits = splits_of(source)
    clean = splits.parts[nodes][0]
    rate_here = rate * int(clean.mask.sum()) / int(splits.test[0].mask.sum())
    victim = model_of(Source(source.name, "gcn", source.seed), store, device)
    name = digest({key: value for key, value in victim.state_dict().items() if value.dim() > 0})
    path = attack_path(source, rate, store, nodes)
    graph = UndirectedGraph.of(clean)
    flips = _stored(path, name)
    if flips is None:
        harmed = _attack(victim, clean, rate_here, source.seed, device)
        flips = graph.changes_to(UndirectedGraph.of(harmed))
        write_arrays(path, {"flips": flips.numpy(), "victim": np.array(name)})
    return graph.flipped(flips).put_into(clean)


def _stored(path: Path, victim: str) -> torch.Tensor | None:
    if not path.exists():
        return None
    try:
        arrays = read_arrays(path)
    except GraphMendError:  # a damaged file is written again
        return None
    return torch.from_numpy(arrays["flips"]) if str(arrays["victim"]) == victim else None


def _attack(victim: nn.Module, clean: Data, rate: float, seed: int, device: str | torch.device) -> Data:
    keys = ("x", "edge_index", "y", "mask", "train_mask")
    data = Data(**{key: clean[key].to(device) for key in keys})
    attack = PRBCD(
        victim,
        rate=rate,
        nodes=data.mask,
        known=data.train_mask,
        block_size=BLOCK_SIZE,
        epochs=EPOCHS,
        resampling_epochs=4 * EPOCHS // 5,
        seed=seed,
    )
    return attack(data).cpu()
