"""The rules of LunarLander-v3: how an episode begins, what actions do, observations and rewards."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from valueshare import splitmix
from valueshare.envs import compiled
from valueshare.envs.compiled import StepOutput
from valueshare.envs.lunar_lander import NUMBERS
from valueshare.envs.lunar_lander.bodies import (
    BODIES,
    CHUNKS,
    EDGES,
    HEIGHT,
    INVERSE_INERTIA,
    INVERSE_MASS,
    LANDER,
    LEFT_LEG,
    LEG_AWAY,
    LEG_DOWN,
    LOCAL_CENTER,
    PIXELS,
    RADIUS,
    RIGHT_LEG,
    WIDTH,
)
from valueshare.envs.lunar_lander.contact_list import MARGIN, box_of, find_contacts
from valueshare.envs.lunar_lander.contacts import MOST_CONTACTS
from valueshare.envs.lunar_lander.geometry import (
    F32,
    ZERO,
    Int,
    Transform,
    Vector,
    at_angle,
    cross,
    larger,
    rule,
    smaller,
    subtract,
    to_world,
)
from valueshare.envs.lunar_lander.joints import LEG_ANGLE, LEG_SIGN, Impulses, Motion
from valueshare.envs.lunar_lander.state import WORLD_FIELDS, body_frame, keep_impulses
from valueshare.envs.lunar_lander.twister import TWISTER_FIELDS, uniform
from valueshare.envs.lunar_lander.twister import seed as seed_twister
from valueshare.envs.lunar_lander.velocities import LANES, set_motion, solve_lanes
from valueshare.envs.lunar_lander.world import begin_step, end_flight

STEPS_PER_SECOND = 50.0
MAIN_POWER, SIDE_POWER = 13.0, 0.6
SIDE_HEIGHT, SIDE_AWAY = 14 / PIXELS, 12 / PIXELS
INITIAL_FORCE = 1000.0
# Elapsed steps before the seed is set, and between the reset of an episode and the step without action that gives its
# first observation.
NOT_STARTED, BEGINS = -2, -1

# Compiled into the kernel from files that Numba's cache does not check: it checks this file only.
SOURCES = [*sorted(Path(__file__).parent.glob("*.py")), Path(compiled.__file__)]
STATE = np.dtype(
    [
        *((name, *field) if isinstance(field, tuple) else (name, field) for name, field in WORLD_FIELDS.items()),
        *((name, *field) if isinstance(field, tuple) else (name, field) for name, field in TWISTER_FIELDS.items()),
        ("seed", np.uint32),
        ("elapsed", np.int32),
        ("shaping", np.float64),
        ("fuel", np.float64),
        *splitmix.source_type(*SOURCES).descr,
    ],
    align=True,
)


class StepInput(NamedTuple):
    """The input of a step of E environments."""

    actions: NDArray[np.int64]  # [E]
    active: NDArray[np.bool_]  # [E]
    engines: NDArray[np.float64]  # [n, 3] of each action
    episode_limit: int  # steps after which an episode is truncated


@njit(nogil=True, cache=True, error_model="numpy")
def step_lunar_landers(states: Any, contacts: Any, scratch: Any, inputs: Any, outputs: Any) -> None:
    """One step of E environments. Shapes: states [E], contacts [E, MOST_CONTACTS]."""
    count = len(states)
    for i in range(count):
        state = states[i]
        outputs.reward[i], outputs.terminated[i], outputs.truncated[i] = ZERO, False, False
        if state.elapsed == NOT_STARTED:
            seed_twister(state, state.seed)
            begin(state, contacts[i])
        elif inputs.active[i]:
            state.elapsed += 1
            engines = inputs.engines[inputs.actions[i]]
            act(state, engines[0], engines[1], engines[2])
    # First the steps that were asked for, then those with which new episodes begin.
    for starting in range(2):
        filled = np.int64(0)
        for i in range(count):
            moves = states[i].elapsed == BEGINS if starting else states[i].elapsed > 0 and inputs.active[i]
            if moves and begin_step(states[i], contacts[i], scratch, filled):
                scratch.lane_rows[filled] = i
                filled += 1
            elif moves:
                finish_step(states[i], contacts[i], i, inputs, outputs)
            if filled == LANES or (filled > 0 and i == count - 1):
                solve_lanes(scratch.lanes)
                for lane in range(filled):
                    row = scratch.lane_rows[lane]
                    end_flight(states[row], contacts[row], scratch, lane)
                    finish_step(states[row], contacts[row], row, inputs, outputs)
                filled = np.int64(0)


@rule
def finish_step(state: Any, contacts: Any, i: Int, inputs: StepInput, outputs: StepOutput) -> None:
    """Observation, reward and the end of an episode, after a time step."""
    observation = outputs.observation[i]
    observe(state, observation)
    shaping = shaping_of(observation)
    reward = shaping - state.shaping - state.fuel
    state.shaping = shaping
    if state.elapsed == BEGINS:  # the first observation, of no action of the agent: it has no reward and ends nothing
        state.elapsed = 0
        return
    terminated = state.hull_has_touched or abs(observation[0]) >= 1
    if terminated:
        reward = -100.0
    if not state.awake:
        terminated, reward = True, 100.0
    truncated = not terminated and state.elapsed >= inputs.episode_limit
    outputs.reward[i], outputs.terminated[i], outputs.truncated[i] = reward, terminated, truncated
    if terminated or truncated:
        for number in range(NUMBERS):
            outputs.last[i, number] = observation[number]
        begin(state, contacts)


@rule
def begin(state: Any, contacts: Any) -> None:
    """Start an episode; a step without action follows, before the first observation."""
    place_ground(state)
    state.contact_count, state.elapsed = 0, BEGINS
    state.awake, state.hull_has_touched = True, False
    for slot in range(MOST_CONTACTS):
        contacts[slot].exists = False
    for body in range(BODIES):
        set_motion(state.velocity, body, Motion(ZERO, ZERO, ZERO))
        keep_impulses(state, body, Impulses(ZERO, ZERO, ZERO, ZERO))
        state.limit_state[body] = state.sleep_time[body] = state.leg_touches[body] = ZERO
        x = F32(WIDTH / 2 - LEG_SIGN[body] * LEG_AWAY)
        turn = at_angle(LEG_ANGLE[body])
        frame = Transform(x, F32(HEIGHT), turn.sin, turn.cos)
        center = to_world(frame, Vector(LOCAL_CENTER[body, 0], LOCAL_CENTER[body, 1]))
        state.center[body, 0], state.center[body, 1] = center.x, center.y
        state.angle[body] = LEG_ANGLE[body]
        box = box_of(frame, body)
        state.box[body, 0], state.box[body, 1] = box[0] - MARGIN, box[1] - MARGIN
        state.box[body, 2], state.box[body, 3] = box[2] + MARGIN, box[3] + MARGIN
    # C++ compilers evaluate these two, arguments of one function, from right to left.
    state.force[1] = uniform(state, -INITIAL_FORCE, INITIAL_FORCE)
    state.force[0] = uniform(state, -INITIAL_FORCE, INITIAL_FORCE)
    for each in (LANDER, LEFT_LEG, RIGHT_LEG):
        find_contacts(state, contacts, each)
    act(state, 0.0, 0.0, 0.0)


@rule
def place_ground(state: Any) -> None:
    """Random heights, smoothed, with a level pad in the middle."""
    heights = np.empty(CHUNKS + 1)
    for i in range(CHUNKS + 1):
        is_pad = CHUNKS // 2 - 2 <= i <= CHUNKS // 2 + 2
        heights[i] = HEIGHT / 4 if is_pad else uniform(state, 0.0, HEIGHT / 2)
    edge = state.edge
    edge[0, 0], edge[0, 1], edge[0, 2], edge[0, 3] = ZERO, ZERO, F32(WIDTH), ZERO
    x_before = y_before = ZERO
    for i in range(CHUNKS):
        x = F32(WIDTH / (CHUNKS - 1) * i)
        y = F32((heights[CHUNKS if i == 0 else i - 1] + heights[i] + heights[i + 1]) / 3)
        if i > 0:
            edge[i, 0], edge[i, 1], edge[i, 2], edge[i, 3] = x_before, y_before, x, y
        x_before, y_before = x, y
    for number in range(EDGES):
        ends, box = edge[number], state.edge_box[number]
        box[0], box[1] = smaller(ends[0], ends[2]) - RADIUS - MARGIN, smaller(ends[1], ends[3]) - RADIUS - MARGIN
        box[2], box[3] = larger(ends[0], ends[2]) + RADIUS + MARGIN, larger(ends[1], ends[3]) + RADIUS + MARGIN


@rule
def act(state: Any, main: float, direction: float, side: float) -> None:
    """Fire engines with these powers: pushes of the lander, a little at random."""
    frame = body_frame(state, LANDER)
    tip_x, tip_y = np.float64(frame.sin), np.float64(frame.cos)
    side_x, side_y = -tip_y, tip_x
    along = uniform(state, -1.0, 1.0) / PIXELS
    across = uniform(state, -1.0, 1.0) / PIXELS
    if main > 0:
        away = 4 / PIXELS + 2 * along
        x, y = tip_x * away + side_x * across, -tip_y * away - side_y * across
        push_lander(state, frame, x, y, x * MAIN_POWER * main, y * MAIN_POWER * main)
    if side > 0:
        away = 3 * across + direction * SIDE_AWAY
        x, y = tip_x * along + side_x * away, -tip_y * along - side_y * away
        at_x, at_y = x - tip_x * 17 / PIXELS, y + tip_y * SIDE_HEIGHT
        push_lander(state, frame, at_x, at_y, x * SIDE_POWER * side, y * SIDE_POWER * side)
    state.fuel = main * 0.3 + side * 0.03


@rule
def push_lander(state: Any, frame: Transform, at_x: float, at_y: float, x: float, y: float) -> None:
    """Push the lander against a jet, the impulse (x, y), at a point relative to its origin."""
    impulse = Vector(-F32(x), -F32(y))
    point = Vector(F32(at_x) + frame.x, F32(at_y) + frame.y)
    arm = subtract(point, Vector(state.center[LANDER, 0], state.center[LANDER, 1]))
    motion = state.velocity[LANDER]
    motion[0] += INVERSE_MASS[LANDER] * impulse.x
    motion[1] += INVERSE_MASS[LANDER] * impulse.y
    motion[2] += INVERSE_INERTIA[LANDER] * cross(arm, impulse)


@rule
def observe(state: Any, observation: Any) -> None:
    frame, motion = body_frame(state, LANDER), state.velocity[LANDER]
    observation[0] = (np.float64(frame.x) - WIDTH / 2) / (WIDTH / 2)
    observation[1] = (np.float64(frame.y) - HEIGHT / 4 - LEG_DOWN) / (HEIGHT / 2)
    observation[2] = np.float64(motion[0]) * WIDTH / 2 / STEPS_PER_SECOND
    observation[3] = np.float64(motion[1]) * HEIGHT / 2 / STEPS_PER_SECOND
    observation[4] = state.angle[LANDER]
    observation[5] = np.float64(motion[2] * F32(20)) / STEPS_PER_SECOND
    observation[6], observation[7] = state.leg_touches[LEFT_LEG], state.leg_touches[RIGHT_LEG]


@rule
def shaping_of(observation: Any) -> float:
    """Less the further away, the faster and the more tilted; more where legs touch the ground."""
    x, y = np.float64(observation[0]), np.float64(observation[1])
    speed_x, speed_y = np.float64(observation[2]), np.float64(observation[3])
    lost = np.sqrt(x * x + y * y) + np.sqrt(speed_x * speed_x + speed_y * speed_y) + abs(np.float64(observation[4]))
    legs: float = -100 * lost + 10 * (np.float64(observation[6]) + np.float64(observation[7]))
    return legs
