"""When a moving polygon first touches an edge of the ground, within a step: conservative advancement.

The distance between the two is by GJK (Gilbert, Johnson and Keerthi, 1988). The separation along the axis of the
closest points is then followed until it is small enough, and a new axis is found there.
"""

from typing import NamedTuple

import numpy as np

from valueshare.envs.lunar_lander.bodies import LOCAL_CENTER, RADIUS, SLOP, VERTEX_COUNT, VERTICES
from valueshare.envs.lunar_lander.geometry import (
    EPSILON,
    F32,
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
    around,
    cross,
    dot,
    length,
    negate,
    normalized,
    rotate,
    rotate_back,
    rule,
    scale,
    subtract,
    to_world,
    turned_right,
)

TARGET = max(SLOP, RADIUS + RADIUS - F32(3) * SLOP)  # the separation at which they touch
TOLERANCE = F32(0.25) * SLOP
MOST_AXES, MOST_GJK_STEPS, MOST_ROOT_STEPS, MOST_PUSHES = 20, 20, 50, 16
TWO_PI = F32(2) * F32(3.14159265359)


class Edge(NamedTuple):
    start: Vector
    end: Vector


class Sweep(NamedTuple):
    """The motion of a body's centre and angle over what is left of a step."""

    body: Int
    start: Vector
    start_angle: Float
    end: Vector
    end_angle: Float


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


class Axis(NamedTuple):
    """The direction along which separation is measured."""

    kind: Int
    local_point: Vector
    direction: Vector


BETWEEN_POINTS, OF_EDGE, OF_POLYGON = range(3)


@rule
def vertex(body: Int, number: Int) -> Vector:
    return Vector(VERTICES[body, number, 0], VERTICES[body, number, 1])


@rule
def end_of(edge: Edge, number: Int) -> Vector:
    return edge.start if number == 0 else edge.end


@rule
def transform_at(sweep: Sweep, fraction: Float) -> Transform:
    rest = ONE - fraction
    center = Vector(rest * sweep.start.x + fraction * sweep.end.x, rest * sweep.start.y + fraction * sweep.end.y)
    angle = rest * sweep.start_angle + fraction * sweep.end_angle
    return around(center, angle, Vector(LOCAL_CENTER[sweep.body, 0], LOCAL_CENTER[sweep.body, 1]))


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
    for _ in range(MOST_GJK_STEPS):
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


@rule
def make_axis(simplex: Simplex, edge: Edge, body: Int, frame: Transform) -> Axis:
    first, second = simplex.first, simplex.second
    point = to_world(frame, vertex(body, first.on_polygon))
    if simplex.count == 1:
        between = normalized(subtract(point, end_of(edge, first.on_edge)))
        return Axis(BETWEEN_POINTS, Vector(ZERO, ZERO), between)
    if first.on_edge == second.on_edge:
        start, end = vertex(body, first.on_polygon), vertex(body, second.on_polygon)
        direction, middle = normalized(turned_right(subtract(end, start))), scale(HALF, add(start, end))
        apart = subtract(end_of(edge, first.on_edge), to_world(frame, middle))
        if dot(apart, rotate(frame, direction)) < ZERO:
            direction = negate(direction)
        return Axis(OF_POLYGON, middle, direction)
    start, end = end_of(edge, first.on_edge), end_of(edge, second.on_edge)
    direction, middle = normalized(turned_right(subtract(end, start))), scale(HALF, add(start, end))
    if dot(subtract(point, middle), direction) < ZERO:
        direction = negate(direction)
    return Axis(OF_EDGE, middle, direction)


@rule
def deepest(axis: Axis, edge: Edge, body: Int, frame: Transform) -> tuple[Int, Int]:
    """The vertices of edge and polygon that are closest along the axis."""
    if axis.kind == BETWEEN_POINTS:
        return furthest_end(edge, axis.direction), furthest_vertex(body, rotate_back(frame, negate(axis.direction)))
    if axis.kind == OF_EDGE:
        return 0, furthest_vertex(body, rotate_back(frame, negate(axis.direction)))
    return furthest_end(edge, negate(rotate(frame, axis.direction))), 0


@rule
def separation(axis: Axis, edge: Edge, on_edge: Int, body: Int, on_polygon: Int, frame: Transform) -> Float:
    if axis.kind == BETWEEN_POINTS:
        point = to_world(frame, vertex(body, on_polygon))
        return dot(subtract(point, end_of(edge, on_edge)), axis.direction)
    if axis.kind == OF_EDGE:
        point = to_world(frame, vertex(body, on_polygon))
        return dot(subtract(point, axis.local_point), axis.direction)
    point = to_world(frame, axis.local_point)
    return dot(subtract(end_of(edge, on_edge), point), rotate(frame, axis.direction))


@rule
def time_of_impact(edge: Edge, sweep: Sweep) -> Float:
    """The fraction of the sweep at which polygon and edge touch; 1: they do not, or they overlap from the start."""
    turns = TWO_PI * np.floor(sweep.start_angle / TWO_PI)
    body = sweep.body
    path = Sweep(body, sweep.start, sweep.start_angle - turns, sweep.end, sweep.end_angle - turns)
    time = ZERO
    nowhere = Corner(0, 0, Vector(ZERO, ZERO), ZERO)
    simplex, kept_metric = Simplex(0, nowhere, nowhere, nowhere), ZERO
    for _ in range(MOST_AXES):
        frame = transform_at(path, time)
        apart, simplex = distance(edge, body, frame, simplex, kept_metric)
        kept_metric = metric(simplex)
        if apart <= ZERO:
            return ONE
        if apart < TARGET + TOLERANCE:
            return time
        axis = make_axis(simplex, edge, body, frame)
        later = ONE
        for _ in range(MOST_PUSHES):
            frame = transform_at(path, later)
            on_edge, on_polygon = deepest(axis, edge, body, frame)
            end = separation(axis, edge, on_edge, body, on_polygon, frame)
            if end > TARGET + TOLERANCE:
                return ONE
            if end > TARGET - TOLERANCE:
                time = later
                break
            start = separation(axis, edge, on_edge, body, on_polygon, transform_at(path, time))
            if start < TARGET - TOLERANCE:
                return ONE
            if start <= TARGET + TOLERANCE:
                return time
            low, high = time, later
            for step in range(MOST_ROOT_STEPS):
                # The secant finds the root fast, and bisection for certain.
                middle = low + (TARGET - start) * (high - low) / (end - start) if step & 1 else HALF * (low + high)
                value = separation(axis, edge, on_edge, body, on_polygon, transform_at(path, middle))
                if abs(value - TARGET) < TOLERANCE:
                    later = middle
                    break
                if value > TARGET:
                    low, start = middle, value
                else:
                    high, end = middle, value
    return ONE
