"""The lander and its two legs: their shapes and masses, and the measures of their world."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from valueshare.envs.lunar_lander.geometry import F32, Float, Int, Transform, Vector, around, rule

LANDER, LEFT_LEG, RIGHT_LEG = map(np.int64, range(3))
BODIES = 3
PIXELS = 30.0  # per metre
WIDTH, HEIGHT = 600 / PIXELS, 400 / PIXELS  # of the world, in metres
CHUNKS = 11
EDGES = CHUNKS  # the bottom of the world, then the ground from left to right
LEG_AWAY, LEG_DOWN = 20 / PIXELS, 18 / PIXELS

TIME_STEP = F32(1 / 50)
SLOP = F32(0.005)  # lengths that are tolerated
RADIUS = F32(2) * SLOP  # polygons and edges have a skin of this radius
MOST_VERTICES = 6


class Shape(NamedTuple):
    """A convex polygon with its mass."""

    vertices: NDArray[np.float32]  # [n, 2] counterclockwise
    normals: NDArray[np.float32]  # [n, 2]
    mass: np.float32
    inverse_mass: np.float32
    inverse_inertia: np.float32  # about the centre of mass
    center: NDArray[np.float32]  # [2] of mass
    friction: np.float32


def _shape(vertices: NDArray[np.float32], density: float, friction: float) -> Shape:
    """Mass and inertia: the sum over the triangles from the mean of the vertices, in float32."""
    edges = np.roll(vertices, -1, 0) - vertices
    outward = np.stack([edges[:, 1], -edges[:, 0]], 1)
    inverse = F32(1) / np.sqrt(outward[:, 0] * outward[:, 0] + outward[:, 1] * outward[:, 1])
    normals = outward * inverse[:, None]
    origin, third = np.zeros(2, F32), F32(1) / F32(3)
    for vertex in vertices:
        origin = origin + vertex
    origin = origin * (F32(1) / F32(len(vertices)))
    center, area, inertia = np.zeros(2, F32), F32(0), F32(0)
    for first, second in zip(vertices - origin, np.roll(vertices, -1, 0) - origin, strict=True):
        twice = first[0] * second[1] - first[1] * second[0]
        triangle = F32(0.5) * twice
        area += triangle
        center += triangle * third * (first + second)
        square = first * first + second * first + second * second
        inertia += F32(0.25) * third * twice * (square[0] + square[1])
    center = center * (F32(1) / area)
    mass, local = F32(density) * area, center + origin
    about_origin = F32(density) * inertia + mass * (_square(local) - _square(center))
    inverse_mass = F32(1) / mass
    center_of_mass = mass * local * inverse_mass
    inverse_inertia = F32(1) / (about_origin - mass * _square(center_of_mass))
    return Shape(vertices, normals, mass, inverse_mass, inverse_inertia, center_of_mass, F32(friction))


def _square(a: NDArray[np.float32]) -> Float:
    return a[0] * a[0] + a[1] * a[1]


def _leg() -> Shape:
    half = np.array([2 / PIXELS, 8 / PIXELS], F32)
    shape = _shape(half * np.array([(-1, -1), (1, -1), (1, 1), (-1, 1)], F32), 1.0, 0.2)
    # Exact ones, as Box2D has for a box.
    return shape._replace(normals=np.array([(0, -1), (1, 0), (0, 1), (-1, 0)], F32))


# From the vertex that is furthest right and lowest.
_HULL = ((17, -10), (17, 0), (14, 17), (-14, 17), (-17, 0), (-17, -10))
SHAPES = (_shape((np.array(_HULL) / PIXELS).astype(F32), 5.0, 0.1), _leg(), _leg())

# The same as arrays over bodies, for kernels.
VERTEX_COUNT = np.array([len(shape.vertices) for shape in SHAPES])
VERTICES, NORMALS = np.zeros((2, BODIES, MOST_VERTICES, 2), F32)
for _body, _of in enumerate(SHAPES):
    VERTICES[_body, : len(_of.vertices)], NORMALS[_body, : len(_of.normals)] = _of.vertices, _of.normals
INVERSE_MASS = np.array([shape.inverse_mass for shape in SHAPES])
INVERSE_INERTIA = np.array([shape.inverse_inertia for shape in SHAPES])
LOCAL_CENTER = np.array([shape.center for shape in SHAPES])
FRICTION = np.array([shape.friction for shape in SHAPES])


@rule
def frame_at(body: Int, x: Float, y: Float, angle: Float) -> Transform:
    return around(Vector(x, y), angle, Vector(LOCAL_CENTER[body, 0], LOCAL_CENTER[body, 1]))
