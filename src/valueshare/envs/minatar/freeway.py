"""Freeway: a chicken crosses a road of eight lanes, each with a car.

The top row is a reward of 1. Then the chicken is back at the bottom and all cars get new speeds and directions. A car
that meets the chicken sends it back too. The chicken moves at most every third step. Only the limit of steps ends an
episode.
"""

from typing import Any

import numpy as np

from valueshare.envs.minatar import DOWN, UP
from valueshare.envs.minatar.rows import choice, kernel, record, rule, step_rows

CHICKEN, CAR = range(2)
FIRST_TRAIL = 2  # the trail of speed 1; the others follow
CARS, SPEEDS = 8, 5
COLUMN = 4  # where the chicken is
REST = 3  # steps between two moves of the chicken

STATE = record(
    chicken=np.int8,
    chicken_timer=np.int8,
    car=(np.int8, (CARS,)),  # column of the car in row i + 1
    timer=(np.int8, (CARS,)),
    interval=(np.int8, (CARS,)),  # steps between two moves
    direction=(np.int8, (CARS,)),
)


@rule
def reset(state: Any, random: Any) -> None:
    state.chicken, state.chicken_timer = 9, REST
    state.car[:] = 0
    change_speeds(state, random)


@rule
def change_speeds(state: Any, random: Any) -> None:
    for i in range(CARS):
        state.interval[i] = state.timer[i] = 1 + choice(random, 2 * i, SPEEDS)
        state.direction[i] = 2 * choice(random, 2 * i + 1, 2) - 1


@rule
def step(state: Any, action: int, random: Any) -> tuple[float, bool]:
    if action in (UP, DOWN) and state.chicken_timer == 0:
        state.chicken = min(9, state.chicken + 1) if action == DOWN else state.chicken - 1
        state.chicken_timer = REST
    reward = 0.0
    if state.chicken == 0:
        reward = 1.0
        state.chicken = 9
        change_speeds(state, random)
    for i in range(CARS):
        hit = state.car[i] == COLUMN
        if state.timer[i] > 0:
            state.timer[i] -= 1
        else:
            state.timer[i] = state.interval[i]
            state.car[i] = (state.car[i] + state.direction[i] + 10) % 10
            hit = hit or state.car[i] == COLUMN
        if hit and state.chicken == i + 1:
            state.chicken = 9
    state.chicken_timer = max(0, state.chicken_timer - 1)
    return reward, False


@rule
def draw(state: Any, picture: Any) -> None:
    picture[CHICKEN, state.chicken, COLUMN] = True
    for i in range(CARS):
        picture[CAR, i + 1, state.car[i]] = True
        behind = (state.car[i] - state.direction[i] + 10) % 10
        picture[FIRST_TRAIL + state.interval[i] - 1, i + 1, behind] = True


@kernel
def step_environments(states: Any, rows: Any, inputs: Any, outputs: Any) -> None:
    step_rows(reset, step, draw, states, rows, inputs, outputs)
