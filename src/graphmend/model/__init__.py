"""Any PyG model as a frozen backbone."""

from graphmend.model.frozen import FrozenGNN, Observation

__all__ = ["FrozenGNN", "Observation"]
