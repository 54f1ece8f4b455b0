"""Vectors and rigid transforms of the plane in float32, and how kernels are compiled.

The order of operations is that of Box2D, so that results round alike.
"""

from typing import Any, NamedTuple

import numpy as np
from numba import njit

# A function that is compiled into a kernel. "numpy": a division by zero is no error.
rule = njit(error_model="numpy")
# The same, written out where it is called, so that a loop over environments becomes vector instructions.
lane_rule = njit(error_model="numpy", inline="always")

F32 = np.float32
Float = Any  # float32
Int = Any  # int64; for Python's integers in an argument Numba compiles a function once per value
ZERO, HALF, ONE, TWO = F32(0), F32(0.5), F32(1), F32(2)
PI = F32(3.14159265359)
EPSILON = np.finfo(np.float32).eps
Bool = Any  # Python's or NumPy's, which are one type in a kernel


class Vector(NamedTuple):
    x: Float
    y: Float


class Transform(NamedTuple):
    """A rotation, then a translation."""

    x: Float
    y: Float
    sin: Float
    cos: Float


@rule
def add(a: Vector, b: Vector) -> Vector:
    return Vector(a.x + b.x, a.y + b.y)


@rule
def subtract(a: Vector, b: Vector) -> Vector:
    return Vector(a.x - b.x, a.y - b.y)


@rule
def scale(factor: Float, a: Vector) -> Vector:
    return Vector(factor * a.x, factor * a.y)


@rule
def negate(a: Vector) -> Vector:
    return Vector(-a.x, -a.y)


@rule
def dot(a: Vector, b: Vector) -> Float:
    return a.x * b.x + a.y * b.y


@lane_rule
def cross(a: Vector, b: Vector) -> Float:
    return a.x * b.y - a.y * b.x


@rule
def turned_right(a: Vector) -> Vector:
    return Vector(a.y, -a.x)


@rule
def length(a: Vector) -> Float:
    return np.sqrt(a.x * a.x + a.y * a.y)


@rule
def normalized(a: Vector) -> Vector:
    size = length(a)
    if size < EPSILON:
        return a
    inverse = ONE / size
    return Vector(a.x * inverse, a.y * inverse)


@rule
def at_angle(angle: Float) -> Transform:
    """A rotation about the origin."""
    return Transform(ZERO, ZERO, np.sin(angle), np.cos(angle))


@rule
def around(center: Vector, angle: Float, local_center: Vector) -> Transform:
    """The transform of a body whose centre of mass, `local_center` in its own frame, is at `center`."""
    turn = at_angle(angle)
    offset = rotate(turn, local_center)
    return Transform(center.x - offset.x, center.y - offset.y, turn.sin, turn.cos)


@rule
def rotate(frame: Transform, a: Vector) -> Vector:
    return Vector(frame.cos * a.x - frame.sin * a.y, frame.sin * a.x + frame.cos * a.y)


@rule
def rotate_back(frame: Transform, a: Vector) -> Vector:
    return Vector(frame.cos * a.x + frame.sin * a.y, -frame.sin * a.x + frame.cos * a.y)


@rule
def to_world(frame: Transform, a: Vector) -> Vector:
    turned = rotate(frame, a)
    return Vector(turned.x + frame.x, turned.y + frame.y)


@rule
def to_local(frame: Transform, a: Vector) -> Vector:
    return rotate_back(frame, Vector(a.x - frame.x, a.y - frame.y))


@lane_rule
def smaller(a: Float, b: Float) -> Float:
    return a if a < b else b


@lane_rule
def larger(a: Float, b: Float) -> Float:
    return a if a > b else b


@lane_rule
def clamp(a: Float, low: Float, high: Float) -> Float:
    return larger(low, smaller(a, high))
