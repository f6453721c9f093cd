"""Backbones: ``forward(x, edge_index, edge_weight=None) -> logits`` and ``embed(...) -> Z``.

For all of them an edge of weight 0 equals the edge not being there, and weight 1 equals no weight at all.
"""

from graphmend.lab.backbones.airgnn import AirGNN
from graphmend.lab.backbones.appnp import APPNP
from graphmend.lab.backbones.checkpoint import load_model, save_model
from graphmend.lab.backbones.dual_gcn import DualGCN
from graphmend.lab.backbones.gat import GAT
from graphmend.lab.backbones.gcn import GCN
from graphmend.lab.backbones.gpr import GPR
from graphmend.lab.backbones.registry import BACKBONES, build
from graphmend.lab.backbones.robust_gcn import RobustGCN
from graphmend.lab.backbones.sage import SAGE
from graphmend.lab.backbones.simp_gcn import SimPGCN

__all__ = [
    "APPNP",
    "BACKBONES",
    "GAT",
    "GCN",
    "GPR",
    "SAGE",
    "AirGNN",
    "DualGCN",
    "RobustGCN",
    "SimPGCN",
    "build",
    "load_model",
    "save_model",
]
