"""The gate: decides which mender acts on a graph, or none, and says why."""

from graphmend.adapters.gate.gate import Gate

__all__ = ["Gate"]
