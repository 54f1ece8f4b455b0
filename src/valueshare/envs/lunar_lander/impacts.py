"""Impacts within a step: bodies stop where they would pass through an edge, the earliest first."""

from typing import Any

import numpy as np

from valueshare.envs.lunar_lander.bodies import BODIES, EDGES, TIME_STEP
from valueshare.envs.lunar_lander.contact_list import move_box, update
from valueshare.envs.lunar_lander.contacts import IMPACT_CORRECTION, IMPACT_TOLERANCE, place_constraint, separate
from valueshare.envs.lunar_lander.geometry import EPSILON, F32, ONE, ZERO, Float, Int, Vector, rule, smaller
from valueshare.envs.lunar_lander.state import Scratch, edge_of, move
from valueshare.envs.lunar_lander.time_of_impact import Sweep, time_of_impact
from valueshare.envs.lunar_lander.velocities import solve_impact

IMPACT_ITERATIONS = 20
MOST_IMPACTS = 8  # of one contact within a step
GROUND = BODIES  # after the bodies, in `Scratch.passed`


@rule
def solve_impacts(state: Any, contacts: Any, scratch: Scratch) -> None:
    """Stop bodies where they would pass through an edge within the step, the earliest first."""
    center, angle, passed = state.start_center, state.start_angle, scratch.passed
    for body in range(BODIES + 1):
        passed[body] = ZERO
    for i in range(state.contact_count):
        contact = contacts[state.order[i]]
        contact.impact_is_known, contact.impact_count = False, 0
    while True:
        first, earliest = np.int64(-1), ONE
        for i in range(state.contact_count):
            slot = state.order[i]
            contact, body = contacts[slot], slot // EDGES
            if not contact.enabled or contact.impact_count > MOST_IMPACTS:
                continue
            if not contact.impact_is_known:
                if passed[GROUND] < passed[body]:
                    passed[GROUND] = passed[body]
                elif passed[body] < passed[GROUND]:
                    advance_start(state, body, passed, passed[GROUND])
                begun = passed[body]
                sweep = Sweep(
                    body,
                    Vector(center[body, 0], center[body, 1]),
                    angle[body],
                    Vector(state.center[body, 0], state.center[body, 1]),
                    state.angle[body],
                )
                part = time_of_impact(edge_of(state, slot % EDGES), sweep)
                contact.impact_time = smaller(begun + (ONE - begun) * part, ONE) if part < ONE else ONE
                contact.impact_is_known = True
            if contact.impact_time < earliest:
                first, earliest = slot, contact.impact_time
        if first < 0 or ONE - F32(10) * EPSILON < earliest:
            return
        solve_impact_of(state, contacts, scratch, first, earliest)


@rule
def advance_start(state: Any, body: Int, passed: Any, until: Float) -> None:
    """Move the start of a body's motion to a later fraction of the step. Shapes: passed [BODIES + 1]."""
    part = (until - passed[body]) / (ONE - passed[body])
    rest, center = ONE - part, state.start_center[body]
    center[0] = rest * center[0] + part * state.center[body, 0]
    center[1] = rest * center[1] + part * state.center[body, 1]
    state.start_angle[body] = rest * state.start_angle[body] + part * state.angle[body]
    passed[body] = until


@rule
def solve_impact_of(state: Any, contacts: Any, scratch: Scratch, slot: Int, when: Float) -> None:
    """Move the body of a contact back to its impact, solve all contacts of the body there, and let it move on."""
    body, contact = slot // EDGES, contacts[slot]
    center, angle, passed = state.start_center, state.start_angle, scratch.passed
    start = center[body, 0], center[body, 1], angle[body], passed[body], passed[GROUND]
    end = state.center[body, 0], state.center[body, 1], state.angle[body]
    advance_start(state, body, passed, when)
    passed[GROUND] = when
    state.center[body, 0], state.center[body, 1] = center[body, 0], center[body, 1]
    state.angle[body] = angle[body]
    update(state, contact, slot)
    contact.impact_is_known = False
    contact.impact_count += 1
    if not contact.touching:
        contact.enabled = False
        center[body, 0], center[body, 1], angle[body], passed[body], passed[GROUND] = start
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
            contacts[other].impact_is_known = False
    move_box(state, contacts, body)
