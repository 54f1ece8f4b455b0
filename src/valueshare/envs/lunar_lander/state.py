"""The state of an environment, as fields of one record, and the memory that the steps of a thread share."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from valueshare.envs.lunar_lander.bodies import BODIES, EDGES, frame_at
from valueshare.envs.lunar_lander.contacts import CONSTRAINT, MOST_CONTACTS
from valueshare.envs.lunar_lander.distance import Edge
from valueshare.envs.lunar_lander.geometry import F32, PI, Float, Int, Transform, Vector, length, rule
from valueshare.envs.lunar_lander.joints import Impulses
from valueshare.envs.lunar_lander.velocities import LANES, ROWS

MOST_TRANSLATION, MOST_ROTATION = F32(2), F32(0.5) * PI

# The fields of an environment's state that the world changes.
WORLD_FIELDS = {
    "center": (np.float32, (BODIES, 2)),
    "angle": (np.float32, BODIES),
    "start_center": (np.float32, (BODIES, 2)),  # before the step, or at an impact
    "start_angle": (np.float32, BODIES),
    "velocity": (np.float32, (BODIES, 3)),  # of the centre, and angular velocity
    "force": (np.float32, 2),  # on the lander, in the first step
    "impulses": (np.float32, (BODIES, 4)),  # of the legs' joints
    "limit_state": (np.float32, BODIES),  # of them, in the last step
    "sleep_time": (np.float32, BODIES),  # seconds without motion
    "awake": np.bool_,
    "box": (np.float32, (BODIES, 4)),  # left, bottom, right, top: within it a body may touch something
    "edge": (np.float32, (EDGES, 4)),
    "edge_box": (np.float32, (EDGES, 4)),
    "contact_count": np.int32,
    "order": (np.int64, MOST_CONTACTS),  # slots of contacts, the newest first
    "hull_has_touched": np.bool_,  # since the episode began: it ends then
    "leg_touches": (np.float32, BODIES),
}


class Scratch(NamedTuple):
    """Memory that the steps of a thread share."""

    constraints: NDArray[Any]  # [MOST_CONTACTS] CONSTRAINT
    passed: NDArray[np.float32]  # [BODIES + 1] fraction of the step, of each body and of the ground
    lanes: NDArray[np.float32]  # [ROWS * LANES] environments that are solved together
    lane_rows: NDArray[np.int64]  # [LANES] which environments the lanes are


def make_scratch() -> Scratch:
    return Scratch(
        np.zeros(MOST_CONTACTS, CONSTRAINT),
        np.zeros(BODIES + 1, F32),
        np.zeros(ROWS * LANES, F32),
        np.zeros(LANES, np.int64),
    )


@rule
def body_frame(state: Any, body: Int) -> Transform:
    return frame_at(body, state.center[body, 0], state.center[body, 1], state.angle[body])


@rule
def edge_of(state: Any, number: Int) -> Edge:
    ends = state.edge[number]
    return Edge(Vector(ends[0], ends[1]), Vector(ends[2], ends[3]))


@rule
def impulses_of(state: Any, leg: Int) -> Impulses:
    kept = state.impulses[leg]
    return Impulses(kept[0], kept[1], kept[2], kept[3])


@rule
def keep_impulses(state: Any, leg: Int, of: Impulses) -> None:
    kept = state.impulses[leg]
    kept[0], kept[1], kept[2], kept[3] = of.x, of.y, of.limit, of.motor


@rule
def move(state: Any, body: Int, seconds: Float) -> None:
    motion = state.velocity[body]
    way = Vector(seconds * motion[0], seconds * motion[1])
    if way.x * way.x + way.y * way.y > MOST_TRANSLATION * MOST_TRANSLATION:
        ratio = MOST_TRANSLATION / length(way)
        motion[0] *= ratio
        motion[1] *= ratio
    turn = seconds * motion[2]
    if turn * turn > MOST_ROTATION * MOST_ROTATION:
        motion[2] *= MOST_ROTATION / abs(turn)
    state.center[body, 0] += seconds * motion[0]
    state.center[body, 1] += seconds * motion[1]
    state.angle[body] += seconds * motion[2]
