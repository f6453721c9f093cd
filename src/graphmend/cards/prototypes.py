r"""Prototypes: the kinds of nodes that a model has seen, which distinguish another mix of nodes from a fault.

The training graph's rows of a representation, in units of its mean and spread, are grouped around :data:`NUMBER`
centres. On another graph every node belongs to the nearest of them. With :math:`m` the mean of its standardised rows
and :math:`c` the mean of the centres under the shares found there,

.. math:: u = \lVert m - c \rVert / \lVert m \rVert

is the part of the shift that is *unexplained*: 0 if another mix of known kinds of nodes explains all of it, 1 if none
does. If the training graph has so few nodes that there are fewer than :data:`FEWEST_CENTRES` centres, they cannot
distinguish another mix from a fault, and nothing counts as unexplained. A node is *outside* if it is farther from every
centre than 95 % of the training graph's held-out nodes are, or of all its nodes if fewer than :data:`FEWEST_HELD_OUT`
are held out.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from graphmend.cards.moments import Moments
from graphmend.cards.rows import in_blocks, quantiles, widened
from graphmend.scratch import row_ranges

__all__ = ["Mix", "Prototypes", "find_prototypes", "in_units"]

NUMBER = 64
ROUNDS = 20
STEPS = 2.0**12  # of a standard deviation, so that rows that differ only by rounding are in the same group
USUAL = 5  # rows around a centre, at least, where there are few rows
FEWEST = 3  # rows around a centre
MOST_ROWS = 4000  # from which they are found
HELD_OUT = 0.95  # of the held-out nodes are within reach
FEWEST_HELD_OUT = 20  # nodes from which the reach can be estimated; a single node would set it alone
FEWEST_CENTRES = 8  # enough to recognise a mix
_TINY = 1e-12


@dataclass(frozen=True)
class Mix:
    """How the kinds of nodes that a model knows make up a graph.

    Args:
        unexplained: The share :math:`u` of the shift that no mix of known kinds explains, between 0 and 1; 0 where
            there are fewer than :data:`FEWEST_CENTRES` kinds.
        outside: The share of the nodes that are far from all of them.
    """

    unexplained: float
    outside: float


@dataclass(frozen=True, eq=False)
class Prototypes:
    """The kinds of nodes in a representation.

    Args:
        centres: One row each, in units of the card's mean and spread.
        reach: The distance from the nearest centre within which 95 % of the held-out nodes lie, or of all nodes where
            fewer than :data:`FEWEST_HELD_OUT` are held out.
    """

    centres: Tensor
    reach: float

    @torch.no_grad()
    def mix(self, rows: Tensor, unit: Moments | None = None) -> Mix:
        """How these kinds make up the rows of a representation.

        Args:
            rows: The rows.
            unit: The card's mean and spread; ``None`` if the rows are already in these units.
        """
        distance, nearest = _nearest(rows, self.centres, unit)
        outside = float((distance > self.reach).double().mean())
        if self.centres.size(0) < FEWEST_CENTRES:
            return Mix(0.0, outside)
        centres = widened(self.centres)
        shares = torch.bincount(nearest, minlength=centres.size(0)).to(centres.dtype) / rows.size(0)
        mean = _mean(rows, unit).to(centres.dtype)
        unexplained = torch.linalg.vector_norm(mean - shares @ centres) / mean.norm().clamp(min=_TINY)
        return Mix(float(unexplained.clamp(0, 1)), outside)


@torch.no_grad()
def find_prototypes(
    standard: Tensor, order: Tensor, held_out: Tensor, seed: int, unit: Moments | None = None
) -> Prototypes:
    """The kinds of nodes of a training graph.

    Args:
        standard: The rows of a representation in units of their mean and spread, or as they are if these are given.
        order: The nodes in an order that does not depend on their numbering; the first few thousand are grouped.
        held_out: Which nodes the model was not trained on.
        seed: Seed of the grouping.
        unit: The mean and spread.
    """
    from scipy.cluster.vq import kmeans2  # scipy.cluster changes the filters of warnings when it is imported

    rows = in_units(standard[order[:MOST_ROWS]], unit).double().mul(STEPS).round().div(STEPS).cpu().numpy()
    generator = np.random.default_rng(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an empty group need not worry anybody
        found, group = kmeans2(
            rows, min(NUMBER, max(1, len(rows) // USUAL)), iter=ROUNDS, minit="points", seed=generator
        )
    sizes = np.bincount(group, minlength=len(found))
    found = found[sizes >= min(FEWEST, sizes.max())]  # the centre of a single row would reveal that row
    # half precision is enough and keeps cards of wide models small
    centres = torch.from_numpy(found).clamp(-6e4, 6e4).half().to(standard)
    distance, _ = _nearest(standard, centres, unit, held_out if int(held_out.sum()) >= FEWEST_HELD_OUT else None)
    return Prototypes(centres, float(quantiles(distance.unsqueeze(1), (HELD_OUT,))[0]))


def in_units(rows: Tensor, unit: Moments | None) -> Tensor:
    """Rows in units of a mean and a spread."""
    return rows if unit is None else (rows - unit.mean) / unit.unit


def _mean(rows: Tensor, unit: Moments | None) -> Tensor:
    blocks = [rows[at] for at in row_ranges(*rows.shape)]
    total = torch.stack([in_units(block, unit).sum(0, dtype=torch.float64) for block in blocks]).sum(0)
    return total / rows.size(0)


def _nearest(rows: Tensor, centres: Tensor, unit: Moments | None, only: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The distance of each row, or of some of them, from the nearest centre, and which one that is."""
    centres, blocks = widened(centres), in_blocks(rows, centres.size(0))
    masks = [None] * len(blocks) if only is None else torch.split(only, blocks[0].size(0))
    chosen = (block if mask is None else block[mask] for block, mask in zip(blocks, masks, strict=True))
    found = [torch.cdist(widened(in_units(block, unit)), centres).min(1) for block in chosen]
    return torch.cat([part.values for part in found]), torch.cat([part.indices for part in found])
