"""How well edges fit, in slow float64: edge by edge, in plain numbers."""

from __future__ import annotations

import math

from torch import Tensor

Vector = list[float]


def unit(vector: Vector) -> Vector:
    size = math.sqrt(math.fsum(v * v for v in vector))
    return [v / size for v in vector] if size > 0 else vector


def dot(a: Vector, b: Vector) -> float:
    return math.fsum(v * w for v, w in zip(a, b, strict=True))


def slow_views(x: Tensor, hidden: Tensor, edge_index: Tensor) -> list[tuple[float, float, float]]:
    """The cosines of each edge: of hidden rows, of features, of neighbourhoods without each other."""
    features, small = ([unit(row) for row in rows.double().tolist()] for rows in (x, hidden))
    edges: list[list[int]] = edge_index.t().tolist()
    near = {i: [i, *(source for source, target in edges if target == i)] for i in range(x.size(0))}

    def around(node: int, other: int) -> Vector:
        members = list(near[node])
        if other in members:
            members.remove(other)
        return unit([math.fsum(column) for column in zip(*(features[i] for i in members), strict=True)])

    return [(dot(small[s], small[t]), dot(features[s], features[t]), dot(around(t, s), around(s, t))) for s, t in edges]


def slow_percentile(value: float, points: Vector) -> float:
    """The share of the points below a value; those equal to it count half."""
    return (sum(p < value for p in points) + 0.5 * sum(p == value for p in points)) / len(points)


def slow_fits(views: Tensor, grid: Tensor) -> Vector:
    points, edges = grid.tolist(), views.double().t().tolist()
    return [sum(slow_percentile(v, row) for v, row in zip(edge, points, strict=True)) for edge in edges]
