"""Checks of a tabular sweep's arguments; nothing heavy is imported here."""

from collections.abc import Sequence
from typing import Any

from valueshare.errors import InvalidInput
from valueshare.expansion import condition_number
from valueshare.host_memory import check_free_memory
from valueshare.setting import as_count, refuse_repeated
from valueshare.text import suggestion

Q_LEARNING, SARSA, EXPECTED_SARSA = 0, 1, 2  # as the kernels tell them apart
ALGORITHMS = {"q-learning": Q_LEARNING, "sarsa": SARSA, "expected-sarsa": EXPECTED_SARSA}
ROW_BYTES = 400  # of a sweep's results, while its table is made
TABLES = 3.2  # [S, A, S] of 64 bits at once: transitions, rewards, and a copy while they are checked; 3.03 measured


def check_learners(
    algorithm: str, ks: Sequence[float], step_sizes: Sequence[float], steps: int, epsilon: float, step_size_power: float
) -> None:
    """Refuse an unknown algorithm, numbers out of range, and lists with duplicates."""
    if algorithm not in ALGORITHMS:
        hint = suggestion(algorithm, list(ALGORITHMS), 1) or f"write one of {', '.join(ALGORITHMS)}"
        raise InvalidInput(f"there is no tabular algorithm {algorithm!r}: {hint}")
    check_once("k", ks)
    check_once("step_size", step_sizes)
    for k in ks:
        condition_number(k)  # refuses an invalid k
    for step_size in step_sizes:
        if not 0.0 < step_size <= 1.0:
            raise InvalidInput(f"`step_size = {step_size:g}`: write a number above 0 and up to 1")
    as_count("steps", steps)
    if not 0.0 <= epsilon <= 1.0:
        raise InvalidInput(f"`epsilon = {epsilon:g}`: a probability lies in [0, 1]")
    if not 0.0 <= step_size_power <= 1.0:
        raise InvalidInput(f"`step_size_power = {step_size_power:g}`: it lies in [0, 1]")


def check_once(name: str, values: Sequence[Any]) -> None:
    """Refuse a list that is empty or holds a value twice."""
    if not values:
        raise InvalidInput(f"`{name}` is empty: write at least one value")
    refuse_repeated(name, values)


def check_rows(rows: int, advice: str = "take fewer seeds or step sizes") -> None:
    """Refuse results that do not fit into memory, before anything of them is made."""
    check_free_memory(f"{rows:,} rows of results need", rows * ROW_BYTES, advice)


def check_tables(states: int, actions: int, copies: int) -> None:
    """Refuse an MDP whose tables do not fit into memory, before anything of them is made."""
    what = f"`action_copies = {copies}`: tables of {states:,} states and {actions * copies:,} actions need"
    check_free_memory(what, int(TABLES * states * actions * copies * states * 8), "take fewer copies")
