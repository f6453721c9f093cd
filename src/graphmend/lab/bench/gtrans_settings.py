"""GTrans as the paper runs it in each of its three settings."""

from __future__ import annotations

from typing import Any

from graphmend.lab.bench.presets import preset, presets
from graphmend.lab.bench.stand_ins import STAND_INS

__all__ = ["RELEASED_NOTE", "abnormal_settings", "attack_settings", "ood_settings"]

RELEASED_NOTE = (
    "GTrans has the settings of the released code for each data set and backbone; "
    "citation, which the paper does not have, has those of Cora."
)


def ood_settings(dataset: str, backbone: str = "gcn", **changes: Any) -> dict[str, Any]:
    """Distribution shift: released values; those of Cora for sets that the paper does not have."""
    tables = presets()["gtrans"]["ood"]
    own = tables.get(STAND_INS.get(dataset, dataset), tables["cora-ood"])[backbone]
    return {"name": "gtrans", **tables["common"], **own, **changes}


def abnormal_settings(dataset: str, **changes: Any) -> dict[str, Any]:
    """Abnormal features: the loss of the training nodes and, weighted, the surrogate."""
    tables = preset("gtrans", "abnormal")
    own = tables.get(STAND_INS.get(dataset, dataset), tables["cora"])
    return {"name": "gtrans", **tables["common"], **own, **changes}


def attack_settings(mode: str = "paper", **changes: Any) -> dict[str, Any]:
    """Structure attack: ``mode`` is ``"paper"`` (1 feature step, 4 edge steps) or ``"released"`` (4 and 1)."""
    return {"name": "gtrans", **preset("gtrans", "attack", "common"), **preset("gtrans", "attack", mode), **changes}
