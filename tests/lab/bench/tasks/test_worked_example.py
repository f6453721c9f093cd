"""The example of the paper: 0.45 and 0.53, then 0.45 twice."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from graphmend.lab.bench.store import Run, Store
from graphmend.lab.bench.tasks.theory import worked_example
from graphmend.lab.bench.workspace import Workspace


def test_only_other_features_can_tell_the_two_nodes_apart(tmp_path: Path) -> None:
    found = worked_example(Run("worked_example", {}), Workspace(Store(tmp_path), torch.device("cpu")))
    assert found["clean"]["aggregated"] == pytest.approx([0.45, 1.6 / 3])  # 0.53 in the paper
    assert found["attacked"]["aggregated"] == pytest.approx([0.45, 0.45])
    assert [found[case]["error"] for case in ("clean", "attacked", "model", "data")] == [0.0, 50.0, 50.0, 0.0]
    assert found["model"]["loss"] == pytest.approx(math.log(2), abs=1e-4)  # the least for two equal inputs
    logit = 100 * (0.45 - (0.45 + 1.6 / 3) / 2)  # of both nodes, by the classifier of the clean graph
    assert found["attacked"]["loss"] == pytest.approx(math.log1p(math.exp(logit)) - logit / 2)
    assert found["data"]["loss"] < 0.05
