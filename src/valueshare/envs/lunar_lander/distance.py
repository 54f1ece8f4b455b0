"""The distance between a polygon and an edge of the ground, by GJK (Gilbert, Johnson and Keerthi, 1988)."""

from typing import NamedTuple

from valueshare.envs.lunar_lander.bodies import VERTEX_COUNT, VERTICES
from valueshare.envs.lunar_lander.geometry import (
    EPSILON,
    HALF,
    ONE,
    TWO,
    ZERO,
    Bool,
    Float,
    Int,
    Transform,
    Vector,
    add,
    cross,
    dot,
    length,
    negate,
    rotate_back,
    rule,
    scale,
    subtract,
    to_world,
    turned_right,
)

MOST_STEPS = 20


class Edge(NamedTuple):
    start: Vector
    end: Vector


class Corner(NamedTuple):
    """A vertex of the simplex: a vertex of the polygon minus one of the edge."""

    on_edge: Int
    on_polygon: Int
    point: Vector
    weight: Float  # barycentric coordinate of the point closest to the origin


class Simplex(NamedTuple):
    count: Int  # 1 to 3
    first: Corner
    second: Corner
    third: Corner


@rule
def vertex(body: Int, number: Int) -> Vector:
    return Vector(VERTICES[body, number, 0], VERTICES[body, number, 1])


@rule
def end_of(edge: Edge, number: Int) -> Vector:
    return edge.start if number == 0 else edge.end


@rule
def furthest_vertex(body: Int, direction: Vector) -> Int:
    best, most = 0, dot(vertex(body, 0), direction)
    for number in range(1, VERTEX_COUNT[body]):
        value = dot(vertex(body, number), direction)
        if value > most:
            best, most = number, value
    return best


@rule
def furthest_end(edge: Edge, direction: Vector) -> Int:
    return 1 if dot(edge.end, direction) > dot(edge.start, direction) else 0


@rule
def corner(edge: Edge, on_edge: Int, body: Int, on_polygon: Int, frame: Transform, weight: Float) -> Corner:
    return Corner(
        on_edge,
        on_polygon,
        subtract(to_world(frame, vertex(body, on_polygon)), end_of(edge, on_edge)),
        weight,
    )


@rule
def metric(simplex: Simplex) -> Float:
    """Length or area: how far a simplex changed since it was kept."""
    if simplex.count == 2:
        return length(subtract(simplex.first.point, simplex.second.point))
    if simplex.count == 3:
        a = simplex.first.point
        return cross(subtract(simplex.second.point, a), subtract(simplex.third.point, a))
    return ZERO


@rule
def closest_on_segment(simplex: Simplex) -> Simplex:
    first, second, third = simplex.first, simplex.second, simplex.third
    along = subtract(second.point, first.point)
    part2 = -dot(first.point, along)
    if part2 <= ZERO:
        return Simplex(1, weighted(first, ONE), second, third)
    part1 = dot(second.point, along)
    if part1 <= ZERO:
        only = weighted(second, ONE)
        return Simplex(1, only, only, third)
    inverse = ONE / (part1 + part2)
    return Simplex(2, weighted(first, part1 * inverse), weighted(second, part2 * inverse), third)


@rule
def weighted(of: Corner, weight: Float) -> Corner:
    return Corner(of.on_edge, of.on_polygon, of.point, weight)


@rule
def closest_on_triangle(simplex: Simplex) -> Simplex:
    first, second, third = simplex.first, simplex.second, simplex.third
    w1, w2, w3 = first.point, second.point, third.point
    e12, e13, e23 = subtract(w2, w1), subtract(w3, w1), subtract(w3, w2)
    d12_1, d12_2 = dot(w2, e12), -dot(w1, e12)
    d13_1, d13_2 = dot(w3, e13), -dot(w1, e13)
    d23_1, d23_2 = dot(w3, e23), -dot(w2, e23)
    area = cross(e12, e13)
    d1, d2, d3 = area * cross(w2, w3), area * cross(w3, w1), area * cross(w1, w2)
    if d12_2 <= ZERO and d13_2 <= ZERO:
        return Simplex(1, weighted(first, ONE), second, third)
    if d12_1 > ZERO and d12_2 > ZERO and d3 <= ZERO:
        inverse = ONE / (d12_1 + d12_2)
        return Simplex(2, weighted(first, d12_1 * inverse), weighted(second, d12_2 * inverse), third)
    if d13_1 > ZERO and d13_2 > ZERO and d2 <= ZERO:
        inverse = ONE / (d13_1 + d13_2)
        last = weighted(third, d13_2 * inverse)
        return Simplex(2, weighted(first, d13_1 * inverse), last, last)
    if d12_1 <= ZERO and d23_2 <= ZERO:
        only = weighted(second, ONE)
        return Simplex(1, only, only, third)
    if d13_1 <= ZERO and d23_1 <= ZERO:
        only = weighted(third, ONE)
        return Simplex(1, only, second, only)
    if d23_1 > ZERO and d23_2 > ZERO and d1 <= ZERO:
        inverse = ONE / (d23_1 + d23_2)
        last = weighted(third, d23_2 * inverse)
        return Simplex(2, last, weighted(second, d23_1 * inverse), last)
    inverse = ONE / (d1 + d2 + d3)
    return Simplex(3, weighted(first, d1 * inverse), weighted(second, d2 * inverse), weighted(third, d3 * inverse))


@rule
def direction_to_origin(simplex: Simplex) -> Vector:
    a = simplex.first.point
    if simplex.count == 1:
        return negate(a)
    along = subtract(simplex.second.point, a)
    if cross(along, negate(a)) > ZERO:
        return Vector(-along.y, along.x)
    return turned_right(along)


@rule
def is_corner_of(simplex: Simplex, on_edge: Int, on_polygon: Int) -> Bool:
    first, second, third = simplex.first, simplex.second, simplex.third
    if first.on_edge == on_edge and first.on_polygon == on_polygon:
        return True
    if simplex.count > 1 and second.on_edge == on_edge and second.on_polygon == on_polygon:
        return True
    return simplex.count > 2 and third.on_edge == on_edge and third.on_polygon == on_polygon


@rule
def distance(edge: Edge, body: Int, frame: Transform, kept: Simplex, kept_metric: Float) -> tuple[Float, Simplex]:
    """Between edge and polygon, without their skins; starts from the simplex of a call before, if `kept.count` > 0."""
    start = corner(edge, 0, body, 0, frame, ONE)
    simplex = Simplex(1, start, start, start)
    if kept.count > 0:
        again = Simplex(
            kept.count,
            corner(edge, kept.first.on_edge, body, kept.first.on_polygon, frame, ZERO),
            corner(edge, kept.second.on_edge, body, kept.second.on_polygon, frame, ZERO),
            corner(edge, kept.third.on_edge, body, kept.third.on_polygon, frame, ZERO),
        )
        now = metric(again)
        changed = now < HALF * kept_metric or TWO * kept_metric < now or now < EPSILON
        if kept.count == 1 or not changed:
            simplex = again
    for _ in range(MOST_STEPS):
        before = simplex
        if simplex.count == 2:
            simplex = closest_on_segment(simplex)
        elif simplex.count == 3:
            simplex = closest_on_triangle(simplex)
        if simplex.count == 3:
            break
        towards = direction_to_origin(simplex)
        if dot(towards, towards) < EPSILON * EPSILON:
            break
        on_edge = furthest_end(edge, negate(towards))
        on_polygon = furthest_vertex(body, rotate_back(frame, towards))
        new = corner(edge, on_edge, body, on_polygon, frame, ZERO)
        if is_corner_of(before, on_edge, on_polygon):
            break
        if simplex.count == 1:
            simplex = Simplex(2, simplex.first, new, new)
        else:
            simplex = Simplex(3, simplex.first, simplex.second, new)
    if simplex.count == 1:
        closest = simplex.first
        a, b = end_of(edge, closest.on_edge), to_world(frame, vertex(body, closest.on_polygon))
    elif simplex.count == 2:
        a = mixed(simplex, end_of(edge, simplex.first.on_edge), end_of(edge, simplex.second.on_edge))
        b = mixed(
            simplex,
            to_world(frame, vertex(body, simplex.first.on_polygon)),
            to_world(frame, vertex(body, simplex.second.on_polygon)),
        )
    else:
        a = b = Vector(ZERO, ZERO)
    return length(subtract(a, b)), simplex


@rule
def mixed(simplex: Simplex, first: Vector, second: Vector) -> Vector:
    return add(scale(simplex.first.weight, first), scale(simplex.second.weight, second))
