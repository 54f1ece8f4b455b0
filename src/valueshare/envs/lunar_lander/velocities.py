"""The velocities of a step: all constraints are solved in turn, 180 times.

Nearly all of a step's time is spent here, and each iteration waits for the one before. So environments in flight are
solved side by side, eight in the lanes of vector registers. An environment with a leg on the ground is solved alone.
"""

from typing import Any

import numpy as np

from valueshare.envs.lunar_lander.bodies import LANDER, LEFT_LEG, RIGHT_LEG
from valueshare.envs.lunar_lander.contacts import solve_contact
from valueshare.envs.lunar_lander.geometry import Int, Vector, lane_rule, rule
from valueshare.envs.lunar_lander.joints import Impulses, Joint, Motion, solve_velocities

ITERATIONS = 6 * 30
LANES = 8

# Rows of the lanes' memory, of LANES numbers each. It has one axis, so that the compiler knows all distances.
JOINT_NUMBERS, IMPULSE_NUMBERS, MOTION_NUMBERS = 14, 4, 3
RIGHT_ROW, LEFT_ROW = np.int64(0), np.int64(JOINT_NUMBERS + IMPULSE_NUMBERS)  # of a joint, with its impulses
LANDER_ROW = 2 * LEFT_ROW
RIGHT_LEG_ROW, LEFT_LEG_ROW = LANDER_ROW + MOTION_NUMBERS, LANDER_ROW + 2 * MOTION_NUMBERS
ROWS = LANDER_ROW + 3 * MOTION_NUMBERS


@lane_rule
def read_motion(lanes: Any, row: Int, lane: Int) -> Motion:
    at = row * LANES + lane
    return Motion(lanes[at], lanes[at + LANES], lanes[at + 2 * LANES])


@lane_rule
def write_motion(lanes: Any, row: Int, lane: Int, of: Motion) -> None:
    at = row * LANES + lane
    lanes[at], lanes[at + LANES], lanes[at + 2 * LANES] = of.x, of.y, of.spin


@lane_rule
def read_impulses(lanes: Any, row: Int, lane: Int) -> Impulses:
    at = (row + JOINT_NUMBERS) * LANES + lane
    return Impulses(lanes[at], lanes[at + LANES], lanes[at + 2 * LANES], lanes[at + 3 * LANES])


@lane_rule
def write_impulses(lanes: Any, row: Int, lane: Int, of: Impulses) -> None:
    at = (row + JOINT_NUMBERS) * LANES + lane
    lanes[at], lanes[at + LANES] = of.x, of.y
    lanes[at + 2 * LANES], lanes[at + 3 * LANES] = of.limit, of.motor


@lane_rule
def read_joint(lanes: Any, row: Int, lane: Int) -> Joint:
    at = row * LANES + lane
    return Joint(
        lanes[at],
        lanes[at + LANES],
        Vector(lanes[at + 2 * LANES], lanes[at + 3 * LANES]),
        Vector(lanes[at + 4 * LANES], lanes[at + 5 * LANES]),
        lanes[at + 6 * LANES],
        lanes[at + 7 * LANES],
        lanes[at + 8 * LANES],
        lanes[at + 9 * LANES],
        lanes[at + 10 * LANES],
        lanes[at + 11 * LANES],
        lanes[at + 12 * LANES],
        lanes[at + 13 * LANES],
    )


@rule
def write_joint(lanes: Any, row: Int, lane: Int, of: Joint) -> None:
    numbers = (
        *(of.limit_state, of.motor_speed, of.arm_a.x, of.arm_a.y, of.arm_b.x, of.arm_b.y),
        *(of.k11, of.k12, of.k13, of.k22, of.k23, of.k33, of.inverse_of_point, of.inverse_of_all),
    )
    for number in range(JOINT_NUMBERS):
        lanes[(row + number) * LANES + lane] = numbers[number]


@rule
def solve_lanes(lanes: Any) -> None:
    """All lanes at once: joints alone. Lanes that are not in use hold old numbers. Shapes: lanes [ROWS * LANES]."""
    for _ in range(ITERATIONS):
        for lane in range(LANES):
            lander = read_motion(lanes, LANDER_ROW, lane)
            leg, impulses = read_motion(lanes, RIGHT_LEG_ROW, lane), read_impulses(lanes, RIGHT_ROW, lane)
            impulses, lander, leg = solve_velocities(read_joint(lanes, RIGHT_ROW, lane), impulses, lander, leg)
            write_motion(lanes, RIGHT_LEG_ROW, lane, leg)
            write_impulses(lanes, RIGHT_ROW, lane, impulses)
            leg, impulses = read_motion(lanes, LEFT_LEG_ROW, lane), read_impulses(lanes, LEFT_ROW, lane)
            impulses, lander, leg = solve_velocities(read_joint(lanes, LEFT_ROW, lane), impulses, lander, leg)
            write_motion(lanes, LEFT_LEG_ROW, lane, leg)
            write_impulses(lanes, LEFT_ROW, lane, impulses)
            write_motion(lanes, LANDER_ROW, lane, lander)


@rule
def motion_of(motion: Any, body: Int) -> Motion:
    return Motion(motion[body, 0], motion[body, 1], motion[body, 2])


@rule
def set_motion(motion: Any, body: Int, of: Motion) -> None:
    motion[body, 0], motion[body, 1], motion[body, 2] = of.x, of.y, of.spin


@rule
def solve_on_ground(
    right: Joint,
    left: Joint,
    right_impulses: Impulses,
    left_impulses: Impulses,
    motion: Any,
    constraints: Any,
    count: Int,
) -> tuple[Impulses, Impulses]:
    """Joints and contacts of one environment; motion [BODIES, 3] is changed in place."""
    for _ in range(ITERATIONS):
        right_impulses, lander, leg = solve_velocities(
            right, right_impulses, motion_of(motion, LANDER), motion_of(motion, RIGHT_LEG)
        )
        set_motion(motion, RIGHT_LEG, leg)
        left_impulses, lander, leg = solve_velocities(left, left_impulses, lander, motion_of(motion, LEFT_LEG))
        set_motion(motion, LEFT_LEG, leg)
        set_motion(motion, LANDER, lander)
        for i in range(count):
            solve_contact(constraints[i], motion)
    return right_impulses, left_impulses


@rule
def solve_impact(motion: Any, constraints: Any, count: Int) -> None:
    """Contacts of one body alone."""
    for _ in range(ITERATIONS):
        for i in range(count):
            solve_contact(constraints[i], motion)
