"""Space Invaders: a cannon at the bottom shoots at 24 aliens, which come nearer and shoot back.

An alien that is hit is a reward of 1. The aliens move sideways; at the border they turn and come one row down. The
fewer are left, the faster they are, and each new wave is faster than the one before. An episode ends when an alien or a
bomb reaches the cannon, or an alien the ground.
"""

from typing import Any

import numpy as np

from valueshare.envs.minatar import FIRE, LEFT, RIGHT
from valueshare.envs.minatar.rows import kernel, record, rule, step_rows

CANNON, ALIEN, ALIEN_LEFT, ALIEN_RIGHT, BULLET, BOMB = range(6)
WAVE_ROWS, WAVE_COLUMNS = 4, 0b0011111100  # of a new wave: rows from the top, and the columns 2 to 7
WAVE = 24  # aliens
RELOAD, BOMB_INTERVAL = 5, 10  # steps
MOVE_INTERVAL, MIN_INTERVAL = 12, 6  # steps, of the first wave and of the last ones
BOARD = (np.int16, (10,))  # a number per row, with a bit per column
FIRST_COLUMN, LAST_COLUMN = 1 << 0, 1 << 9

STATE = record(
    cannon=np.int8,
    reload_timer=np.int8,
    direction=np.int8,  # of the aliens
    move_interval=np.int8,
    move_timer=np.int8,
    bomb_timer=np.int8,
    aliens_left=np.int8,
    aliens=BOARD,
    bullets=BOARD,
    bombs=BOARD,
)


@rule
def reset(state: Any, random: Any) -> None:
    state.cannon, state.reload_timer = 5, 0
    state.direction = -1
    state.move_interval = state.move_timer = MOVE_INTERVAL
    state.bomb_timer = BOMB_INTERVAL
    state.aliens[:] = 0
    state.bullets[:] = 0
    state.bombs[:] = 0
    send_wave(state)


@rule
def send_wave(state: Any) -> None:
    state.aliens[:WAVE_ROWS] = WAVE_COLUMNS
    state.aliens_left = WAVE


@rule
def step(state: Any, action: int, random: Any) -> tuple[float, bool]:
    if action == LEFT:
        state.cannon = max(0, state.cannon - 1)
    elif action == RIGHT:
        state.cannon = min(9, state.cannon + 1)
    move_up(state.bullets)
    if action == FIRE and state.reload_timer == 0:
        state.bullets[8] |= 1 << state.cannon
        state.reload_timer = RELOAD
    move_down(state.bombs)
    terminated = is_at(state.bombs, state.cannon, 9) or is_at(state.aliens, state.cannon, 9)

    if state.move_timer == 0:
        state.move_timer = min(state.aliens_left, state.move_interval)
        terminated = move_aliens(state) or terminated
    if state.bomb_timer == 0:
        state.bomb_timer = BOMB_INTERVAL
        drop_bomb(state)
    hits = shoot(state)
    state.reload_timer = max(0, state.reload_timer - 1)
    state.move_timer -= 1
    state.bomb_timer -= 1
    if state.aliens_left == 0:
        state.move_interval = max(MIN_INTERVAL, state.move_interval - 1)
        send_wave(state)
    return float(hits), terminated


@rule
def is_at(board: Any, x: int, y: int) -> bool:
    return bool((board[y] >> x) & 1)


@rule
def move_up(board: Any) -> None:
    for y in range(9):
        board[y] = board[y + 1]
    board[9] = 0


@rule
def move_down(board: Any) -> None:
    for y in range(9, 0, -1):
        board[y] = board[y - 1]
    board[0] = 0


@rule
def move_aliens(state: Any) -> bool:
    """Move all aliens; whether one of them has reached the ground or the cannon."""
    aliens, columns = state.aliens, 0
    for y in range(10):
        columns |= aliens[y]
    landed = False
    if columns & (FIRST_COLUMN if state.direction < 0 else LAST_COLUMN):
        state.direction = -state.direction
        bottom = aliens[9]
        landed = bottom != 0
        move_down(aliens)
        aliens[0] = bottom  # as in MinAtar, whose rows wrap: it may be hit there, or drop a bomb, in the last step
    else:
        for y in range(10):
            aliens[y] = aliens[y] >> 1 if state.direction < 0 else aliens[y] << 1
    return landed or is_at(aliens, state.cannon, 9)


@rule
def drop_bomb(state: Any) -> None:
    """A bomb at the lowest alien of the column nearest to the cannon; of two as near, the left one."""
    for distance in range(10):
        for x in (state.cannon - distance, state.cannon + distance):
            for y in range(9, -1, -1):
                if 0 <= x <= 9 and is_at(state.aliens, x, y):
                    state.bombs[y] |= 1 << x
                    return


@rule
def shoot(state: Any) -> int:
    """Remove the aliens at which there is a bullet, and these bullets; their number."""
    hits = 0
    for y in range(10):
        hit = state.aliens[y] & state.bullets[y]
        state.aliens[y] ^= hit
        state.bullets[y] ^= hit
        while hit:
            hits += 1
            hit &= hit - 1  # without its lowest bit
    state.aliens_left -= hits
    return hits


@rule
def draw(state: Any, picture: Any) -> None:
    picture[CANNON, 9, state.cannon] = True
    draw_board(picture[ALIEN], state.aliens)
    draw_board(picture[ALIEN_LEFT if state.direction < 0 else ALIEN_RIGHT], state.aliens)
    draw_board(picture[BULLET], state.bullets)
    draw_board(picture[BOMB], state.bombs)


@rule
def draw_board(channel: Any, board: Any) -> None:
    for y in range(10):
        if board[y]:
            for x in range(10):
                channel[y, x] = is_at(board, x, y)


@kernel
def step_environments(states: Any, rows: Any, inputs: Any, outputs: Any) -> None:
    step_rows(reset, step, draw, states, rows, inputs, outputs)
