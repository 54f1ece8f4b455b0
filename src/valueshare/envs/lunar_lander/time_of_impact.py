"""When a moving polygon first touches an edge of the ground, within a step: conservative advancement.

The separation along the axis of the closest points is followed until it is small enough, and a new axis is found there.
"""

from typing import NamedTuple

import numpy as np

from valueshare.envs.lunar_lander.bodies import RADIUS, SLOP, frame_at
from valueshare.envs.lunar_lander.distance import (
    Corner,
    Edge,
    Simplex,
    distance,
    end_of,
    furthest_end,
    furthest_vertex,
    metric,
    vertex,
)
from valueshare.envs.lunar_lander.geometry import (
    F32,
    HALF,
    ONE,
    PI,
    ZERO,
    Float,
    Int,
    Transform,
    Vector,
    add,
    dot,
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
MOST_AXES, MOST_ROOT_STEPS, MOST_PUSHES = 20, 50, 16
TWO_PI = F32(2) * PI


class Sweep(NamedTuple):
    """The motion of a body's centre and angle over what is left of a step."""

    body: Int
    start: Vector
    start_angle: Float
    end: Vector
    end_angle: Float


class Axis(NamedTuple):
    """The direction along which separation is measured."""

    kind: Int
    local_point: Vector
    direction: Vector


BETWEEN_POINTS, OF_EDGE, OF_POLYGON = range(3)


@rule
def transform_at(sweep: Sweep, fraction: Float) -> Transform:
    rest = ONE - fraction
    x, y = rest * sweep.start.x + fraction * sweep.end.x, rest * sweep.start.y + fraction * sweep.end.y
    angle = rest * sweep.start_angle + fraction * sweep.end_angle
    return frame_at(sweep.body, x, y, angle)


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
    """The fraction of the sweep at which polygon and edge touch.

    1: they do not, they overlap from the start, or no axis was found that settles it.
    """
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
