r"""A fast fingerprint of tensors, the same on every device.

The bytes of a tensor are read as 64-bit words and summed up in chunks where they lie, each word multiplied by a
pseudo-random odd factor of its place, its halves mixed, and multiplied by another one,
:math:`\sum_i b_i\, m(a_i w_i) \bmod 2^{64}` with :math:`m(h) = h \oplus (h \gg 32)`; only the sums go through SHA-256.
It finds out whether two graphs are the same, it does not withstand somebody who wants two graphs to look the same.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

__all__ = ["fingerprint"]

CHUNK = 1 << 17  # words per sum
TOGETHER = {"cpu": 1, "cuda": 64}  # chunks at a time: what a cache holds, what keeps a GPU busy


def fingerprint(tensors: Mapping[str, Tensor]) -> str:
    """64 hexadecimal digits for tensors with their names, types and shapes."""
    found = hashlib.sha256()
    for name, value in sorted(tensors.items()):
        found.update(f"{name} {value.dtype} {tuple(value.shape)};".encode())
        found.update(_sums(value.detach()).cpu().numpy().tobytes())
    return found.hexdigest()


def _sums(value: Tensor) -> Tensor:
    value = value.contiguous()
    if value.storage_offset() * value.element_size() % 8:
        value = value.clone()  # words begin at multiples of their size
    raw = value.view(-1).view(torch.uint8)
    whole = raw.numel() // 8 * 8
    words = raw[:whole].view(torch.int64)
    size = CHUNK * TOGETHER.get(words.device.type, 1)
    parts = [_weighted(block, words.device) for block in torch.split(words, size)]
    if whole < raw.numel():
        parts.append(F.pad(raw[whole:], (0, 8 - raw.numel() + whole)).view(torch.int64))
    return torch.cat(parts) if parts else words


def _weighted(words: Tensor, device: torch.device) -> Tensor:
    full = words.numel() // CHUNK * CHUNK
    parts = [_mixed(words[:full].view(-1, CHUNK), device)] if full else []
    if full < words.numel():
        parts.append(_mixed(words[full:].view(1, -1), device))
    return torch.cat(parts) if parts else words


def _mixed(words: Tensor, device: torch.device) -> Tensor:
    first, second = _factors(device)
    size = words.size(1)
    mixed = words * first[:size]
    mixed ^= _shifted(mixed, 32)
    total: Tensor = mixed.mul_(second[:size]).sum(1)
    return total


@functools.lru_cache(maxsize=4)
def _factors(device: torch.device) -> Tensor:
    """Odd numbers from the SplitMix64 generator (Steele, Lea & Flood, OOPSLA 2014), two per place."""
    z = torch.arange(1, 2 * CHUNK + 1) * -7046029254386353131
    z = (z ^ _shifted(z, 30)) * -4658895280553007687
    z = (z ^ _shifted(z, 27)) * -7723592293110705685
    return ((z ^ _shifted(z, 31)) | 1).view(2, CHUNK).to(device)


def _shifted(z: Tensor, bits: int) -> Tensor:
    return (z >> bits).bitwise_and_((1 << (64 - bits)) - 1)  # torch shifts the sign in
