"""Any PyG model as a frozen backbone."""

from graphmend.model.frozen import FrozenGNN

__all__ = ["FrozenGNN"]
