"""Asterix: enemies and treasure cross the eight middle rows; touch the treasure, and never an enemy.

A treasure is a reward of 1, an enemy ends the episode. One more comes into a free row at regular intervals: with
probability 1/3 a treasure, from the left or the right. Every 102 steps they come faster, and every 204 steps they move
faster too, until both intervals are 1.
"""

from typing import Any

import numpy as np

from valueshare.envs.minatar import DOWN, LEFT, RIGHT, UP
from valueshare.envs.minatar.rows import choice, kernel, record, rule, step_rows
from valueshare.splitmix import uniform

PLAYER, ENEMY, TRAIL, GOLD = range(4)
LANES = 8  # rows 1 to 8, each with one enemy or treasure at most
NOBODY, AN_ENEMY, A_TREASURE = range(3)
GOLD_PROBABILITY = 1 / 3
SPAWN_INTERVAL, MOVE_INTERVAL = 10, 5  # steps, at first
RAMP_INTERVAL = 100

STATE = record(
    player_x=np.int8,
    player_y=np.int8,
    spawn_interval=np.int8,
    spawn_timer=np.int8,
    move_interval=np.int8,
    move_timer=np.int8,
    ramp_timer=np.int8,
    ramps=np.int8,
    kind=(np.int8, (LANES,)),
    x=(np.int8, (LANES,)),
    direction=(np.int8, (LANES,)),
)


@rule
def reset(state: Any, random: Any) -> None:
    state.player_x = state.player_y = 5
    state.spawn_interval = state.spawn_timer = SPAWN_INTERVAL
    state.move_interval = state.move_timer = MOVE_INTERVAL
    state.ramp_timer, state.ramps = RAMP_INTERVAL, 0
    state.kind[:] = NOBODY


@rule
def step(state: Any, action: int, random: Any) -> tuple[float, bool]:
    if state.spawn_timer == 0:
        spawn(state, random)
        state.spawn_timer = state.spawn_interval
    if action == LEFT:
        state.player_x = max(0, state.player_x - 1)
    elif action == RIGHT:
        state.player_x = min(9, state.player_x + 1)
    elif action == UP:
        state.player_y = max(1, state.player_y - 1)
    elif action == DOWN:
        state.player_y = min(LANES, state.player_y + 1)

    reward, terminated = collect_or_collide(state)
    if state.move_timer == 0:
        state.move_timer = state.move_interval
        for lane in range(LANES):
            if state.kind[lane] != NOBODY:
                state.x[lane] += state.direction[lane]
                if not 0 <= state.x[lane] <= 9:
                    state.kind[lane] = NOBODY
        more, met = collect_or_collide(state)
        reward, terminated = reward + more, terminated or met
    state.spawn_timer -= 1
    state.move_timer -= 1
    ramp(state)
    return reward, terminated


@rule
def spawn(state: Any, random: Any) -> None:
    free = 0
    for lane in range(LANES):
        free += state.kind[lane] == NOBODY
    if free == 0:
        return
    skip, to_right = choice(random, 0, free), choice(random, 1, 2)
    for lane in range(LANES):
        if state.kind[lane] == NOBODY:
            if skip == 0:
                state.kind[lane] = A_TREASURE if uniform(random, 2) < GOLD_PROBABILITY else AN_ENEMY
                state.x[lane] = 0 if to_right else 9
                state.direction[lane] = 1 if to_right else -1
                return
            skip -= 1


@rule
def collect_or_collide(state: Any) -> tuple[float, bool]:
    """Take a treasure at the player's place: its reward, and whether an enemy is there."""
    lane = state.player_y - 1
    if state.kind[lane] == NOBODY or state.x[lane] != state.player_x:
        return 0.0, False
    if state.kind[lane] == AN_ENEMY:
        return 0.0, True
    state.kind[lane] = NOBODY
    return 1.0, False


@rule
def ramp(state: Any) -> None:
    """Shorter intervals once the timer has passed 0, until both are 1."""
    if state.spawn_interval == 1 and state.move_interval == 1:
        return
    if state.ramp_timer >= 0:
        state.ramp_timer -= 1
        return
    if state.move_interval > 1 and state.ramps % 2 == 1:
        state.move_interval -= 1
    if state.spawn_interval > 1:
        state.spawn_interval -= 1
    state.ramps += 1
    state.ramp_timer = RAMP_INTERVAL


@rule
def draw(state: Any, picture: Any) -> None:
    picture[PLAYER, state.player_y, state.player_x] = True
    for lane in range(LANES):
        if state.kind[lane] != NOBODY:
            x, behind = state.x[lane], state.x[lane] - state.direction[lane]
            picture[GOLD if state.kind[lane] == A_TREASURE else ENEMY, lane + 1, x] = True
            if 0 <= behind <= 9:
                picture[TRAIL, lane + 1, behind] = True


@kernel
def step_environments(states: Any, rows: Any, inputs: Any, outputs: Any) -> None:
    step_rows(reset, step, draw, states, rows, inputs, outputs)
