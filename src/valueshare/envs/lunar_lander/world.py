"""One time step of the world: contacts, velocities, positions, and impacts within the step.

The physics is that of Box2D 2.3 (pybox2d 2.3.10, which Gymnasium and EnvPool use), written anew for this scene alone:
see THIRD_PARTY_LICENSES. It computes in the same order, so each step has the same result, to the last bit where
processors round alike. The particles of the engines are left out, which touch neither lander nor legs.
"""

from typing import Any

import numpy as np

from valueshare.envs.lunar_lander.bodies import BODIES, INVERSE_MASS, LANDER, LEFT_LEG, RIGHT_LEG, TIME_STEP
from valueshare.envs.lunar_lander.contact_list import collect, move_box, update_contacts
from valueshare.envs.lunar_lander.contacts import STEP_CORRECTION, STEP_TOLERANCE, separate, warm_start
from valueshare.envs.lunar_lander.geometry import F32, PI, ZERO, Bool, Int, rule, smaller
from valueshare.envs.lunar_lander.impacts import solve_impacts
from valueshare.envs.lunar_lander.joints import Motion, apply_impulses, kept_impulses, make_joint, solve_positions
from valueshare.envs.lunar_lander.state import Scratch, impulses_of, keep_impulses, move
from valueshare.envs.lunar_lander.velocities import (
    LANDER_ROW,
    LEFT_LEG_ROW,
    LEFT_ROW,
    RIGHT_LEG_ROW,
    RIGHT_ROW,
    motion_of,
    read_impulses,
    read_motion,
    set_motion,
    solve_on_ground,
    write_impulses,
    write_joint,
    write_motion,
)

GRAVITY = F32(-10)
POSITION_ITERATIONS = 2 * 30
TIME_TO_SLEEP, SLOW = F32(0.5), F32(0.01)
SLOW_SPIN = F32(2) / F32(180) * PI


@rule
def begin_step(state: Any, contacts: Any, scratch: Scratch, lane: Int) -> bool:
    """Begin a time step. True: the environment is in this lane, and its velocities are still to be solved.

    False: it touches the ground, and its whole time step is done. Shapes: contacts [MOST_CONTACTS].
    """
    update_contacts(state, contacts)
    motion = state.velocity
    for body in range(BODIES):
        state.start_center[body, 0], state.start_center[body, 1] = state.center[body, 0], state.center[body, 1]
        state.start_angle[body] = state.angle[body]
        force = state.force[1] if body == LANDER else ZERO
        motion[body, 1] += TIME_STEP * (GRAVITY + INVERSE_MASS[body] * force)
    motion[LANDER, 0] += TIME_STEP * (INVERSE_MASS[LANDER] * state.force[0])
    state.force[0] = state.force[1] = ZERO

    count = np.int64(0)
    for each in (RIGHT_LEG, LANDER, LEFT_LEG):
        count = collect(state, contacts, each, scratch, count)
    for i in range(count):
        warm_start(scratch.constraints[i], motion)
    right = make_joint(RIGHT_LEG, state.angle[LANDER], state.angle[RIGHT_LEG])
    left = make_joint(LEFT_LEG, state.angle[LANDER], state.angle[LEFT_LEG])
    right_impulses = kept_impulses(right, impulses_of(state, RIGHT_LEG), state.limit_state[RIGHT_LEG])
    left_impulses = kept_impulses(left, impulses_of(state, LEFT_LEG), state.limit_state[LEFT_LEG])
    state.limit_state[RIGHT_LEG], state.limit_state[LEFT_LEG] = right.limit_state, left.limit_state
    lander, right_leg = apply_impulses(right, right_impulses, motion_of(motion, LANDER), motion_of(motion, RIGHT_LEG))
    lander, left_leg = apply_impulses(left, left_impulses, lander, motion_of(motion, LEFT_LEG))
    if count == 0:
        lanes = scratch.lanes
        write_joint(lanes, RIGHT_ROW, lane, right)
        write_joint(lanes, LEFT_ROW, lane, left)
        write_impulses(lanes, RIGHT_ROW, lane, right_impulses)
        write_impulses(lanes, LEFT_ROW, lane, left_impulses)
        write_motion(lanes, LANDER_ROW, lane, lander)
        write_motion(lanes, RIGHT_LEG_ROW, lane, right_leg)
        write_motion(lanes, LEFT_LEG_ROW, lane, left_leg)
        return True
    set_motion(motion, LANDER, lander)
    set_motion(motion, LEFT_LEG, left_leg)
    set_motion(motion, RIGHT_LEG, right_leg)
    right_impulses, left_impulses = solve_on_ground(
        right, left, right_impulses, left_impulses, motion, scratch.constraints, count
    )
    keep_impulses(state, RIGHT_LEG, right_impulses)
    keep_impulses(state, LEFT_LEG, left_impulses)
    for i in range(count):
        constraint = scratch.constraints[i]
        contact = contacts[constraint.slot]
        for point in range(constraint.count):
            contact.normal_impulse[point] = constraint.normal_impulse[point]
            contact.tangent_impulse[point] = constraint.tangent_impulse[point]
    end_step(state, contacts, scratch, count)
    return False


@rule
def end_flight(state: Any, contacts: Any, scratch: Scratch, lane: Int) -> None:
    """The second half of a time step whose velocities were solved in a lane."""
    lanes = scratch.lanes
    set_motion(state.velocity, LANDER, read_motion(lanes, LANDER_ROW, lane))
    set_motion(state.velocity, RIGHT_LEG, read_motion(lanes, RIGHT_LEG_ROW, lane))
    set_motion(state.velocity, LEFT_LEG, read_motion(lanes, LEFT_LEG_ROW, lane))
    keep_impulses(state, RIGHT_LEG, read_impulses(lanes, RIGHT_ROW, lane))
    keep_impulses(state, LEFT_LEG, read_impulses(lanes, LEFT_ROW, lane))
    end_step(state, contacts, scratch, np.int64(0))


@rule
def end_step(state: Any, contacts: Any, scratch: Scratch, count: Int) -> None:
    """Positions, and impacts within the step; `count` contacts of `scratch.constraints` take part."""
    for body in range(BODIES):
        move(state, body, TIME_STEP)
    is_solved: Bool = False
    for _ in range(POSITION_ITERATIONS):
        least = ZERO
        for i in range(count):
            slot = scratch.constraints[i].slot
            least = smaller(least, separate(contacts[slot], slot, state.center, state.angle, STEP_CORRECTION))
        right_fits = solve_positions(RIGHT_LEG, state.limit_state[RIGHT_LEG], state.center, state.angle)
        left_fits = solve_positions(LEFT_LEG, state.limit_state[LEFT_LEG], state.center, state.angle)
        is_solved = least >= STEP_TOLERANCE and right_fits and left_fits
        if is_solved:
            break
    rest(state, is_solved)
    for each in (RIGHT_LEG, LEFT_LEG, LANDER):
        move_box(state, contacts, each)
    if state.contact_count > 0 and state.awake:
        solve_impacts(state, contacts, scratch)


@rule
def rest(state: Any, is_solved: bool) -> None:
    """Put the bodies to sleep if none has moved for half a second."""
    least = TIME_TO_SLEEP
    for body in range(BODIES):
        motion = state.velocity[body]
        speed = motion[0] * motion[0] + motion[1] * motion[1]
        if motion[2] * motion[2] > SLOW_SPIN * SLOW_SPIN or speed > SLOW * SLOW:
            state.sleep_time[body] = ZERO
        else:
            state.sleep_time[body] += TIME_STEP
        least = smaller(least, state.sleep_time[body])
    if least >= TIME_TO_SLEEP and is_solved:
        state.awake = False
        for body in range(BODIES):
            set_motion(state.velocity, body, Motion(ZERO, ZERO, ZERO))
