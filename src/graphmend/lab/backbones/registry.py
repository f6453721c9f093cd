"""Backbones by name, for the command line and for checkpoints."""

from __future__ import annotations

from typing import Any

from torch import nn

from graphmend.errors import GraphMendError, choose
from graphmend.lab.backbones.airgnn import AirGNN
from graphmend.lab.backbones.appnp import APPNP
from graphmend.lab.backbones.dual_gcn import DualGCN
from graphmend.lab.backbones.gat import GAT
from graphmend.lab.backbones.gcn import GCN
from graphmend.lab.backbones.gpr import GPR
from graphmend.lab.backbones.robust_gcn import RobustGCN
from graphmend.lab.backbones.sage import SAGE
from graphmend.lab.backbones.simp_gcn import SimPGCN

BACKBONES: dict[str, type[nn.Module]] = {
    "gcn": GCN,
    "sage": SAGE,
    "gat": GAT,
    "gpr": GPR,
    "appnp": APPNP,
    "airgnn": AirGNN,
    "robust_gcn": RobustGCN,
    "simp_gcn": SimPGCN,
    "dual_gcn": DualGCN,
}
"""Every backbone by name.

Example:
    >>> from graphmend.lab.backbones import BACKBONES
    >>> BACKBONES["gcn"].__name__
    'GCN'
"""


def build(name: str, in_channels: int, hidden_channels: int, out_channels: int, **options: Any) -> nn.Module:
    """Build a backbone by name; ``options`` are those of its constructor.

    Example:
        >>> from graphmend.lab.backbones import build
        >>> type(build("sage", 3, 8, 2, num_layers=3)).__name__
        'SAGE'
    """
    backbone = choose("backbone", name, BACKBONES)
    try:
        return backbone(in_channels, hidden_channels, out_channels, **options)
    except TypeError as error:
        raise GraphMendError(f"backbone {name!r} does not take these options: {error}") from error
