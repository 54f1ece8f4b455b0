"""Where a polygon touches an edge of the ground: up to two points, by the axis of largest separation and clipping."""

from typing import NamedTuple

import numpy as np

from valueshare.envs.lunar_lander.bodies import LOCAL_CENTER, NORMALS, RADIUS, VERTEX_COUNT
from valueshare.envs.lunar_lander.distance import Edge, vertex
from valueshare.envs.lunar_lander.geometry import (
    F32,
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
    rule,
    scale,
    smaller,
    subtract,
    to_local,
    to_world,
    turned_right,
)

SKIN = RADIUS + RADIUS
LARGEST = np.finfo(np.float32).max
# A face of the polygon must be better than the edge by this to be the reference: fewer changes between the two.
RELATIVE, ABSOLUTE = F32(0.98), F32(0.001)
ON_VERTEX, ON_FACE = 0, 1


class Feature(NamedTuple):
    """What touches what, by which a point is found again in the next step."""

    edge: Int
    polygon: Int
    edge_kind: Int  # ON_VERTEX or ON_FACE
    polygon_kind: Int


class Clipped(NamedTuple):
    point: Vector
    feature: Feature


class Manifold(NamedTuple):
    """The points of contact; of those with number `count` and above nothing is valid."""

    count: Int
    face_of_edge: bool  # whether the reference face is the edge, or one of the polygon
    normal: Vector  # of the reference face, in the frame of its owner
    point: Vector  # on the reference face, likewise
    first: Clipped  # in the frame of the other one
    second: Clipped


@rule
def nothing() -> Manifold:
    zero = Vector(ZERO, ZERO)
    none = Clipped(zero, Feature(0, 0, 0, 0))
    return Manifold(0, True, zero, zero, none, none)


@rule
def polygon_normal(body: Int, number: Int) -> Vector:
    return Vector(NORMALS[body, number, 0], NORMALS[body, number, 1])


@rule
def separation_along(normal: Vector, edge: Edge, body: Int, frame: Transform) -> Float:
    """The least distance of a vertex from the edge along its normal."""
    least = LARGEST
    for number in range(VERTEX_COUNT[body]):
        least = smaller(dot(normal, subtract(to_world(frame, vertex(body, number)), edge.start)), least)
    return least


@rule
def collide(edge: Edge, body: Int, frame: Transform) -> Manifold:
    along = normalized(subtract(edge.end, edge.start))
    edge_normal, start, end = turned_right(along), edge.start, edge.end
    number1, number2 = 0, 1
    center = to_world(frame, Vector(LOCAL_CENTER[body, 0], LOCAL_CENTER[body, 1]))
    if dot(edge_normal, subtract(center, edge.start)) < ZERO:
        edge_normal, start, end, number1, number2 = negate(edge_normal), end, start, 1, 0
    edge_separation = separation_along(edge_normal, edge, body, frame)
    if edge_separation > SKIN:
        return nothing()

    count = VERTEX_COUNT[body]
    face, face_separation = 0, -LARGEST
    for number in range(count):
        inward, point = negate(rotate(frame, polygon_normal(body, number))), to_world(frame, vertex(body, number))
        separation = smaller(dot(inward, subtract(point, edge.start)), dot(inward, subtract(point, edge.end)))
        if separation > face_separation:
            face, face_separation = number, separation
    if face_separation > SKIN:
        return nothing()

    face_of_edge = not face_separation > RELATIVE * edge_separation + ABSOLUTE
    if face_of_edge:
        best, least = 0, dot(edge_normal, rotate(frame, polygon_normal(body, 0)))
        for number in range(1, count):
            value = dot(edge_normal, rotate(frame, polygon_normal(body, number)))
            if value < least:
                best, least = number, value
        after = best + 1 if best + 1 < count else 0
        first = Clipped(to_world(frame, vertex(body, best)), Feature(0, best, ON_FACE, ON_VERTEX))
        second = Clipped(to_world(frame, vertex(body, after)), Feature(0, after, ON_FACE, ON_VERTEX))
        normal = edge_normal
    else:
        first = Clipped(edge.start, Feature(0, face, ON_VERTEX, ON_FACE))
        second = Clipped(edge.end, Feature(0, face, ON_VERTEX, ON_FACE))
        number1, number2 = face, face + 1 if face + 1 < count else 0
        start, end = to_world(frame, vertex(body, number1)), to_world(frame, vertex(body, number2))
        normal = rotate(frame, polygon_normal(body, face))
    side1 = turned_right(normal)
    side2 = negate(side1)

    complete, first, second = clip(first, second, side1, dot(side1, start), number1)
    if not complete:
        return nothing()
    complete, first, second = clip(first, second, side2, dot(side2, end), number2)
    if not complete:
        return nothing()
    near1 = dot(normal, subtract(first.point, start)) <= SKIN
    near2 = dot(normal, subtract(second.point, start)) <= SKIN
    if face_of_edge:
        local_normal, local_point = normal, start
        first, second = moved_to(first, frame), moved_to(second, frame)
    else:
        local_normal, local_point = polygon_normal(body, face), vertex(body, face)
        first, second = swapped(first), swapped(second)
    if near1:
        return Manifold(2 if near2 else 1, face_of_edge, local_normal, local_point, first, second)
    return Manifold(1 if near2 else 0, face_of_edge, local_normal, local_point, second, second)


@rule
def moved_to(clipped: Clipped, frame: Transform) -> Clipped:
    return Clipped(to_local(frame, clipped.point), clipped.feature)


@rule
def swapped(clipped: Clipped) -> Clipped:
    feature = clipped.feature
    return Clipped(clipped.point, Feature(feature.polygon, feature.edge, feature.polygon_kind, feature.edge_kind))


@rule
def clip(first: Clipped, second: Clipped, normal: Vector, offset: Float, number: Int) -> tuple[bool, Clipped, Clipped]:
    """The segment's part behind a line, if it still has two ends; a new end is the vertex `number` of the face."""
    distance1, distance2 = dot(normal, first.point) - offset, dot(normal, second.point) - offset
    if distance1 <= ZERO and distance2 <= ZERO:
        return True, first, second
    if distance1 * distance2 < ZERO:
        part = distance1 / (distance1 - distance2)
        between = add(first.point, scale(part, subtract(second.point, first.point)))
        cut = Clipped(between, Feature(number, first.feature.polygon, ON_VERTEX, ON_FACE))
        return True, first if distance1 <= ZERO else second, cut
    return False, first, second
