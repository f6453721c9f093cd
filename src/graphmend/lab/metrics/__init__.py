"""Measures of graphs, of surrogate losses, and of methods beside each other."""

from graphmend.lab.metrics.comparison import PairedTest, average_rank, compare_paired, holm
from graphmend.lab.metrics.graphs import GraphStats, central_moment_discrepancy, cmd, graph_stats
from graphmend.lab.metrics.models import gradient_correlation, transfer

__all__ = [
    "GraphStats",
    "PairedTest",
    "average_rank",
    "central_moment_discrepancy",
    "cmd",
    "compare_paired",
    "gradient_correlation",
    "graph_stats",
    "holm",
    "transfer",
]
