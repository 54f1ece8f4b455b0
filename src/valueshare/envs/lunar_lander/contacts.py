"""Contacts of the bodies with the ground: impulses along the normal and the tangent of an edge."""

from typing import Any

import numpy as np

from valueshare.envs.lunar_lander.bodies import (
    BODIES,
    EDGES,
    FRICTION,
    INVERSE_INERTIA,
    INVERSE_MASS,
    RADIUS,
    SLOP,
    frame_at,
)
from valueshare.envs.lunar_lander.geometry import (
    F32,
    HALF,
    ONE,
    ZERO,
    Float,
    Int,
    Vector,
    add,
    clamp,
    cross,
    dot,
    larger,
    negate,
    rotate,
    rule,
    scale,
    smaller,
    subtract,
    to_world,
    turned_right,
)

MOST_CONTACTS = BODIES * EDGES
MOST_CONDITION = F32(1000)
STEP_CORRECTION, IMPACT_CORRECTION = F32(0.2), F32(0.75)  # part of an overlap that one iteration takes away
MOST_CORRECTION = F32(0.2)
STEP_TOLERANCE, IMPACT_TOLERANCE = F32(-3) * SLOP, F32(-1.5) * SLOP
# The bottom of the world has Box2D's default friction.
EDGE_FRICTION = np.array([0.2] + [0.1] * (EDGES - 1), F32)

# One contact of a body with an edge, in the slot of its own: body·EDGES + edge.
CONTACT = np.dtype(
    [
        ("exists", np.bool_),
        ("touching", np.bool_),
        ("enabled", np.bool_),
        ("face_of_edge", np.bool_),
        ("impact_is_known", np.bool_),
        ("count", np.int32),
        ("impact_count", np.int32),  # solved within the step
        ("impact_time", np.float32),  # fraction of the step; 1: none
        ("normal", np.float32, 2),
        ("point", np.float32, 2),
        ("points", np.float32, (2, 2)),
        ("features", np.uint32, 2),
        ("normal_impulse", np.float32, 2),  # of the last step, with which the next one starts
        ("tangent_impulse", np.float32, 2),
    ],
    align=True,
)

# A contact while the velocities of a step are solved.
CONSTRAINT = np.dtype(
    [
        ("slot", np.int64),
        ("body", np.int64),
        ("count", np.int32),
        ("friction", np.float32),  # the coefficient
        ("normal", np.float32, 2),
        ("arm", np.float32, (2, 2)),
        ("normal_mass", np.float32, 2),
        ("tangent_mass", np.float32, 2),
        ("normal_impulse", np.float32, 2),
        ("tangent_impulse", np.float32, 2),
        ("k", np.float32, 3),  # k11, k12, k22 of both points together
        ("inverse", np.float32, 3),
    ],
    align=True,
)


@rule
def place_constraint(constraint: Any, contact: Any, slot: Int, center: Any, angle: Any, warm: Float) -> None:
    """Prepare a contact, with the impulses of the step before times `warm`, which is 0 or 1.

    Shapes: center [BODIES, 2], angle [BODIES].
    """
    body = slot // EDGES
    mass, inertia = INVERSE_MASS[body], INVERSE_INERTIA[body]
    constraint.slot, constraint.body, constraint.count = slot, body, contact.count
    constraint.friction = np.sqrt(EDGE_FRICTION[slot % EDGES] * FRICTION[body])
    middle = Vector(center[body, 0], center[body, 1])
    frame = frame_at(body, middle.x, middle.y, angle[body])
    local_normal = Vector(contact.normal[0], contact.normal[1])
    local_point = Vector(contact.point[0], contact.point[1])
    normal, plane = local_normal, local_point
    if not contact.face_of_edge:
        normal, plane = rotate(frame, local_normal), to_world(frame, local_point)
    for i in range(contact.count):
        point = Vector(contact.points[i, 0], contact.points[i, 1])
        if contact.face_of_edge:
            point = to_world(frame, point)
        on_face = add(point, scale(RADIUS - dot(subtract(point, plane), normal), normal))
        arm = subtract(scale(HALF, add(on_face, subtract(point, scale(RADIUS, normal)))), middle)
        constraint.arm[i, 0], constraint.arm[i, 1] = arm.x, arm.y
        constraint.normal_impulse[i] = warm * contact.normal_impulse[i]
        constraint.tangent_impulse[i] = warm * contact.tangent_impulse[i]
    if not contact.face_of_edge:
        normal = negate(normal)
    constraint.normal[0], constraint.normal[1] = normal.x, normal.y
    tangent = turned_right(normal)
    for i in range(contact.count):
        arm = Vector(constraint.arm[i, 0], constraint.arm[i, 1])
        across, sideways = cross(arm, normal), cross(arm, tangent)
        constraint.normal_mass[i] = ONE / (mass + inertia * across * across)
        constraint.tangent_mass[i] = ONE / (mass + inertia * sideways * sideways)
    if contact.count == 2:
        across1 = cross(Vector(constraint.arm[0, 0], constraint.arm[0, 1]), normal)
        across2 = cross(Vector(constraint.arm[1, 0], constraint.arm[1, 1]), normal)
        k11 = mass + inertia * across1 * across1
        k22 = mass + inertia * across2 * across2
        k12 = mass + inertia * across1 * across2
        determinant = k11 * k22 - k12 * k12
        if k11 * k11 < MOST_CONDITION * determinant:
            inverse = ONE / determinant
            constraint.k[0], constraint.k[1], constraint.k[2] = k11, k12, k22
            constraint.inverse[0], constraint.inverse[1], constraint.inverse[2] = (
                inverse * k22,
                -inverse * k12,
                inverse * k11,
            )
        else:
            constraint.count = 1  # two points that are one


@rule
def push(motion: Any, body: Int, arm: Vector, impulse: Vector) -> None:
    """Shapes: motion [BODIES, 3]."""
    mass, inertia = INVERSE_MASS[body], INVERSE_INERTIA[body]
    motion[body, 0] += mass * impulse.x
    motion[body, 1] += mass * impulse.y
    motion[body, 2] += inertia * cross(arm, impulse)


@rule
def warm_start(constraint: Any, motion: Any) -> None:
    normal = Vector(constraint.normal[0], constraint.normal[1])
    tangent = turned_right(normal)
    for i in range(constraint.count):
        arm = Vector(constraint.arm[i, 0], constraint.arm[i, 1])
        pressure, friction = constraint.normal_impulse[i], constraint.tangent_impulse[i]
        push(motion, constraint.body, arm, add(scale(pressure, normal), scale(friction, tangent)))


@rule
def speed_along(motion: Any, body: Int, arm: Vector, direction: Vector) -> Float:
    spin = motion[body, 2]
    return dot(Vector(motion[body, 0] + -spin * arm.y, motion[body, 1] + spin * arm.x), direction)


@rule
def solve_contact(constraint: Any, motion: Any) -> None:
    """One iteration: friction, then the normal impulses, which matter more."""
    body, count = constraint.body, constraint.count
    normal = Vector(constraint.normal[0], constraint.normal[1])
    tangent = turned_right(normal)
    for i in range(count):
        arm = Vector(constraint.arm[i, 0], constraint.arm[i, 1])
        before = constraint.tangent_impulse[i]
        change = constraint.tangent_mass[i] * -speed_along(motion, body, arm, tangent)
        most = constraint.friction * constraint.normal_impulse[i]
        after = clamp(before + change, -most, most)
        constraint.tangent_impulse[i] = after
        push(motion, body, arm, scale(after - before, tangent))
    arm1 = Vector(constraint.arm[0, 0], constraint.arm[0, 1])
    if count == 1:
        before = constraint.normal_impulse[0]
        after = larger(before + -constraint.normal_mass[0] * speed_along(motion, body, arm1, normal), ZERO)
        constraint.normal_impulse[0] = after
        push(motion, body, arm1, scale(after - before, normal))
        return
    arm2 = Vector(constraint.arm[1, 0], constraint.arm[1, 1])
    before1, before2 = constraint.normal_impulse[0], constraint.normal_impulse[1]
    k11, k12, k22 = constraint.k[0], constraint.k[1], constraint.k[2]
    b1 = speed_along(motion, body, arm1, normal) - (k11 * before1 + k12 * before2)
    b2 = speed_along(motion, body, arm2, normal) - (k12 * before1 + k22 * before2)
    # The complementarity problem of two points: each presses, or moves away. The first case that is consistent holds.
    after1 = -(constraint.inverse[0] * b1 + constraint.inverse[1] * b2)
    after2 = -(constraint.inverse[1] * b1 + constraint.inverse[2] * b2)
    if not (after1 >= ZERO and after2 >= ZERO):
        after1, after2 = -constraint.normal_mass[0] * b1, ZERO
        if not (after1 >= ZERO and k12 * after1 + b2 >= ZERO):
            after1, after2 = ZERO, -constraint.normal_mass[1] * b2
            if not (after2 >= ZERO and k12 * after2 + b1 >= ZERO):
                after1 = after2 = ZERO
                if not (b1 >= ZERO and b2 >= ZERO):
                    return
    constraint.normal_impulse[0], constraint.normal_impulse[1] = after1, after2
    push1, push2 = scale(after1 - before1, normal), scale(after2 - before2, normal)
    both = add(push1, push2)
    motion[body, 0] += INVERSE_MASS[body] * both.x
    motion[body, 1] += INVERSE_MASS[body] * both.y
    motion[body, 2] += INVERSE_INERTIA[body] * (cross(arm1, push1) + cross(arm2, push2))


@rule
def separate(contact: Any, slot: Int, center: Any, angle: Any, rate: Float) -> Float:
    """Move a body out of the ground, by this part of the overlap; returns the least separation of its points."""
    body, least = slot // EDGES, ZERO
    mass, inertia = INVERSE_MASS[body], INVERSE_INERTIA[body]
    for i in range(contact.count):
        middle = Vector(center[body, 0], center[body, 1])
        frame = frame_at(body, middle.x, middle.y, angle[body])
        normal = Vector(contact.normal[0], contact.normal[1])
        plane = Vector(contact.point[0], contact.point[1])
        point = Vector(contact.points[i, 0], contact.points[i, 1])
        if contact.face_of_edge:
            point = to_world(frame, point)
            apart = dot(subtract(point, plane), normal) - RADIUS - RADIUS
        else:
            normal, plane = rotate(frame, normal), to_world(frame, plane)
            apart = dot(subtract(point, plane), normal) - RADIUS - RADIUS
            normal = negate(normal)
        least = smaller(least, apart)
        correction = clamp(rate * (apart + SLOP), -MOST_CORRECTION, ZERO)
        arm = subtract(point, middle)
        across = cross(arm, normal)
        impulse = scale(-correction / (mass + inertia * across * across), normal)
        center[body, 0] += mass * impulse.x
        center[body, 1] += mass * impulse.y
        angle[body] += inertia * cross(arm, impulse)
    return least
