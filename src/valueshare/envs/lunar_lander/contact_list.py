"""Which contacts there are: a body and an edge are compared where their boxes overlap.

A box is wider than its body, and reaches ahead of its motion, so that it is seldom moved.
"""

from typing import Any

import numpy as np

from valueshare.envs.lunar_lander.bodies import EDGES, LANDER, RADIUS, VERTEX_COUNT, frame_at
from valueshare.envs.lunar_lander.contacts import place_constraint
from valueshare.envs.lunar_lander.distance import vertex
from valueshare.envs.lunar_lander.geometry import F32, ONE, ZERO, Float, Int, Transform, larger, rule, smaller, to_world
from valueshare.envs.lunar_lander.manifolds import Feature, collide
from valueshare.envs.lunar_lander.state import Scratch, body_frame, edge_of

MARGIN, LOOK_AHEAD = F32(0.1), F32(2)  # of the boxes by which contacts are found


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
            state.hull_has_touched = True
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
    pressure1, pressure2 = contact.normal_impulse[0], contact.normal_impulse[1]
    friction1, friction2 = contact.tangent_impulse[0], contact.tangent_impulse[1]
    contact.count, contact.face_of_edge = found.count, found.face_of_edge
    contact.normal[0], contact.normal[1] = found.normal.x, found.normal.y
    contact.point[0], contact.point[1] = found.point.x, found.point.y
    for i in range(found.count):
        point = found.first if i == 0 else found.second
        key = packed(point.feature)
        contact.points[i, 0], contact.points[i, 1] = point.point.x, point.point.y
        contact.features[i] = key
        if old_count > 0 and key == old1:
            contact.normal_impulse[i], contact.tangent_impulse[i] = pressure1, friction1
        elif old_count > 1 and key == old2:
            contact.normal_impulse[i], contact.tangent_impulse[i] = pressure2, friction2
        else:
            contact.normal_impulse[i] = contact.tangent_impulse[i] = ZERO
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
            contact.exists, contact.enabled, contact.touching, contact.impact_is_known = True, True, False, False
            contact.count, contact.impact_count = 0, 0
            for i in range(state.contact_count, 0, -1):
                state.order[i] = state.order[i - 1]
            state.order[0] = slot
            state.contact_count += 1
