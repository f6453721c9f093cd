"""How different colours look, also to people who see fewer of them, and how well text can be read."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

SIGHT = {
    "normal": np.eye(3),
    "no red": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "no green": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "no blue": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]
    ),
}
"""What is left of linear RGB (Machado, Oliveira and Fernandes, 2009, at full severity)."""

TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
WHITE = np.array([0.9505, 1.0, 1.089])


def linear(colour: tuple[float, float, float]) -> Array:
    """Linear RGB of a colour from 0 to 1."""
    values = np.array(colour)
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def parts(colour: str) -> tuple[float, float, float]:
    """The red, green and blue of ``#rrggbb``."""
    red, green, blue = (int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5))
    return red, green, blue


def lab(colour: str, sight: str) -> Array:
    """CIELAB of a colour as somebody sees it."""
    xyz = TO_XYZ @ np.clip(SIGHT[sight] @ linear(parts(colour)), 0, 1) / WHITE
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def difference(first: str, second: str, sight: str = "normal") -> float:
    """How different two colours look (CIE76)."""
    return float(np.linalg.norm(lab(first, sight) - lab(second, sight)))


def contrast(first: tuple[float, float, float], second: tuple[float, float, float]) -> float:
    """How well a text of one colour can be read on the other, as WCAG defines it: from 1 to 21."""
    light, dark = sorted((float(TO_XYZ[1] @ linear(colour)) for colour in (first, second)), reverse=True)
    return (light + 0.05) / (dark + 0.05)
