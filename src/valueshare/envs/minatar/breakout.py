"""Breakout: a paddle at the bottom keeps a ball in the game that breaks three rows of bricks.

A broken brick is a reward of 1. The ball moves diagonally, one cell per step. An episode ends when the ball passes the
paddle. When the last brick is broken, three new rows appear as soon as the ball is back at the bottom.
"""

from typing import Any

import numpy as np

from valueshare.envs.minatar import LEFT, RIGHT
from valueshare.envs.minatar.rows import choice, kernel, record, rule, step_rows

PADDLE, BALL, TRAIL, BRICK = range(4)
BRICK_ROWS = 3  # from row 1 down

STATE = record(
    paddle=np.int8,
    ball_x=np.int8,
    ball_y=np.int8,
    velocity_x=np.int8,
    velocity_y=np.int8,
    last_x=np.int8,
    last_y=np.int8,
    in_brick=np.int8,  # whether the ball was at a brick in the step before
    bricks_left=np.int8,
    bricks=(np.int8, (BRICK_ROWS, 10)),
)


@rule
def reset(state: Any, random: Any) -> None:
    from_left = choice(random, 0, 2)
    state.paddle = 4
    state.ball_x = state.last_x = 0 if from_left else 9
    state.ball_y = state.last_y = 3
    state.velocity_x = 1 if from_left else -1
    state.velocity_y = 1
    state.in_brick = 0
    lay_bricks(state)


@rule
def lay_bricks(state: Any) -> None:
    state.bricks[:] = 1
    state.bricks_left = BRICK_ROWS * 10


@rule
def step(state: Any, action: int, random: Any) -> tuple[float, bool]:
    if action == LEFT:
        state.paddle = max(0, state.paddle - 1)
    elif action == RIGHT:
        state.paddle = min(9, state.paddle + 1)
    state.last_x, state.last_y = state.ball_x, state.ball_y
    x, y = state.ball_x + state.velocity_x, state.ball_y + state.velocity_y
    if x < 0 or x > 9:
        x = min(max(x, 0), 9)
        state.velocity_x = -state.velocity_x

    reward, terminated = 0.0, False
    at_brick = 1 <= y <= BRICK_ROWS and state.bricks[y - 1, x] == 1
    if y < 0:
        y = 0
        state.velocity_y = -state.velocity_y
    elif at_brick:
        if not state.in_brick:  # a ball in a gap between bricks breaks every second one
            reward = 1.0
            state.bricks[y - 1, x] = 0
            state.bricks_left -= 1
            y = state.last_y
            state.velocity_y = -state.velocity_y
    elif y == 9:
        if state.bricks_left == 0:
            lay_bricks(state)
        if state.last_x == state.paddle:
            y = state.last_y
            state.velocity_y = -state.velocity_y
        elif x == state.paddle:  # at its edge the paddle sends the ball back where it came from
            y = state.last_y
            state.velocity_x, state.velocity_y = -state.velocity_x, -state.velocity_y
        else:
            terminated = True
    state.in_brick = at_brick
    state.ball_x, state.ball_y = x, y
    return reward, terminated


@rule
def draw(state: Any, picture: Any) -> None:
    picture[PADDLE, 9, state.paddle] = True
    picture[BALL, state.ball_y, state.ball_x] = True
    picture[TRAIL, state.last_y, state.last_x] = True
    for row in range(BRICK_ROWS):
        for x in range(10):
            picture[BRICK, row + 1, x] = state.bricks[row, x] == 1


@kernel
def step_environments(states: Any, rows: Any, inputs: Any, outputs: Any) -> None:
    step_rows(reset, step, draw, states, rows, inputs, outputs)
