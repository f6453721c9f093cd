"""Measures of predictions."""

from graphmend.metrics.scores import METRICS, predictions, score, scores

__all__ = ["METRICS", "predictions", "score", "scores"]
