"""Seaquest: a submarine shoots fish and enemy submarines, takes divers on board, and needs to surface for air.

A hit is a reward of 1. To surface costs one diver, and makes enemies faster and more frequent. With six divers on board
it is a reward of up to 10, by the air that is left. An episode ends when the player surfaces without a diver, runs out
of air, or meets an enemy or its bullet.
"""

from typing import Any

import numpy as np

from valueshare.envs.minatar import DOWN, FIRE, LEFT, RIGHT, UP, tables
from valueshare.envs.minatar.rows import choice, kernel, record, rule, step_rows
from valueshare.envs.minatar.tables import DIRECTION, SHOT_TIMER, TABLE, X, Y
from valueshare.splitmix import uniform

FRONT, BACK, BULLET, TRAIL, ENEMY_BULLET, FISH, ENEMY_SUB, AIR, DIVERS_ON_BOARD, DIVER = range(10)
SUB_PROBABILITY = 1 / 3
MAX_AIR, MAX_DIVERS = 200, 6
SPAWN_INTERVAL, MOVE_INTERVAL = 20, 5  # steps, at first
MIN_MOVE_INTERVAL = 2
DIVER_INTERVAL, DIVER_MOVE_INTERVAL = 30, 5
RELOAD, ENEMY_RELOAD = 5, 10

STATE = record(
    x=np.int8,
    y=np.int8,
    direction=np.int8,
    air=np.int16,
    on_board=np.int32,  # below 0 after a bonus: then every surfacing takes one more, without an end
    at_surface=np.int8,
    reload_timer=np.int8,
    spawn_interval=np.int8,
    spawn_timer=np.int8,
    diver_timer=np.int8,
    move_interval=np.int8,
    ramps=np.int8,
    bullets=TABLE,
    enemy_bullets=TABLE,
    fish=TABLE,
    subs=TABLE,
    divers=TABLE,
)


@rule
def reset(state: Any, random: Any) -> None:
    state.x, state.y, state.direction = 5, 0, -1
    state.air, state.on_board, state.at_surface = MAX_AIR, 0, 1
    state.reload_timer = 0
    state.spawn_interval = state.spawn_timer = SPAWN_INTERVAL
    state.diver_timer = DIVER_INTERVAL
    state.move_interval = MOVE_INTERVAL
    state.ramps = 0
    state.bullets.count = state.enemy_bullets.count = state.fish.count = state.subs.count = state.divers.count = 0


@rule
def step(state: Any, action: int, random: Any) -> tuple[float, bool]:
    spawn(state, random)
    steer(state, action)
    reward = move_bullets(state)
    move_divers(state)
    hits, by_sub = move_enemies(state, state.subs, True)
    by_bullet = move_enemy_bullets(state)
    more_hits, by_fish = move_enemies(state, state.fish, False)
    count_down(state)
    bonus, is_lost = update_air(state)
    return float(reward + hits + more_hits + bonus), by_sub or by_bullet or by_fish or is_lost


@rule
def spawn(state: Any, random: Any) -> None:
    if state.spawn_timer == 0:
        state.spawn_timer = state.spawn_interval
        direction, y = 2 * choice(random, 0, 2) - 1, 1 + choice(random, 1, 8)
        # Two enemies in a row never have opposite directions.
        if not (tables.is_opposed(state.fish, y, direction) or tables.is_opposed(state.subs, y, direction)):
            if uniform(random, 2) < SUB_PROBABILITY:
                state.subs.rows[state.subs.count, SHOT_TIMER] = ENEMY_RELOAD
                tables.enter(state.subs, y, direction, state.move_interval)
            else:
                tables.enter(state.fish, y, direction, state.move_interval)
    if state.diver_timer == 0:
        state.diver_timer = DIVER_INTERVAL
        direction, y = 2 * choice(random, 3, 2) - 1, 1 + choice(random, 4, 8)
        tables.enter(state.divers, y, direction, DIVER_MOVE_INTERVAL)


@rule
def steer(state: Any, action: int) -> None:
    if action == LEFT:
        state.x = max(0, state.x - 1)
        state.direction = -1
    elif action == RIGHT:
        state.x = min(9, state.x + 1)
        state.direction = 1
    elif action == UP:
        state.y = max(0, state.y - 1)
    elif action == DOWN:
        state.y = min(8, state.y + 1)
    elif action == FIRE and state.reload_timer == 0:
        state.reload_timer = RELOAD
        tables.append(state.bullets, state.x, state.y, state.direction)


@rule
def move_bullets(state: Any) -> int:
    """Move the player's bullets, the newest first; each is used up by one fish or submarine. The number of hits."""
    hits = 0
    for i in range(state.bullets.count - 1, -1, -1):
        state.bullets.rows[i, X] += state.bullets.rows[i, DIRECTION]
        x, y = state.bullets.rows[i, X], state.bullets.rows[i, Y]
        fish = tables.find(state.fish, x, y)
        sub = tables.find(state.subs, x, y)
        if fish >= 0:
            tables.remove(state.fish, fish)
        elif sub >= 0:
            tables.remove(state.subs, sub)
        hit = fish >= 0 or sub >= 0
        hits += hit
        if hit or not 0 <= x <= 9:
            tables.remove(state.bullets, i)
    return hits


@rule
def move_divers(state: Any) -> None:
    for i in range(state.divers.count - 1, -1, -1):
        boards = is_at_player(state, state.divers, i) and state.on_board < MAX_DIVERS
        if not boards and tables.move_if_due(state.divers, i, DIVER_MOVE_INTERVAL):
            boards = is_at_player(state, state.divers, i) and state.on_board < MAX_DIVERS
        if boards:
            state.on_board += 1
        if boards or not 0 <= state.divers.rows[i, X] <= 9:
            tables.remove(state.divers, i)


@rule
def is_at_player(state: Any, table: Any, i: int) -> bool:
    return bool(table.rows[i, X] == state.x and table.rows[i, Y] == state.y)


@rule
def move_enemy(state: Any, table: Any, i: int) -> tuple[bool, bool, bool]:
    """Move an enemy: whether it met the player, whether it is gone, and whether a bullet is the reason."""
    met = is_at_player(state, table, i)
    if not tables.move_if_due(table, i, state.move_interval):
        return met, False, False
    if not 0 <= table.rows[i, X] <= 9:
        return met, True, False
    if is_at_player(state, table, i):
        return True, False, False
    bullet = tables.find(state.bullets, table.rows[i, X], table.rows[i, Y])
    if bullet >= 0:
        tables.remove(state.bullets, bullet)
    return met, bullet >= 0, bullet >= 0


@rule
def move_enemies(state: Any, table: Any, are_subs: bool) -> tuple[int, bool]:
    """Move fish, or submarines, which shoot: how many were hit, and whether one met the player."""
    hits, terminated = 0, False
    for i in range(table.count - 1, -1, -1):
        met, gone, hit = move_enemy(state, table, i)
        terminated = terminated or met
        hits += hit
        if are_subs and table.rows[i, SHOT_TIMER] > 0:
            table.rows[i, SHOT_TIMER] -= 1
        elif are_subs:  # also as its last act
            table.rows[i, SHOT_TIMER] = ENEMY_RELOAD
            x, y, direction = table.rows[i, X], table.rows[i, Y], table.rows[i, DIRECTION]
            tables.append(state.enemy_bullets, x, y, direction)
        if gone:
            tables.remove(table, i)
    return hits, terminated


@rule
def move_enemy_bullets(state: Any) -> bool:
    terminated = False
    for i in range(state.enemy_bullets.count - 1, -1, -1):
        terminated = terminated or is_at_player(state, state.enemy_bullets, i)
        state.enemy_bullets.rows[i, X] += state.enemy_bullets.rows[i, DIRECTION]
        terminated = terminated or is_at_player(state, state.enemy_bullets, i)
        if not 0 <= state.enemy_bullets.rows[i, X] <= 9:
            tables.remove(state.enemy_bullets, i)
    return terminated


@rule
def count_down(state: Any) -> None:
    state.spawn_timer = max(0, state.spawn_timer - 1)
    state.diver_timer = max(0, state.diver_timer - 1)
    state.reload_timer = max(0, state.reload_timer - 1)


@rule
def update_air(state: Any) -> tuple[int, bool]:
    """Consume air, or surface: the reward of six divers, and whether the player is lost."""
    terminated = state.air <= 0
    if state.y > 0:
        state.air -= 1
        state.at_surface = 0
        return 0, terminated
    if state.at_surface:
        return 0, terminated
    if state.on_board == 0:
        return 0, True
    return surface(state), terminated


@rule
def surface(state: Any) -> int:
    """Take air for one diver, or for all six with a reward, which is returned. Enemies get faster."""
    bonus = 0
    if state.on_board == MAX_DIVERS:
        bonus = state.air * 10 // MAX_AIR
        state.on_board = 0
    state.on_board -= 1  # below 0 after a bonus, as in MinAtar
    state.air, state.at_surface = MAX_AIR, 1
    if state.move_interval > MIN_MOVE_INTERVAL and state.ramps % 2 == 1:
        state.move_interval -= 1
    state.spawn_interval = max(1, state.spawn_interval - 1)
    state.ramps = (state.ramps + 1) % 2
    return bonus


@rule
def draw(state: Any, picture: Any) -> None:
    picture[FRONT, state.y, state.x] = True
    picture[BACK, state.y, state.x - state.direction] = True
    for x in range(max(0, state.air) * 10 // MAX_AIR):
        picture[AIR, 9, x] = True
    for x in range(9 - min(max(0, state.on_board), MAX_DIVERS), 9):
        picture[DIVERS_ON_BOARD, 9, x] = True
    tables.draw_places(picture[BULLET], state.bullets)
    tables.draw_places(picture[ENEMY_BULLET], state.enemy_bullets)
    tables.draw_places(picture[FISH], state.fish)
    tables.draw_places(picture[ENEMY_SUB], state.subs)
    tables.draw_places(picture[DIVER], state.divers)
    tables.draw_trails(picture[TRAIL], state.fish)
    tables.draw_trails(picture[TRAIL], state.subs)
    tables.draw_trails(picture[TRAIL], state.divers)


@kernel
def step_environments(states: Any, rows: Any, inputs: Any, outputs: Any) -> None:
    step_rows(reset, step, draw, states, rows, inputs, outputs)
