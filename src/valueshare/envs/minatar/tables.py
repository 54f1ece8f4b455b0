"""Tables of what moves in Seaquest: one row per fish, submarine, diver or bullet, the oldest first."""

from typing import Any

import numpy as np

from valueshare.envs.minatar.rows import rule

X, Y, DIRECTION, MOVE_TIMER, SHOT_TIMER = range(5)  # columns
# Rows are enough: at most one enemy per step comes, and is gone after 30, when the intervals are 1 and 2. Tables have
# the columns of submarines, because each type would be compiled anew.
TABLE = np.dtype([("count", np.int8), ("rows", np.int8, (40, 5))])


@rule
def is_opposed(table: Any, y: int, direction: int) -> bool:
    opposed = False
    for i in range(table.count):
        opposed = opposed or (table.rows[i, Y] == y and table.rows[i, DIRECTION] != direction)
    return opposed


@rule
def append(table: Any, x: int, y: int, direction: int) -> None:
    table.rows[table.count, X] = x
    table.rows[table.count, Y] = y
    table.rows[table.count, DIRECTION] = direction
    table.count += 1


@rule
def enter(table: Any, y: int, direction: int, interval: int) -> None:
    """Append one that comes in from the side."""
    table.rows[table.count, MOVE_TIMER] = interval
    append(table, 0 if direction > 0 else 9, y, direction)


@rule
def remove(table: Any, i: int) -> None:
    """Take a row away and keep the order of the others."""
    table.count -= 1
    for j in range(i, table.count):
        for column in range(table.rows.shape[1]):
            table.rows[j, column] = table.rows[j + 1, column]


@rule
def find(table: Any, x: int, y: int) -> int:
    """The first row at this place, or -1."""
    for i in range(table.count):
        if table.rows[i, X] == x and table.rows[i, Y] == y:
            return i
    return -1


@rule
def move_if_due(table: Any, i: int, interval: int) -> bool:
    """Count down to the next move, or move; whether it moved."""
    if table.rows[i, MOVE_TIMER] > 0:
        table.rows[i, MOVE_TIMER] -= 1
        return False
    table.rows[i, MOVE_TIMER] = interval
    table.rows[i, X] += table.rows[i, DIRECTION]
    return True


@rule
def draw_places(channel: Any, table: Any) -> None:
    for i in range(table.count):
        channel[table.rows[i, Y], table.rows[i, X]] = True


@rule
def draw_trails(channel: Any, table: Any) -> None:
    for i in range(table.count):
        behind = table.rows[i, X] - table.rows[i, DIRECTION]
        if 0 <= behind <= 9:
            channel[table.rows[i, Y], behind] = True
