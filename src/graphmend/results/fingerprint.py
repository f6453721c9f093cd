r"""A fast fingerprint of tensors, the same on every device.

The bytes of a tensor are read as 32-bit integers and summed in chunks on their own device, each times a pseudo-random
odd 64-bit factor that depends on its position, :math:`\sum_i a_i w_i \bmod 2^{64}`; only the sums go through SHA-256. A
change of a few words goes unseen with a probability of about :math:`2^{-32}` (that of their highest bits alone) or
less. It tells whether two graphs are the same, but does not withstand somebody who wants two graphs to look the same.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Collection, Mapping

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.data import Data

from graphmend.graph.edits import edge_attributes

__all__ = ["fingerprint", "fingerprint_of"]

CHUNK = 1 << 17  # words per sum
TOGETHER = {"cpu": 1, "cuda": 64}  # chunks at a time: what a cache holds, what keeps a GPU busy


def fingerprint(tensors: Mapping[str, Tensor]) -> str:
    """64 hexadecimal digits for tensors with their names, types and shapes."""
    digest = hashlib.sha256()
    for name, value in sorted(tensors.items()):
        digest.update(f"{name} {value.dtype} {tuple(value.shape)};".encode())
        digest.update(_sums(value.detach()).cpu().numpy().tobytes())
    return digest.hexdigest()


def fingerprint_of(data: Data, attributes: Collection[str] | None = None) -> str:
    """The fingerprint of a graph: features, edges and edge attributes (all, or those named)."""
    return fingerprint({"x": data.x, **edge_attributes(data, attributes), "edge_index": data.edge_index})


def _sums(value: Tensor) -> Tensor:
    value = value.contiguous()
    if value.storage_offset() * value.element_size() % 4:
        value = value.clone()  # words begin at multiples of their size
    raw = value.view(-1).view(torch.uint8)
    if raw.numel() % 4:
        raw = F.pad(raw, (0, -raw.numel() % 4))
    words, factors = raw.view(torch.int32), _factors(raw.device)
    full = words.numel() // CHUNK * CHUNK
    together = CHUNK * TOGETHER.get(words.device.type, 1)
    parts = [(block.view(-1, CHUNK) * factors).sum(1) for block in torch.split(words[:full], together)] if full else []
    if full < words.numel():
        parts.append((words[full:] * factors[: words.numel() - full]).sum().view(1))
    return torch.cat(parts) if parts else words.long()


@functools.lru_cache(maxsize=4)
def _factors(device: torch.device) -> Tensor:
    """Odd numbers from the SplitMix64 generator (Steele, Lea & Flood, OOPSLA 2014)."""
    z = torch.arange(1, CHUNK + 1) * -7046029254386353131
    z = (z ^ _shifted(z, 30)) * -4658895280553007687
    z = (z ^ _shifted(z, 27)) * -7723592293110705685
    return ((z ^ _shifted(z, 31)) | 1).to(device)


def _shifted(z: Tensor, bits: int) -> Tensor:
    return (z >> bits) & ((1 << (64 - bits)) - 1)  # torch shifts the sign in
