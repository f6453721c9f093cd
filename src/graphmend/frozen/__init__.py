"""Any PyG model as a frozen backbone."""

from graphmend.frozen.frozen import FrozenGNN

__all__ = ["FrozenGNN"]
