"""The revolute joints between lander and legs, each with a motor that spreads the leg and limits of its angle.

Sequential impulses (Catto, "Iterative Dynamics with Temporal Coherence", 2005): one constraint after the other is
solved alone, many times, and the impulse of each is added up.
"""

from typing import Any, NamedTuple

import numpy as np

from valueshare.envs.lunar_lander.bodies import (
    INVERSE_INERTIA,
    INVERSE_MASS,
    LANDER,
    LEFT_LEG,
    LEG_AWAY,
    LEG_DOWN,
    LOCAL_CENTER,
    SLOP,
    TIME_STEP,
)
from valueshare.envs.lunar_lander.geometry import (
    F32,
    ONE,
    PI,
    ZERO,
    Bool,
    Float,
    Int,
    Vector,
    at_angle,
    clamp,
    cross,
    lane_rule,
    length,
    rotate,
    rule,
)

ANGULAR_SLOP = F32(2) / F32(180) * PI
MOST_ANGULAR_CORRECTION = F32(8) / F32(180) * PI
MOST_MOTOR_IMPULSE = TIME_STEP * F32(40)

# By body; the lander has none.
LEG_SIGN = np.array([0, -1, 1], F32)
LEG_ANGLE = LEG_SIGN * F32(0.05)  # at the start, and where a joint's angle is 0
MOTOR_SPEED = LEG_SIGN * F32(0.3)
LOWEST, HIGHEST = np.array([0, 0.4, -0.9], F32), np.array([0, 0.9, -0.4], F32)  # angles
ANCHOR = np.array([(sign * LEG_AWAY, LEG_DOWN) for sign in (0, -1, 1)], F32) - LOCAL_CENTER  # from the leg's centre
LANDER_ANCHOR = -LOCAL_CENTER[LANDER]

# Inverse masses and inertias of the lander (A) and of a leg (B).
M_A, M_B, I_A, I_B = INVERSE_MASS[LANDER], INVERSE_MASS[LEFT_LEG], INVERSE_INERTIA[LANDER], INVERSE_INERTIA[LEFT_LEG]
AXIAL_MASS = ONE / (I_A + I_B)


class Motion(NamedTuple):
    """Velocity of a body's centre, and its angular velocity."""

    x: Float
    y: Float
    spin: Float


class Impulses(NamedTuple):
    """Of one joint, added up over the iterations; kept for the next step."""

    x: Float
    y: Float
    limit: Float
    motor: Float


class Joint(NamedTuple):
    """What does not change while the velocities of a step are solved."""

    limit_state: Float  # -1: at the lowest angle, 1: at the highest, 0: between them
    motor_speed: Float
    arm_a: Vector  # from the centre of the lander to the joint
    arm_b: Vector  # from the centre of the leg
    k11: Float  # the inverse of the effective mass: of the point's two axes, and of the angle
    k12: Float
    k13: Float
    k22: Float
    k23: Float
    k33: Float
    inverse_of_point: Float  # of the determinant of the first two rows and columns
    inverse_of_all: Float


@rule
def make_joint(leg: Int, lander_angle: Float, leg_angle: Float) -> Joint:
    a = rotate(at_angle(lander_angle), Vector(LANDER_ANCHOR[0], LANDER_ANCHOR[1]))
    b = rotate(at_angle(leg_angle), Vector(ANCHOR[leg, 0], ANCHOR[leg, 1]))
    k11 = M_A + M_B + a.y * a.y * I_A + b.y * b.y * I_B
    k12 = -a.y * a.x * I_A - b.y * b.x * I_B
    k13 = -a.y * I_A - b.y * I_B
    k22 = M_A + M_B + a.x * a.x * I_A + b.x * b.x * I_B
    k23 = a.x * I_A + b.x * I_B
    k33 = I_A + I_B
    angle, limit_state = leg_angle - lander_angle - LEG_ANGLE[leg], ZERO
    if angle <= LOWEST[leg]:
        limit_state = -ONE
    elif angle >= HIGHEST[leg]:
        limit_state = ONE
    # k1·(k2 x k3), of the columns
    determinant = k11 * (k22 * k33 - k23 * k23) + k12 * (k23 * k13 - k12 * k33) + k13 * (k12 * k23 - k22 * k13)
    of_point = ONE / (k11 * k22 - k12 * k12)
    return Joint(limit_state, MOTOR_SPEED[leg], a, b, k11, k12, k13, k22, k23, k33, of_point, ONE / determinant)


@rule
def kept_impulses(joint: Joint, before: Impulses, state_before: Float) -> Impulses:
    """Those of the step before; a limit that is reached anew begins at 0."""
    limit = before.limit if joint.limit_state != ZERO and joint.limit_state == state_before else ZERO
    return Impulses(before.x, before.y, limit, before.motor)


@rule
def apply_impulses(joint: Joint, impulses: Impulses, a: Motion, b: Motion) -> tuple[Motion, Motion]:
    """Lander and leg after the impulses of the step before, which are a good first guess."""
    push = Vector(impulses.x, impulses.y)
    turn_a = cross(joint.arm_a, push) + impulses.motor + impulses.limit
    turn_b = cross(joint.arm_b, push) + impulses.motor + impulses.limit
    moved_a = Motion(a.x - M_A * push.x, a.y - M_A * push.y, a.spin - I_A * turn_a)
    moved_b = Motion(b.x + M_B * push.x, b.y + M_B * push.y, b.spin + I_B * turn_b)
    return moved_a, moved_b


@lane_rule
def solve_velocities(joint: Joint, before: Impulses, a: Motion, b: Motion) -> tuple[Impulses, Motion, Motion]:
    """One iteration: the motor, then the point that both bodies share, together with a limit that is reached."""
    change = -AXIAL_MASS * (b.spin - a.spin - joint.motor_speed)
    motor = clamp(before.motor + change, -MOST_MOTOR_IMPULSE, MOST_MOTOR_IMPULSE)
    change = motor - before.motor
    spin_a, spin_b = a.spin - I_A * change, b.spin + I_B * change

    arm_a, arm_b = joint.arm_a, joint.arm_b
    slip_x = b.x + -spin_b * arm_b.y - a.x - -spin_a * arm_a.y
    slip_y = b.y + spin_b * arm_b.x - a.y - spin_a * arm_a.x
    if joint.limit_state == ZERO:
        push, turn, limit = solve_point(joint, -slip_x, -slip_y), ZERO, before.limit
    else:
        push, turn = solve_point_and_angle(joint, slip_x, slip_y, spin_b - spin_a)
        limit = before.limit + turn
        if limit * joint.limit_state > ZERO:  # a limit only pushes back
            rest_x, rest_y = -slip_x + before.limit * joint.k13, -slip_y + before.limit * joint.k23
            push, turn, limit = solve_point(joint, rest_x, rest_y), -before.limit, ZERO
    moved_a = Motion(a.x - M_A * push.x, a.y - M_A * push.y, spin_a - I_A * (cross(arm_a, push) + turn))
    moved_b = Motion(b.x + M_B * push.x, b.y + M_B * push.y, spin_b + I_B * (cross(arm_b, push) + turn))
    return Impulses(before.x + push.x, before.y + push.y, limit, motor), moved_a, moved_b


@lane_rule
def solve_point(joint: Joint, x: Float, y: Float) -> Vector:
    inverse = joint.inverse_of_point
    return Vector(inverse * (joint.k22 * x - joint.k12 * y), inverse * (joint.k11 * y - joint.k12 * x))


@lane_rule
def solve_point_and_angle(joint: Joint, x: Float, y: Float, z: Float) -> tuple[Vector, Float]:
    """The impulses that bring these velocities to 0, by Cramer's rule."""
    k11, k12, k13, k22, k23, k33 = joint.k11, joint.k12, joint.k13, joint.k22, joint.k23, joint.k33
    inverse = joint.inverse_of_all
    first = x * (k22 * k33 - k23 * k23) + y * (k23 * k13 - k12 * k33) + z * (k12 * k23 - k22 * k13)
    second = k11 * (y * k33 - z * k23) + k12 * (z * k13 - x * k33) + k13 * (x * k23 - y * k13)
    third = k11 * (k22 * z - k23 * y) + k12 * (k23 * x - k12 * z) + k13 * (k12 * y - k22 * x)
    return Vector(-(inverse * first), -(inverse * second)), -(inverse * third)


@rule
def solve_positions(leg: Int, limit_state: Float, center: Any, angle: Any) -> Bool:
    """Move lander and leg together where they drifted apart; whether they were within the tolerance.

    Shapes: center [BODIES, 2], angle [BODIES], changed in place.
    """
    angle_a, angle_b, beyond = angle[LANDER], angle[leg], ZERO
    if limit_state != ZERO:
        between = angle_b - angle_a - LEG_ANGLE[leg]
        if limit_state < ZERO:
            error = between - LOWEST[leg]
            beyond = -error
            error = clamp(error + ANGULAR_SLOP, -MOST_ANGULAR_CORRECTION, ZERO)
        else:
            beyond = between - HIGHEST[leg]
            error = clamp(beyond - ANGULAR_SLOP, ZERO, MOST_ANGULAR_CORRECTION)
        turn = -AXIAL_MASS * error
        angle_a, angle_b = angle_a - I_A * turn, angle_b + I_B * turn

    arm_a = rotate(at_angle(angle_a), Vector(LANDER_ANCHOR[0], LANDER_ANCHOR[1]))
    arm_b = rotate(at_angle(angle_b), Vector(ANCHOR[leg, 0], ANCHOR[leg, 1]))
    gap = Vector(
        center[leg, 0] + arm_b.x - center[LANDER, 0] - arm_a.x, center[leg, 1] + arm_b.y - center[LANDER, 1] - arm_a.y
    )
    k11 = M_A + M_B + I_A * arm_a.y * arm_a.y + I_B * arm_b.y * arm_b.y
    k12 = -I_A * arm_a.x * arm_a.y - I_B * arm_b.x * arm_b.y
    k22 = M_A + M_B + I_A * arm_a.x * arm_a.x + I_B * arm_b.x * arm_b.x
    inverse = ONE / (k11 * k22 - k12 * k12)
    push = Vector(-(inverse * (k22 * gap.x - k12 * gap.y)), -(inverse * (k11 * gap.y - k12 * gap.x)))
    center[LANDER, 0] -= M_A * push.x
    center[LANDER, 1] -= M_A * push.y
    angle[LANDER] = angle_a - I_A * cross(arm_a, push)
    center[leg, 0] += M_B * push.x
    center[leg, 1] += M_B * push.y
    angle[leg] = angle_b + I_B * cross(arm_b, push)
    return length(gap) <= SLOP and beyond <= ANGULAR_SLOP
