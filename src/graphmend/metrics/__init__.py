"""Measures of predictions, of graphs, of surrogate losses, and of methods beside each other."""

from graphmend.metrics.comparison import PairedTest, average_rank, compare_paired, holm
from graphmend.metrics.discrepancy import central_moment_discrepancy, cmd
from graphmend.metrics.gradients import gradient_correlation
from graphmend.metrics.graphs import GraphStats, graph_stats
from graphmend.metrics.scores import METRICS, predictions, score, scores
from graphmend.metrics.transferability import transfer

__all__ = [
    "METRICS",
    "GraphStats",
    "PairedTest",
    "average_rank",
    "central_moment_discrepancy",
    "cmd",
    "compare_paired",
    "gradient_correlation",
    "graph_stats",
    "holm",
    "predictions",
    "score",
    "scores",
    "transfer",
]
