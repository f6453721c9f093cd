"""Measures of graphs, of surrogate losses, and of methods beside each other."""

from graphmend.lab.metrics.comparison import PairedTest, average_rank, compare_paired, holm
from graphmend.lab.metrics.discrepancy import central_moment_discrepancy, cmd
from graphmend.lab.metrics.gradients import gradient_correlation
from graphmend.lab.metrics.graphs import GraphStats, graph_stats
from graphmend.lab.metrics.transferability import transfer

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
