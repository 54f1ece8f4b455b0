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
    bullet_count=np.int8,
    enemy_bullet_count=np.int8,
    fish_count=np.int8,
    sub_count=np.int8,
    diver_count=np.int8,
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
    state.bullet_count = state.enemy_bullet_count = state.fish_count = state.sub_count = state.diver_count = 0


@rule
def step(state: Any, action: int, random: Any) -> tuple[float, bool]:
    spawn(state, random)
    steer(state, action)
    reward = move_bullets(state)
    move_divers(state)
    state.sub_count, hits, by_sub = move_enemies(state, state.subs, state.sub_count, True)
    by_bullet = move_enemy_bullets(state)
    state.fish_count, more_hits, by_fish = move_enemies(state, state.fish, state.fish_count, False)
    count_down(state)
    bonus, is_lost = update_air(state)
    return float(reward + hits + more_hits + bonus), by_sub or by_bullet or by_fish or is_lost


@rule
def spawn(state: Any, random: Any) -> None:
    if state.spawn_timer == 0:
        state.spawn_timer = state.spawn_interval
        direction, y = 2 * choice(random, 0, 2) - 1, 1 + choice(random, 1, 8)
        # Two enemies in a row never have opposite directions.
        if not (tables.is_opposed(state.fish, state.fish_count, y, direction)
                or tables.is_opposed(state.subs, state.sub_count, y, direction)):  # fmt: skip
            if uniform(random, 2) < SUB_PROBABILITY:
                state.subs[state.sub_count, SHOT_TIMER] = ENEMY_RELOAD
                state.sub_count = tables.enter(state.subs, state.sub_count, y, direction, state.move_interval)
            else:
                state.fish_count = tables.enter(state.fish, state.fish_count, y, direction, state.move_interval)
    if state.diver_timer == 0:
        state.diver_timer = DIVER_INTERVAL
        direction, y = 2 * choice(random, 3, 2) - 1, 1 + choice(random, 4, 8)
        state.diver_count = tables.enter(state.divers, state.diver_count, y, direction, DIVER_MOVE_INTERVAL)


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
        state.bullet_count = tables.shoot(state.bullets, state.bullet_count, state.x, state.y, state.direction)


@rule
def move_bullets(state: Any) -> int:
    """Move the player's bullets, the newest first; each is used up by one fish or submarine. The number of hits."""
    hits = 0
    for i in range(state.bullet_count - 1, -1, -1):
        state.bullets[i, X] += state.bullets[i, DIRECTION]
        x, y = state.bullets[i, X], state.bullets[i, Y]
        fish = tables.find(state.fish, state.fish_count, x, y)
        sub = tables.find(state.subs, state.sub_count, x, y)
        if fish >= 0:
            state.fish_count = tables.remove(state.fish, state.fish_count, fish)
        elif sub >= 0:
            state.sub_count = tables.remove(state.subs, state.sub_count, sub)
        hit = fish >= 0 or sub >= 0
        hits += hit
        if hit or not 0 <= x <= 9:
            state.bullet_count = tables.remove(state.bullets, state.bullet_count, i)
    return hits


@rule
def move_divers(state: Any) -> None:
    for i in range(state.diver_count - 1, -1, -1):
        boards = is_at_player(state, state.divers, i) and state.on_board < MAX_DIVERS
        if not boards and tables.move_if_due(state.divers, i, DIVER_MOVE_INTERVAL):
            boards = is_at_player(state, state.divers, i) and state.on_board < MAX_DIVERS
        if boards:
            state.on_board += 1
        if boards or not 0 <= state.divers[i, X] <= 9:
            state.diver_count = tables.remove(state.divers, state.diver_count, i)


@rule
def is_at_player(state: Any, table: Any, i: int) -> bool:
    return bool(table[i, X] == state.x and table[i, Y] == state.y)


@rule
def move_enemy(state: Any, table: Any, i: int) -> tuple[bool, bool, bool]:
    """Move an enemy: whether it met the player, whether it is gone, and whether a bullet is the reason."""
    met = is_at_player(state, table, i)
    if not tables.move_if_due(table, i, state.move_interval):
        return met, False, False
    if not 0 <= table[i, X] <= 9:
        return met, True, False
    if is_at_player(state, table, i):
        return True, False, False
    bullet = tables.find(state.bullets, state.bullet_count, table[i, X], table[i, Y])
    if bullet >= 0:
        state.bullet_count = tables.remove(state.bullets, state.bullet_count, bullet)
    return met, bullet >= 0, bullet >= 0


@rule
def move_enemies(state: Any, table: Any, count: int, are_subs: bool) -> tuple[int, int, bool]:
    """Move fish, or submarines, which shoot: how many are left, how many were hit, and whether one met the player."""
    hits, terminated = 0, False
    for i in range(count - 1, -1, -1):
        met, gone, hit = move_enemy(state, table, i)
        terminated = terminated or met
        hits += hit
        if are_subs and table[i, SHOT_TIMER] > 0:
            table[i, SHOT_TIMER] -= 1
        elif are_subs:  # also as its last act
            table[i, SHOT_TIMER] = ENEMY_RELOAD
            x, y, direction = table[i, X], table[i, Y], table[i, DIRECTION]
            state.enemy_bullet_count = tables.shoot(state.enemy_bullets, state.enemy_bullet_count, x, y, direction)
        if gone:
            count = tables.remove(table, count, i)
    return count, hits, terminated


@rule
def move_enemy_bullets(state: Any) -> bool:
    terminated = False
    for i in range(state.enemy_bullet_count - 1, -1, -1):
        terminated = terminated or is_at_player(state, state.enemy_bullets, i)
        state.enemy_bullets[i, X] += state.enemy_bullets[i, DIRECTION]
        terminated = terminated or is_at_player(state, state.enemy_bullets, i)
        if not 0 <= state.enemy_bullets[i, X] <= 9:
            state.enemy_bullet_count = tables.remove(state.enemy_bullets, state.enemy_bullet_count, i)
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
    tables.draw_places(picture[BULLET], state.bullets, state.bullet_count)
    tables.draw_places(picture[ENEMY_BULLET], state.enemy_bullets, state.enemy_bullet_count)
    tables.draw_places(picture[FISH], state.fish, state.fish_count)
    tables.draw_places(picture[ENEMY_SUB], state.subs, state.sub_count)
    tables.draw_places(picture[DIVER], state.divers, state.diver_count)
    tables.draw_trails(picture[TRAIL], state.fish, state.fish_count)
    tables.draw_trails(picture[TRAIL], state.subs, state.sub_count)
    tables.draw_trails(picture[TRAIL], state.divers, state.diver_count)


@kernel
def step_environments(states: Any, rows: Any, inputs: Any, outputs: Any) -> None:
    step_rows(reset, step, draw, states, rows, inputs, outputs)
