"""Measures of predictions and graphs."""

from graphmend.metrics.scores import METRICS, predictions, score, scores

__all__ = ["METRICS", "predictions", "score", "scores"]
