"""One time step of the world: contacts, velocities, positions, and impacts within the step.

The physics is that of Box2D 2.3.10, which Gymnasium and EnvPool use (Erin Catto, zlib licence; pybox2d), in the same
order: each step has the same result, to the last bit where processors round alike. What Box2D can do beyond this scene
is left out, and so are the particles of the engines, which touch neither lander nor legs.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from valueshare.envs.lunar_lander.bodies import (
    BODIES,
    EDGES,
    INVERSE_MASS,
    LANDER,
    LEFT_LEG,
    LOCAL_CENTER,
    RADIUS,
    RIGHT_LEG,
    TIME_STEP,
    VERTEX_COUNT,
)
from valueshare.envs.lunar_lander.contacts import (
    CONSTRAINT,
    IMPACT_CORRECTION,
    IMPACT_TOLERANCE,
    MOST_CONTACTS,
    STEP_CORRECTION,
    STEP_TOLERANCE,
    place_constraint,
    separate,
    warm_start,
)
from valueshare.envs.lunar_lander.geometry import (
    EPSILON,
    F32,
    ONE,
    ZERO,
    Bool,
    Float,
    Int,
    Transform,
    Vector,
    around,
    larger,
    length,
    rule,
    smaller,
    to_world,
)
from valueshare.envs.lunar_lander.impact import Edge, Sweep, time_of_impact, vertex
from valueshare.envs.lunar_lander.joints import (
    Impulses,
    Motion,
    apply_impulses,
    kept_impulses,
    make_joint,
    solve_positions,
)
from valueshare.envs.lunar_lander.manifolds import Feature, collide
from valueshare.envs.lunar_lander.velocities import (
    LANDER_ROW,
    LANES,
    LEFT_LEG_ROW,
    LEFT_ROW,
    RIGHT_LEG_ROW,
    RIGHT_ROW,
    ROWS,
    motion_of,
    read_impulses,
    read_motion,
    set_motion,
    solve_impact,
    solve_on_ground,
    write_impulses,
    write_joint,
    write_motion,
)

GRAVITY = F32(-10)
POSITION_ITERATIONS, IMPACT_ITERATIONS = 2 * 30, 20
MOST_TRANSLATION, MOST_ROTATION = F32(2), F32(0.5) * F32(3.14159265359)
MARGIN, LOOK_AHEAD = F32(0.1), F32(2)  # of the boxes by which contacts are found
MOST_IMPACTS = 8  # of one contact within a step
TIME_TO_SLEEP, SLOW = F32(0.5), F32(0.01)
SLOW_SPIN = F32(2) / F32(180) * F32(3.14159265359)
GROUND = BODIES  # among the bodies' shares of a step

# The fields of an environment's state that the world changes.
WORLD_FIELDS = {
    "center": (np.float32, (BODIES, 2)),
    "angle": (np.float32, BODIES),
    "start_center": (np.float32, (BODIES, 2)),  # before the step, or at an impact
    "start_angle": (np.float32, BODIES),
    "velocity": (np.float32, (BODIES, 3)),  # of the centre, and angular velocity
    "force": (np.float32, 2),  # on the lander, in the first step
    "impulses": (np.float32, (BODIES, 4)),  # of the legs' joints
    "limit": (np.float32, BODIES),  # of them, in the step before
    "still": (np.float32, BODIES),  # seconds without motion
    "awake": np.bool_,
    "box": (np.float32, (BODIES, 4)),  # left, bottom, right, top: within it a body may touch something
    "edge": (np.float32, (EDGES, 4)),
    "edge_box": (np.float32, (EDGES, 4)),
    "contact_count": np.int32,
    "order": (np.int64, MOST_CONTACTS),  # slots of contacts, the newest first
    "hull_touches": np.bool_,
    "leg_touches": (np.float32, BODIES),
}


class Scratch(NamedTuple):
    """Memory that the steps of a thread share."""

    constraints: NDArray[Any]  # [MOST_CONTACTS] CONSTRAINT
    share: NDArray[np.float32]  # [BODIES + 1] of the step that has passed
    lanes: NDArray[np.float32]  # [ROWS * LANES] environments that are solved together
    waiting: NDArray[np.int64]  # [LANES] which environments the lanes are


def make_scratch() -> Scratch:
    return Scratch(
        np.zeros(MOST_CONTACTS, CONSTRAINT),
        np.zeros(BODIES + 1, F32),
        np.zeros(ROWS * LANES, F32),
        np.zeros(LANES, np.int64),
    )


@rule
def begin_step(state: Any, contacts: Any, scratch: Scratch, lane: Int) -> bool:
    """The first half of a time step, up to the velocities; False: they are solved already, with those of contacts.

    Else they are to be solved in this lane. Shapes: contacts [MOST_CONTACTS].
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
    right_impulses = kept_impulses(right, impulses_of(state, RIGHT_LEG), state.limit[RIGHT_LEG])
    left_impulses = kept_impulses(left, impulses_of(state, LEFT_LEG), state.limit[LEFT_LEG])
    state.limit[RIGHT_LEG], state.limit[LEFT_LEG] = right.limit, left.limit
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
            contact.pressure[point] = constraint.pressure_impulse[point]
            contact.friction[point] = constraint.friction_impulse[point]
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
        right_fits = solve_positions(RIGHT_LEG, state.limit[RIGHT_LEG], state.center, state.angle)
        left_fits = solve_positions(LEFT_LEG, state.limit[LEFT_LEG], state.center, state.angle)
        is_solved = least >= STEP_TOLERANCE and right_fits and left_fits
        if is_solved:
            break
    rest(state, is_solved)
    for each in (RIGHT_LEG, LEFT_LEG, LANDER):
        move_box(state, contacts, each)
    if state.contact_count > 0 and state.awake:
        solve_impacts(state, contacts, scratch)


@rule
def body_frame(state: Any, body: Int) -> Transform:
    return frame_at(body, state.center[body, 0], state.center[body, 1], state.angle[body])


@rule
def frame_at(body: Int, x: Float, y: Float, angle: Float) -> Transform:
    return around(Vector(x, y), angle, Vector(LOCAL_CENTER[body, 0], LOCAL_CENTER[body, 1]))


@rule
def edge_of(state: Any, number: Int) -> Edge:
    ends = state.edge[number]
    return Edge(Vector(ends[0], ends[1]), Vector(ends[2], ends[3]))


@rule
def update_contacts(state: Any, contacts: Any) -> None:
    kept = 0
    for i in range(state.contact_count):
        slot = state.order[i]
        contact = contacts[slot]
        if boxes_overlap(state.box[slot // EDGES], state.edge_box[slot % EDGES]):
            state.order[kept] = slot
            kept += 1
            update(state, contact, slot)
        else:
            if contact.touching:
                touch(state, slot // EDGES, False)
            contact.exists = False
    state.contact_count = kept


@rule
def boxes_overlap(a: Any, b: Any) -> bool:
    return not (b[0] - a[2] > ZERO or b[1] - a[3] > ZERO or a[0] - b[2] > ZERO or a[1] - b[3] > ZERO)


@rule
def touch(state: Any, body: Int, begins: bool) -> None:
    """A contact begins or ends. Where a leg touches two edges, the end of one counts as the end, as in Gymnasium."""
    if body == LANDER:
        if begins:
            state.hull_touches = True
    else:
        state.leg_touches[body] = ONE if begins else ZERO


@rule
def update(state: Any, contact: Any, slot: Int) -> None:
    """Find the points of contact again, and the impulses of those that were there before."""
    body = slot // EDGES
    contact.enabled = True
    found = collide(edge_of(state, slot % EDGES), body, body_frame(state, body))
    old_count = contact.count
    old1, old2 = contact.features[0], contact.features[1]
    pressure1, pressure2 = contact.pressure[0], contact.pressure[1]
    friction1, friction2 = contact.friction[0], contact.friction[1]
    contact.count, contact.face_of_edge = found.count, found.face_of_edge
    contact.normal[0], contact.normal[1] = found.normal.x, found.normal.y
    contact.point[0], contact.point[1] = found.point.x, found.point.y
    for i in range(found.count):
        point = found.first if i == 0 else found.second
        key = packed(point.feature)
        contact.points[i, 0], contact.points[i, 1] = point.point.x, point.point.y
        contact.features[i] = key
        if old_count > 0 and key == old1:
            contact.pressure[i], contact.friction[i] = pressure1, friction1
        elif old_count > 1 and key == old2:
            contact.pressure[i], contact.friction[i] = pressure2, friction2
        else:
            contact.pressure[i] = contact.friction[i] = ZERO
    touches = found.count > 0
    if touches != contact.touching:
        touch(state, body, touches)
    contact.touching = touches


@rule
def packed(of: Feature) -> Any:
    return np.uint32(of.edge | of.polygon << 8 | of.edge_kind << 16 | of.polygon_kind << 24)


@rule
def collect(state: Any, contacts: Any, body: Int, scratch: Scratch, count: Int) -> Int:
    """Add the constraints of a body's touching contacts, after those before."""
    for i in range(state.contact_count):
        slot = state.order[i]
        if slot // EDGES == body and contacts[slot].enabled and contacts[slot].touching:
            place_constraint(scratch.constraints[count], contacts[slot], slot, state.center, state.angle, ONE)
            count += 1
    return count


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


@rule
def rest(state: Any, is_solved: bool) -> None:
    """Put the bodies to sleep if none has moved for half a second."""
    least = TIME_TO_SLEEP
    for body in range(BODIES):
        motion = state.velocity[body]
        speed = motion[0] * motion[0] + motion[1] * motion[1]
        if motion[2] * motion[2] > SLOW_SPIN * SLOW_SPIN or speed > SLOW * SLOW:
            state.still[body] = ZERO
        else:
            state.still[body] += TIME_STEP
        least = smaller(least, state.still[body])
    if least >= TIME_TO_SLEEP and is_solved:
        state.awake = False
        for body in range(BODIES):
            set_motion(state.velocity, body, Motion(ZERO, ZERO, ZERO))


@rule
def move_box(state: Any, contacts: Any, body: Int) -> None:
    """Follow a body that moved from its start with its box; add contacts with the edges that the new box overlaps."""
    start = state.start_center[body]
    from_frame = frame_at(body, start[0], start[1], state.start_angle[body])
    to_frame = body_frame(state, body)
    begin, end = box_of(from_frame, body), box_of(to_frame, body)
    left, bottom = smaller(begin[0], end[0]), smaller(begin[1], end[1])
    right, top = larger(begin[2], end[2]), larger(begin[3], end[3])
    box = state.box[body]
    if box[0] <= left and box[1] <= bottom and right <= box[2] and top <= box[3]:
        return
    new_left, new_bottom, new_right, new_top = left - MARGIN, bottom - MARGIN, right + MARGIN, top + MARGIN
    ahead_x, ahead_y = LOOK_AHEAD * (to_frame.x - from_frame.x), LOOK_AHEAD * (to_frame.y - from_frame.y)
    if ahead_x < ZERO:
        new_left += ahead_x
    else:
        new_right += ahead_x
    if ahead_y < ZERO:
        new_bottom += ahead_y
    else:
        new_top += ahead_y
    box[0], box[1], box[2], box[3] = new_left, new_bottom, new_right, new_top
    find_contacts(state, contacts, body)


@rule
def box_of(frame: Transform, body: Int) -> tuple[Float, Float, Float, Float]:
    corner = to_world(frame, vertex(body, 0))
    left, bottom, right, top = corner.x, corner.y, corner.x, corner.y
    for number in range(1, VERTEX_COUNT[body]):
        corner = to_world(frame, vertex(body, number))
        left, bottom = smaller(left, corner.x), smaller(bottom, corner.y)
        right, top = larger(right, corner.x), larger(top, corner.y)
    return left - RADIUS, bottom - RADIUS, right + RADIUS, top + RADIUS


@rule
def find_contacts(state: Any, contacts: Any, body: Int) -> None:
    for number in range(EDGES):
        slot = body * EDGES + number
        contact = contacts[slot]
        if not contact.exists and boxes_overlap(state.box[body], state.edge_box[number]):
            contact.exists, contact.enabled, contact.touching, contact.has_impact = True, True, False, False
            contact.count, contact.impacts = 0, 0
            for i in range(state.contact_count, 0, -1):
                state.order[i] = state.order[i - 1]
            state.order[0] = slot
            state.contact_count += 1


@rule
def solve_impacts(state: Any, contacts: Any, scratch: Scratch) -> None:
    """Stop bodies where they would pass through an edge within the step, the earliest first."""
    center, angle, share = state.start_center, state.start_angle, scratch.share
    for body in range(BODIES + 1):
        share[body] = ZERO
    for i in range(state.contact_count):
        contact = contacts[state.order[i]]
        contact.has_impact, contact.impacts = False, 0
    while True:
        first, earliest = np.int64(-1), ONE
        for i in range(state.contact_count):
            slot = state.order[i]
            contact, body = contacts[slot], slot // EDGES
            if not contact.enabled or contact.impacts > MOST_IMPACTS:
                continue
            if not contact.has_impact:
                if share[GROUND] < share[body]:
                    share[GROUND] = share[body]
                elif share[body] < share[GROUND]:
                    advance_start(state, body, share, share[GROUND])
                passed = share[body]
                sweep = Sweep(
                    body,
                    Vector(center[body, 0], center[body, 1]),
                    angle[body],
                    Vector(state.center[body, 0], state.center[body, 1]),
                    state.angle[body],
                )
                part = time_of_impact(edge_of(state, slot % EDGES), sweep)
                contact.impact = smaller(passed + (ONE - passed) * part, ONE) if part < ONE else ONE
                contact.has_impact = True
            if contact.impact < earliest:
                first, earliest = slot, contact.impact
        if first < 0 or ONE - F32(10) * EPSILON < earliest:
            return
        solve_impact_of(state, contacts, scratch, first, earliest)


@rule
def advance_start(state: Any, body: Int, share: Any, until: Float) -> None:
    """Shapes: share [BODIES + 1]."""
    part = (until - share[body]) / (ONE - share[body])
    rest, center = ONE - part, state.start_center[body]
    center[0] = rest * center[0] + part * state.center[body, 0]
    center[1] = rest * center[1] + part * state.center[body, 1]
    state.start_angle[body] = rest * state.start_angle[body] + part * state.angle[body]
    share[body] = until


@rule
def solve_impact_of(state: Any, contacts: Any, scratch: Scratch, slot: Int, when: Float) -> None:
    body, contact = slot // EDGES, contacts[slot]
    center, angle, share = state.start_center, state.start_angle, scratch.share
    start = center[body, 0], center[body, 1], angle[body], share[body], share[GROUND]
    end = state.center[body, 0], state.center[body, 1], state.angle[body]
    advance_start(state, body, share, when)
    share[GROUND] = when
    state.center[body, 0], state.center[body, 1] = center[body, 0], center[body, 1]
    state.angle[body] = angle[body]
    update(state, contact, slot)
    contact.has_impact = False
    contact.impacts += 1
    if not contact.touching:
        contact.enabled = False
        center[body, 0], center[body, 1], angle[body], share[body], share[GROUND] = start
        state.center[body, 0], state.center[body, 1], state.angle[body] = end
        return

    slots = scratch.constraints
    slots[0].slot, count = slot, np.int64(1)
    for i in range(state.contact_count):
        other = state.order[i]
        if other // EDGES == body and other != slot:
            update(state, contacts[other], other)
            if contacts[other].touching:
                slots[count].slot = other
                count += 1
    for _ in range(IMPACT_ITERATIONS):
        least = ZERO
        for i in range(count):
            number = slots[i].slot
            least = smaller(least, separate(contacts[number], number, state.center, state.angle, IMPACT_CORRECTION))
        if least >= IMPACT_TOLERANCE:
            break
    center[body, 0], center[body, 1] = state.center[body, 0], state.center[body, 1]
    angle[body] = state.angle[body]
    for i in range(count):
        number = slots[i].slot
        place_constraint(slots[i], contacts[number], number, state.center, state.angle, ZERO)
    solve_impact(state.velocity, slots, count)
    move(state, body, (ONE - when) * TIME_STEP)
    for i in range(state.contact_count):
        other = state.order[i]
        if other // EDGES == body:
            contacts[other].has_impact = False
    move_box(state, contacts, body)
