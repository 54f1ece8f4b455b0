"""Tables of what moves in Seaquest: one row per fish, submarine, diver or bullet, the oldest first."""

from typing import Any

import numpy as np

from valueshare.envs.minatar.rows import rule

X, Y, DIRECTION, MOVE_TIMER, SHOT_TIMER = range(5)  # columns
# Rows are enough: at most one enemy per step comes, and is gone after 30, when the intervals are 1 and 2. Tables have
# the columns of submarines, because each type would be compiled anew.
TABLE = (np.int8, (40, 5))


@rule
def is_opposed(table: Any, count: int, y: int, direction: int) -> bool:
    opposed = False
    for i in range(count):
        opposed = opposed or (table[i, Y] == y and table[i, DIRECTION] != direction)
    return opposed


@rule
def enter(table: Any, count: int, y: int, direction: int, interval: int) -> int:
    """Append one that comes in from the side; the new number of rows."""
    table[count, X] = 0 if direction > 0 else 9
    table[count, Y] = y
    table[count, DIRECTION] = direction
    table[count, MOVE_TIMER] = interval
    return count + 1


@rule
def shoot(table: Any, count: int, x: int, y: int, direction: int) -> int:
    """Append a bullet; the new number of rows."""
    table[count, X] = x
    table[count, Y] = y
    table[count, DIRECTION] = direction
    return count + 1


@rule
def remove(table: Any, count: int, i: int) -> int:
    """Take a row away and keep the order of the others; the new number of rows."""
    for j in range(i, count - 1):
        for column in range(table.shape[1]):
            table[j, column] = table[j + 1, column]
    return count - 1


@rule
def find(table: Any, count: int, x: int, y: int) -> int:
    """The first row at this place, or -1."""
    for i in range(count):
        if table[i, X] == x and table[i, Y] == y:
            return i
    return -1


@rule
def move_if_due(table: Any, i: int, interval: int) -> bool:
    """Count down to the next move, or move; whether it moved."""
    if table[i, MOVE_TIMER] > 0:
        table[i, MOVE_TIMER] -= 1
        return False
    table[i, MOVE_TIMER] = interval
    table[i, X] += table[i, DIRECTION]
    return True


@rule
def draw_places(channel: Any, table: Any, count: int) -> None:
    for i in range(count):
        channel[table[i, Y], table[i, X]] = True


@rule
def draw_trails(channel: Any, table: Any, count: int) -> None:
    for i in range(count):
        behind = table[i, X] - table[i, DIRECTION]
        if 0 <= behind <= 9:
            channel[table[i, Y], behind] = True
