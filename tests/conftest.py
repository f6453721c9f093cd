"""Hypothesis draws the same cases in every run and writes nothing to disk."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile(
    "graphmend", deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("graphmend")
