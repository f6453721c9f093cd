"""Backbones: ``forward(x, edge_index, edge_weight=None) -> logits`` and ``embed(...) -> Z``.

For all of them an edge of weight 0 equals the edge not being there, and weight 1 equals no weight at all.
"""

from graphmend.nn.airgnn import AirGNN
from graphmend.nn.appnp import APPNP
from graphmend.nn.checkpoint import load_model, save_model
from graphmend.nn.dual_gcn import DualGCN
from graphmend.nn.gat import GAT
from graphmend.nn.gcn import GCN
from graphmend.nn.gpr import GPR
from graphmend.nn.registry import BACKBONES, build
from graphmend.nn.robust_gcn import RobustGCN
from graphmend.nn.sage import SAGE
from graphmend.nn.simp_gcn import SimPGCN

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
