"""Q-learning, Sarsa and Expected Sarsa with an implicit baseline, compiled.

Z(s, ·) are the residuals and Q(s, ·) = Z(s, ·) + (k/n) sum Z(s, ·) the action-values (Section 4.2). Adding the same
baseline to all actions moves no argmax, so acting reads Z alone.

A lane is one run. Lanes are independent, but a thread steps `LANES` of them in turn: while one waits for a load, the
processor works on the next. That alone doubles the speed. Everything is indexed as z[lane, state, action]: a view of
one lane's table would count references at each step.
"""

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from valueshare import splitmix
from valueshare.splitmix import LOW_HALF, S32, bits, mix, randint, source_type, uniform
from valueshare.tabular import randomness, rules
from valueshare.tabular.randomness import ACTIONS, STARTS, TRANSITIONS
from valueshare.tabular.rules import EXPECTED_SARSA, SARSA

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Length = tuple[int, ...] | NDArray[np.bool_]  # its length alone matters

LANES = 16
RUNNING = -1  # diverged_at of a run that has not
UNDECIDED = -1
TOO_LARGE = 1e100  # a TD error past this will overflow; its square still does not

# Compiled into `learn` from files that Numba's cache does not check.
SOURCES = np.zeros(1, source_type(splitmix.__file__, randomness.__file__, rules.__file__))


class Table(NamedTuple):
    """An MDP as the kernels read it: S states, n actions, M successors, K start states."""

    state: Ints  # [S, n, M]
    cumulative: Floats  # [S, n, M] probability of this successor or one before it
    reward: Floats  # [S, n, M]
    terminal: NDArray[np.bool_]  # [S]
    start_state: Ints  # [K]
    start_cumulative: Floats  # [K]
    visitable: Ints  # states over which values and norms are averaged
    optimal: Floats  # [S] v*
    discount: float


class Runs(NamedTuple):
    """The settings in which the R runs of a sweep differ."""

    key: NDArray[np.uint64]  # [R]
    k: Floats  # [R]
    step_size: Floats  # [R]
    sources: NDArray[Any] = SOURCES


class Rule(NamedTuple):
    """The learning rule that the runs of a sweep share."""

    algorithm: int
    epsilon: float
    step_size_power: float  # step size / visits^power; 0 is a constant step size


class Measurements(NamedTuple):
    """Metrics of R runs at T timesteps; rows after a run diverged stay as they were."""

    diverged_at: Ints  # [R] step with a TD error past TOO_LARGE, or RUNNING
    episodes: Ints  # [R, T] completed so far
    return_sum: Floats  # [R, T] undiscounted returns of those, summed
    reward_sum: Floats  # [R, T] all rewards so far
    value_error: Floats  # [R, T] mean over states of max_a Q - v*
    value_rmse: Floats  # [R, T] its root mean square
    norm_q: Floats  # [R, T] mean over states of |q(s)|
    norm_u: Floats  # [R, T] of |u(q(s), b)| with the implicit baseline b
    norm_z: Floats  # [R, T] of |z(s)|


@njit(inline="always")
def choose(z: Floats, i: int, s: int, epsilon: float, draw: np.uint64, actions: Length) -> tuple[int, float]:
    """An epsilon-greedy action of lane i in state s, ties broken at random; and sum Z(s, ·).

    One half of the draw decides whether to explore, the other picks among all actions or the best ones. Without
    branches but for ties, which end with the first visits: the processor cannot predict which action is best.
    """
    best = total = z[i, s, 0]
    action, ties = 0, 1
    for a in range(1, len(actions)):
        value = z[i, s, a]
        total += value
        ties = 1 if value > best else ties + (value == best)
        action = a if value > best else action
        best = value if value > best else best
    pick = draw & LOW_HALF
    if ties > 1:
        skip = randint(pick, ties)
        for a in range(len(actions)):
            if z[i, s, a] == best:
                if skip == 0:
                    action = a
                    break
                skip -= 1
    explore = np.float64(draw >> S32) < epsilon * 4294967296.0
    return randint(pick, len(actions)) if explore else action, total


@njit(inline="always")
def best_and_total(z: Floats, i: int, s: int, actions: Length) -> tuple[float, float]:
    best = total = z[i, s, 0]
    for a in range(1, len(actions)):
        best = z[i, s, a] if z[i, s, a] > best else best
        total += z[i, s, a]
    return best, total


@njit(inline="always")
def start_state(table: Table, key: np.uint64, step: int) -> int:
    i = 0
    if len(table.start_state) > 1:
        point = uniform(key, step)
        while i < len(table.start_state) - 1 and point >= table.start_cumulative[i]:
            i += 1
    return int(table.start_state[i])


@njit(inline="always")
def record_metrics(
    table: Table, z: Floats, i: int, k: float, run: int, row: int, out: Measurements, actions: Length
) -> None:
    """Errors and norms of one run's values, averaged over the states it can visit."""
    n = len(actions)
    bias = square = norm_q = norm_u = norm_z = 0.0
    for s in table.visitable:
        best, total = best_and_total(z, i, s, actions)
        baseline = k / n * total
        q2 = z2 = 0.0
        for a in range(n):
            z2 += z[i, s, a] ** 2
            q2 += (z[i, s, a] + baseline) ** 2
        error = best + baseline - table.optimal[s]
        bias += error
        square += error**2
        norm_q += np.sqrt(q2)
        norm_u += np.sqrt(z2 + baseline**2)
        norm_z += np.sqrt(z2)
    states = len(table.visitable)
    out.value_error[run, row] = bias / states
    out.value_rmse[run, row] = np.sqrt(square / states)
    out.norm_q[run, row] = norm_q / states
    out.norm_u[run, row] = norm_u / states
    out.norm_z[run, row] = norm_z / states


@njit(nogil=True, cache=True, error_model="numpy")
def learn(
    table: Table,
    runs: Runs,
    rule: Rule,
    record_at: Ints,
    first: int,
    last: int,
    actions: Length,
    successors: tuple[int, ...],
    residuals: Floats,
    out: Measurements,
) -> None:
    """Learn runs `first` to `last` - 1, and write their measurements at each of `record_at`.

    `actions` and `successors` matter by their length: a tuple's is known when the kernel is compiled, so the loops over
    them unroll; an array's is not, so one kernel serves any number of actions. `residuals` [LANES, S, n] is the working
    memory; it holds the final Z of the last lanes.
    """
    n, lanes, z = len(actions), residuals.shape[0], residuals
    # Read once: inside the loop, each access to a tuple of arrays would count references.
    next_state, cumulative, reward_of = table.state, table.cumulative, table.reward
    terminal, discount = table.terminal, table.discount
    k_of, step_size_of, diverged_at = runs.k, runs.step_size, out.diverged_at
    algorithm, epsilon, power = rule.algorithm, rule.epsilon, rule.step_size_power
    visits = np.zeros(z.shape if power != 0.0 else (1, 1, 1))
    state = np.zeros(lanes, np.int64)
    next_action = np.zeros(lanes, np.int64)  # Sarsa's next action; UNDECIDED: choose it now
    episode_return = np.zeros(lanes)
    episodes = np.zeros(lanes, np.int64)
    return_sum = np.zeros(lanes)
    reward_sum = np.zeros(lanes)
    streams = np.zeros((lanes, 3), np.uint64)

    for lowest in range(first, last, lanes):
        active = min(lanes, last - lowest)
        z[:] = 0.0
        visits[:] = 0.0
        for i in range(active):
            key = runs.key[lowest + i]
            streams[i, 0], streams[i, 1] = mix(key ^ ACTIONS), mix(key ^ TRANSITIONS)
            streams[i, 2] = mix(key ^ STARTS)
            state[i] = start_state(table, streams[i, 2], 0)
            next_action[i] = UNDECIDED
            episodes[i] = 0
            episode_return[i] = return_sum[i] = reward_sum[i] = 0.0

        step = 0
        for row in range(len(record_at)):
            while step < record_at[row]:
                step += 1
                for i in range(active):
                    run = lowest + i
                    if diverged_at[run] != RUNNING:
                        continue
                    s = state[i]
                    share = k_of[run] / n
                    a, total = choose(z, i, s, epsilon, bits(streams[i, 0], step), actions)
                    if algorithm == SARSA and next_action[i] != UNDECIDED:
                        a = next_action[i]

                    point, j = uniform(streams[i, 1], step), 0
                    for m in range(len(successors) - 1):
                        j += point >= cumulative[s, a, m]
                    s2, reward = next_state[s, a, j], reward_of[s, a, j]
                    ended = terminal[s2]

                    value, total2 = best_and_total(z, i, s2, actions)
                    if algorithm == SARSA:
                        draw = bits(streams[i, 0], step + 1)
                        a2, _ = choose(z, i, s2, epsilon, draw, actions)
                        next_action[i] = UNDECIDED if ended else a2
                        value = z[i, s2, a2]
                    elif algorithm == EXPECTED_SARSA:
                        value = (1.0 - epsilon) * value + epsilon * total2 / n
                    bootstrap = 0.0 if ended else discount * (value + share * total2)
                    error = reward + bootstrap - (z[i, s, a] + share * total)
                    if not abs(error) < TOO_LARGE:
                        diverged_at[run] = step
                        continue

                    size = step_size_of[run]
                    if power != 0.0:
                        visits[i, s, a] += 1.0
                        size /= visits[i, s, a] ** power
                    for b in range(n):
                        z[i, s, b] += size * error * share  # Equation 9
                    z[i, s, a] += size * error  # and the rest of Equation 8

                    reward_sum[i] += reward
                    episode_return[i] += reward
                    if ended:
                        episodes[i] += 1
                        return_sum[i] += episode_return[i]
                        episode_return[i] = 0.0
                        s2 = start_state(table, streams[i, 2], step)
                    state[i] = s2
            for i in range(active):
                run = lowest + i
                if diverged_at[run] == RUNNING:
                    out.episodes[run, row] = episodes[i]
                    out.return_sum[run, row] = return_sum[i]
                    out.reward_sum[run, row] = reward_sum[i]
                    record_metrics(table, z, i, k_of[run], run, row, out, actions)
