"""What runs share: data sets, trained models and harmed graphs, each loaded or made once."""

from __future__ import annotations

import functools
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch_geometric.data import Data

from graphmend.errors import choose
from graphmend.files.files import read_arrays, write_text
from graphmend.lab.attacks.pairs import UndirectedGraph
from graphmend.lab.backbones import build, load_model, save_model
from graphmend.lab.bench.run import Run
from graphmend.lab.bench.store import Store
from graphmend.lab.data import Splits, load, masked
from graphmend.lab.data.feature_noise import FeatureNoise
from graphmend.lab.training import TRAINERS

__all__ = ["Workspace"]


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
        return _splits(settings["dataset"], settings["seed"], str(self.device), self.data_dir)

    def model(self, settings: dict[str, Any], splits: Splits | None = None) -> nn.Module:
        """The trained model of some settings: read if it is there, or else trained and kept.

        Args:
            settings: With ``dataset``, ``backbone``, ``model``, ``trainer`` and ``seed``.
            splits: What to train on instead of the data set's own splits; ``trainer`` must tell the two apart.
        """
        path, taken = (self.store.artefact(_training(settings), ending) for ending in (".safetensors", ".seconds"))
        if not path.exists():
            start = time.perf_counter()
            model = self._train(settings, self.splits(settings) if splits is None else splits)
            seconds = time.perf_counter() - start
            write_text(taken, f"{seconds:.3f}\n")
            save_model(model, path)
        return load_model(path).to(self.device)

    def training_seconds(self, settings: dict[str, Any]) -> float | None:
        """How long the training of a model took that is there, whenever that was; ``None`` if nobody noted it."""
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
            path = self.store.artefact(Run("attack", settings["attack"]), ".npz")
            flips = torch.from_numpy(read_arrays(path)["flips"])
            graph = UndirectedGraph.of(data)
            return graph.flipped(flips.to(graph.pairs)).put_into(data)
        return data


def _training(settings: dict[str, Any]) -> Run:
    return Run("train", {name: settings[name] for name in ("dataset", "backbone", "model", "trainer", "seed")})


@functools.lru_cache(maxsize=2)
def _splits(name: str, seed: int, device: str, data_dir: Path | None) -> Splits:
    return load(name, seed=seed, data_dir=data_dir).to(device)
