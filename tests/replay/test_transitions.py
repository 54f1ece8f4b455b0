"""The rings against a naive buffer that stores whole transitions, two observations each."""

import random
from typing import NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from valueshare.errors import InvalidInput
from valueshare.replay import segments, transitions
from valueshare.replay.transitions import Batch, Transitions

GAMMA = 0.9


class Whole(NamedTuple):
    observation: float
    action: int
    reward: float
    discount: float
    next_observation: float


class Naive:
    """One agent: a Python list of whole transitions, and a count of the rows each stands for."""

    def __init__(self, capacity: int, rows: int) -> None:
        self.capacity, self.row_capacity = capacity, rows
        self.stored: list[tuple[int, Whole]] = []  # (number of its first row, transition)
        self.rows = 0

    def start(self) -> None:
        self.rows += 1
        self.forget()

    def append(self, transition: Whole, ended: bool) -> None:
        self.stored.append((self.rows - 1, transition))
        self.rows += 2 if ended else 1
        self.forget()

    def forget(self) -> None:
        oldest_row = self.rows - self.row_capacity
        self.stored = [(row, t) for row, t in self.stored[-self.capacity :] if row >= oldest_row]


# A tick is, for every agent: continues, terminates or truncates; sometimes all start new episodes.
PLAIN, TERMINATED, TRUNCATED = 0, 1, 2
AGENTS = 3
ticks = st.lists(
    st.tuples(st.tuples(*[st.sampled_from([0, 0, 1, 2])] * AGENTS), st.integers(0, 9)),
    min_size=1,
    max_size=60,
)


def play(history: list[tuple[tuple[int, ...], int]], capacity: int, rows: int) -> tuple[Transitions, list[Naive]]:
    """The same history in both; every observation, of every agent, is a number of its own."""
    replay = transitions.empty(AGENTS, capacity, (), rows=rows)
    naive = [Naive(capacity, rows) for _ in range(AGENTS)]
    fresh = iter(range(10**6))

    def observations() -> list[float]:
        return [float(next(fresh)) for _ in range(AGENTS)]

    current = observations()
    transitions.begin_episodes(replay, torch.tensor(current))
    for buffer in naive:
        buffer.start()
    for t, (ends, new_phase) in enumerate(history):
        following, resets = observations(), observations()
        seen = [r if e else f for f, r, e in zip(following, resets, ends, strict=True)]
        actions = [t * AGENTS + p for p in range(AGENTS)]
        discounts = [0.0 if e == TERMINATED else GAMMA for e in ends]
        transitions.add(
            replay,
            torch.tensor(actions),
            torch.tensor(actions) / 2,
            torch.tensor(discounts),
            torch.tensor(following),
            torch.tensor(ends) > 0,
            torch.tensor(seen),
        )
        for p, buffer in enumerate(naive):
            whole = Whole(current[p], actions[p], actions[p] / 2, discounts[p], following[p])
            buffer.append(whole, ended=ends[p] > 0)
        current = seen
        if new_phase == 0:
            current = observations()
            transitions.begin_episodes(replay, torch.tensor(current))
            for buffer in naive:
                buffer.start()
    return replay, naive


def contents(replay: Transitions) -> list[list[Whole]]:
    """Every live transition of every agent, oldest first."""
    live = transitions.size(replay)
    batch = transitions.gather(replay, torch.arange(int(live.max())).expand(AGENTS, -1))
    return [wholes(batch, p)[: int(live[p])] for p in range(AGENTS)]


def wholes(batch: Batch, agent: int) -> list[Whole]:
    columns = (
        batch.obs_tm1,
        batch.a_tm1,
        batch.r_t,
        batch.discount_t,
        batch.obs_t,
    )
    return [
        Whole(o, int(a), r, round(d, 6), n) for o, a, r, d, n in zip(*(c[agent].tolist() for c in columns), strict=True)
    ]


@settings(max_examples=200, deadline=None)
@given(history=ticks, capacity=st.integers(1, 20), spare=st.integers(0, 30))
def test_live_transitions_are_those_of_a_buffer_that_stores_them_whole(
    history: list[tuple[tuple[int, ...], int]], capacity: int, spare: int
) -> None:
    replay, naive = play(history, capacity, rows=max(4, capacity + spare))
    assert contents(replay) == [[t for _, t in buffer.stored] for buffer in naive]


@settings(max_examples=50, deadline=None)
@given(history=ticks, cut=st.integers(0, 60), capacity=st.integers(1, 20))
def test_segments_restore_every_live_transition(
    history: list[tuple[tuple[int, ...], int]], cut: int, capacity: int
) -> None:
    rows = max(4, capacity + 3)
    before, _ = play(history[:cut], capacity, rows)
    replay, _ = play(history, capacity, rows)
    zero = torch.zeros(AGENTS, dtype=torch.int64)
    first = segments.added_since(before, segments.Cursors(zero, zero))
    second = segments.added_since(replay, segments.cursors(before))

    again = transitions.empty(AGENTS, capacity, (), rows=rows)
    for segment in (first, second):
        segments.restore(again, segment)
    for cursor in ("rows", "written", "oldest"):
        getattr(again, cursor).copy_(getattr(replay, cursor))
    assert contents(again) == contents(replay)


def test_a_truncated_step_leads_to_its_own_final_observation() -> None:
    # One agent: 10 -> 11, truncated there; a new episode from 20 -> 21.
    replay = transitions.empty(1, 8, ())
    value = torch.tensor
    transitions.begin_episodes(replay, value([10.0]))
    for action, following, ended, seen in ((0, 11.0, True, 20.0), (1, 21.0, False, 21.0)):
        transitions.add(
            replay,
            value([action]),
            value([1.0]),
            value([GAMMA]),
            value([following]),
            value([ended]),
            value([seen]),
        )
    batch = transitions.gather(replay, value([[0, 1]]))
    assert batch.obs_tm1.tolist() == [[10.0, 20.0]]
    assert batch.obs_t.tolist() == [[11.0, 21.0]]
    assert batch.discount_t.tolist() == [[pytest.approx(GAMMA), pytest.approx(GAMMA)]]


def test_long_episodes_lose_no_transition_to_the_ring_of_rows() -> None:
    # Episodes of 10 steps, C = 40: 44 rows at most are in use, default_rows(40) = 49.
    generator = random.Random(0)
    offsets = [generator.randrange(10) for _ in range(AGENTS)]
    history = [(tuple(int((t + o) % 10 == 0) for o in offsets), 1) for t in range(500)]
    replay, _ = play(history, 40, transitions.default_rows(40))
    assert transitions.size(replay).tolist() == [40] * AGENTS


def test_a_ring_without_room_is_refused() -> None:
    with pytest.raises(InvalidInput, match="0 transitions"):
        transitions.empty(1, 0, (4,))
