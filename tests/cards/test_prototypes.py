"""The kinds of nodes on a source card: what another mix of them explains, and how far nodes may be from them."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from graphmend.cards import prototypes
from graphmend.cards.prototypes import FEWEST_CENTRES, FEWEST_HELD_OUT, Prototypes, find_prototypes
from graphmend.cards.rows import in_blocks
from support.graphs import rng


def rows(n: int = 300, width: int = 4) -> Tensor:
    return torch.randn(n, width, generator=rng(), dtype=torch.float64)


def found(standard: Tensor, held_out: Tensor) -> Prototypes:
    return find_prototypes(standard, torch.arange(len(standard)), held_out, seed=0)


@pytest.mark.parametrize("number", [0, 1, FEWEST_HELD_OUT - 1])
def test_a_few_held_out_nodes_do_not_set_the_reach(number: int) -> None:
    standard = rows()
    standard[:number] *= 50
    chosen = torch.arange(300) < number
    everything = found(standard, torch.ones(300, dtype=torch.bool))
    assert found(standard, chosen).reach == everything.reach


def test_enough_held_out_nodes_set_the_reach() -> None:
    standard = rows()
    chosen = torch.arange(300) < FEWEST_HELD_OUT
    made = found(standard, chosen)
    distance = torch.cdist(standard[chosen], made.centres).amin(1).sort().values
    assert made.reach == pytest.approx(float(distance[round(0.95 * (FEWEST_HELD_OUT - 1))]))


@pytest.mark.parametrize("number", [1, FEWEST_CENTRES - 1, FEWEST_CENTRES, 20])
def test_with_few_centres_nothing_is_unexplained(number: int) -> None:
    mix = Prototypes(rows(number), 1.0).mix(rows() + 9.0)
    assert mix.outside > 0.9
    assert 0.5 < mix.unexplained <= 1 if number >= FEWEST_CENTRES else mix.unexplained == 0


def test_what_is_unexplained_is_a_share() -> None:
    """The mean of the rows is nearly that of the training graph, and that of their centres is far away."""
    centres = torch.cat([torch.full((1, 1), 5.0), torch.full((FEWEST_CENTRES, 1), -50.0)])
    assert Prototypes(centres, 1.0).mix(torch.tensor([[0.1], [-0.1], [0.01]])).unexplained == 1.0
    assert Prototypes(rows(20), 1.0).mix(rows(20)).unexplained == pytest.approx(0)


def test_blocks_leave_room_for_the_distances(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Prototypes(rows(20, 2), 1.0).mix(rows(50, 2))
    sizes = []

    def noted(x: Tensor, made: int) -> list[Tensor]:
        blocks = in_blocks(x, made)
        sizes.extend(len(block) * made for block in blocks)
        return blocks

    monkeypatch.setattr("graphmend.cards.rows.CACHED_NUMBERS", 60)
    monkeypatch.setattr(prototypes, "in_blocks", noted)
    found = Prototypes(rows(20, 2), 1.0).mix(rows(50, 2))
    assert found.outside == whole.outside and found.unexplained == pytest.approx(whole.unexplained, rel=1e-12)
    assert sum(sizes) == 50 * 20 and max(sizes) <= 60
