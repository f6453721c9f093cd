"""What runs share: data sets, trained models, harmed graphs, and adapters made from plain JSON settings."""

from __future__ import annotations

import functools
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from graphmend.adapters import ADAPTERS, Adapter
from graphmend.adapters.gate import Gate
from graphmend.errors import GraphMendError, choose
from graphmend.files.files import read_arrays, write_arrays, write_text
from graphmend.lab.attacks import PRBCD
from graphmend.lab.attacks.pairs import UndirectedGraph
from graphmend.lab.backbones import build, load_model, save_model
from graphmend.lab.bench.store import Run, Store
from graphmend.lab.data import Splits, load, masked
from graphmend.lab.data.corruptions import FeatureNoise
from graphmend.lab.data.splits import node_mask
from graphmend.lab.training import TRAINERS
from graphmend.surrogates import SURROGATES, Supervised, Surrogate
from graphmend.surrogates.slaps import SLAPS
from graphmend.transforms import VIEWS

__all__ = ["Workspace", "adapter_from", "surrogate_from"]


class Workspace:
    """Where a task finds what it works on.

    Args:
        store: Results and artefacts of other runs.
        device: Where to compute.
        data_dir: Where data sets are looked for first.
    """

    def __init__(self, store: Store, device: torch.device, data_dir: Path | None = None) -> None:
        self.store, self.device, self.data_dir = store, device, data_dir

    def splits(self, settings: dict[str, Any]) -> Splits:
        """The data set of some settings, on the device; it is kept for the next run and must not be changed."""
        return _splits(settings["dataset"], settings.get("draw", settings["seed"]), str(self.device), self.data_dir)

    def model(self, settings: dict[str, Any], splits: Splits | None = None) -> nn.Module:
        """The trained model of some settings: read if it is there, or else trained and kept.

        Args:
            settings: With ``dataset``, ``backbone``, ``model``, ``trainer`` and ``seed``.
            splits: What to train on instead of the data set's own splits; ``trainer`` must tell the two apart.
        """
        path, taken = (self.store.artefact(_training(settings), ending) for ending in (".safetensors", ".seconds"))
        if not _is_readable(path):  # a file that was damaged since is written again
            start = time.perf_counter()
            model = self._train(settings, self.splits(settings) if splits is None else splits)
            seconds = time.perf_counter() - start
            write_text(taken, f"{seconds:.3f}\n")
            save_model(model, path)
        return load_model(path).to(self.device)

    def training_seconds(self, settings: dict[str, Any]) -> float | None:
        """How long the training of a stored model took; ``None`` if that was not recorded."""
        taken = self.store.artefact(_training(settings), ".seconds")
        return float(taken.read_text(encoding="utf-8")) if taken.exists() else None

    def _train(self, settings: dict[str, Any], splits: Splits) -> nn.Module:
        options = {name: value for name, value in settings["trainer"].items() if name not in ("name", "target")}
        trainer = choose("trainer", settings["trainer"]["name"], TRAINERS)(seed=settings["seed"], **options)
        columns, classes = splits.train[0].num_features, int(splits.meta["classes"])
        width = settings["model"]["hidden_channels"]
        others = {name: value for name, value in settings["model"].items() if name != "hidden_channels"}
        with torch.random.fork_rng():
            torch.manual_seed(settings["seed"])
            model = build(settings["backbone"], columns, width, classes, **others).to(self.device)
        return trainer(model, splits)

    def chosen(self, settings: dict[str, Any], task: str = "tune") -> dict[str, Any]:
        """The settings that another run chose, if there is one."""
        return dict(self.store.require(Run(task, settings[task]))["settings"]) if task in settings else {}

    def tests(self, settings: dict[str, Any]) -> dict[str, Data]:
        """The test graphs by name, as they are or harmed."""
        splits = self.splits(settings)
        names = splits.meta.get("graphs", {}).get("test") or [f"test {i}" for i in range(len(splits.test))]
        graphs = dict(zip(names, splits.test, strict=True))
        return {name: self.harmed(data, settings, "test") for name, data in graphs.items()}

    def validation(self, settings: dict[str, Any]) -> list[Data]:
        """Where settings are chosen: validation graphs; or the harmed graph, with its validation nodes as ``mask``."""
        splits = self.splits(settings)
        if "abnormal" in settings or "attack" in settings:
            data = self.harmed(splits.test[0], settings, "test")
            return [masked(data, data.val_mask)]
        return splits.val

    def harmed(self, data: Data, settings: dict[str, Any], part: str) -> Data:
        """A graph with abnormal features or flipped edges, if the settings say so."""
        if "abnormal" in settings:
            return FeatureNoise(data[f"{part}_mask"], settings["abnormal"], seed=settings["seed"])(data)
        if "attack" in settings:
            graph = UndirectedGraph.of(data)
            return graph.flipped(self.flips(settings["attack"]).to(graph.pairs)).put_into(data)
        return data

    def flips(self, settings: dict[str, Any]) -> Tensor:
        """The pairs that an attack flips: read if they are there, or else found and kept.

        Args:
            settings: ``train`` for the attacked model and its data, ``nodes`` (``"all"`` for an attacker's loss that
                counts all nodes instead of the test nodes), and what :class:`~graphmend.lab.attacks.PRBCD` takes.
        """
        path = self.store.artefact(Run("attack", settings), ".npz")
        if path.exists():
            return torch.from_numpy(read_arrays(path)["flips"])
        options = dict(settings)
        train = options.pop("train")
        data, model = self.splits(train).test[0], self.model(train)
        nodes = None if options.pop("nodes", "test") == "all" else node_mask(data)
        harmed = PRBCD(model, nodes=nodes, seed=train["seed"], **options)(data)
        flips = UndirectedGraph.of(data).changes_to(UndirectedGraph.of(harmed)).cpu()
        write_arrays(path, {"flips": flips.numpy()})
        return flips


def _is_readable(path: Path) -> bool:
    try:
        load_model(path)
    except GraphMendError:
        return False
    return True


def _training(settings: dict[str, Any]) -> Run:
    names = ("dataset", "backbone", "model", "trainer", "seed", "draw")
    return Run("train", {name: settings[name] for name in names if name in settings})


@functools.lru_cache(maxsize=2)
def _splits(name: str, seed: int, device: str, data_dir: Path | None) -> Splits:
    return load(name, seed=seed, data_dir=data_dir).to(device)


def adapter_from(settings: dict[str, Any], data: Data, splits: Splits) -> Adapter:
    """An adapter for one graph.

    Args:
        settings: ``name``, ``surrogate`` (see :func:`surrogate_from`) and whatever the adapter's constructor takes.
            ``surrogate_weight`` puts the surrogate with that weight beside the loss of the training nodes.
            ``validation`` is the name of a mask of the graph, for adapters that choose by labels.
        data: The graph.
        splits: For surrogates that are fitted to training graphs.
    """
    options = dict(settings)
    kind: Any = choose("adapter", options.pop("name"), {**ADAPTERS, "gate": Gate})
    weight, surrogate = options.pop("surrogate_weight", None), options.pop("surrogate", None)
    if surrogate is not None or weight is not None:
        loss = surrogate_from(surrogate or {"name": "contrastive"}, splits)
        if weight is not None:
            known = Supervised(data.train_mask)
            loss = known + float(weight) * loss if weight else known
        options["surrogate"] = loss
    if "validation" in options:
        options["validation"] = data[options["validation"]]
    made: Adapter = kind(**options)
    return made


def surrogate_from(settings: dict[str, Any], splits: Splits) -> Surrogate:
    """A surrogate: its ``name``, a ``view`` with a name of its own, and whatever its constructor takes."""
    options = dict(settings)
    name = options.pop("name")
    if name == "slaps":
        return SLAPS.fit(splits.train[0], **options)
    if "view" in options:
        view = dict(options["view"])
        kind: Any = choose("view", view.pop("name"), VIEWS)
        options["view"] = kind(**view)
    made: Surrogate = choose("surrogate", name, SURROGATES)(**options)
    return made
