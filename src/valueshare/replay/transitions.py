"""Replay for a population: every observation is stored once, every agent has its own cursors.

Two rings an agent. *Rows* hold observations in the order in which they were seen: within an episode
the next observation of a transition is the row after its own. When an episode ends, its final
observation has a row, and the reset observation the next one; so a truncated step bootstraps from
where its own episode stopped, never from where the next one began. *Transitions* hold action,
reward, discount and the number of the row they start from.

    rows         o0  o1  o2  o3*  o0' o1' ...         * final observation: no transition starts here
    transitions  0→1 1→2 2→3      4→5     ...

Cursors count up for ever (int64) and are taken modulo the ring's length on access. Episodes that
end use a row more than they have transitions, so a ring of rows may lose a row before the ring of
transitions loses its transition: `oldest` is the first transition that still has both rows.

Everything is a tensor on the device and is updated in place without a look from the host, so that
`append` and `gather` can live inside a CUDA graph. Legend: P agents, B minibatch, C transitions,
R rows.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from valueshare.errors import InvalidInput
from valueshare.learning.algorithms import Batch


class Transitions(NamedTuple):
    """The rings and their cursors: tensors only, changed in place."""

    observation: Tensor  # [P, R, ...]  as the environment gives them, unscaled
    action: Tensor  # [P, C]  int64
    reward: Tensor  # [P, C]  float32, on the training scale
    discount: Tensor  # [P, C]  float32, 0 at termination; never a flag that forgets truncation
    row: Tensor  # [P, C]  int64, number of the row a transition starts from
    rows: Tensor  # [P]  rows written so far
    written: Tensor  # [P]  transitions written so far
    oldest: Tensor  # [P]  number of the oldest live transition


class Segment(NamedTuple):
    """What was written between two moments, flat over agents: what a checkpoint has to add."""

    observation: Tensor  # [sum of row_count, ...]
    action: Tensor  # [sum of transition_count]
    reward: Tensor
    discount: Tensor
    row: Tensor
    row_first: Tensor  # [P]  number of an agent's first row in here
    row_count: Tensor  # [P]
    transition_first: Tensor  # [P]
    transition_count: Tensor  # [P]


def default_rows(capacity: int) -> int:
    """Rows for `capacity` transitions: an eighth more, for the final observations.

    Episodes of nine steps or more keep every transition; shorter ones keep fewer, down to 56 % of
    them where every episode is a single step.
    """
    return capacity + capacity // 8 + 4


def empty(
    agents: int,
    capacity: int,
    observation_shape: tuple[int, ...],
    observation_dtype: torch.dtype = torch.float32,
    *,
    rows: int | None = None,
    device: torch.device | str = "cpu",
) -> Transitions:
    """Rings without a transition in them; `capacity` is C, `rows` is R."""
    rows = default_rows(capacity) if rows is None else rows
    if capacity < 1 or rows < 4:
        raise InvalidInput(
            f"a replay of {capacity} transitions and {rows} rows: write at least 1 and 4"
        )

    def per_agent(*shape: int, dtype: torch.dtype) -> Tensor:
        return torch.zeros(agents, *shape, dtype=dtype, device=device)

    return Transitions(
        observation=per_agent(rows, *observation_shape, dtype=observation_dtype),
        action=per_agent(capacity, dtype=torch.int64),
        reward=per_agent(capacity, dtype=torch.float32),
        discount=per_agent(capacity, dtype=torch.float32),
        row=per_agent(capacity, dtype=torch.int64),
        rows=per_agent(dtype=torch.int64),
        written=per_agent(dtype=torch.int64),
        oldest=per_agent(dtype=torch.int64),
    )


def start(replay: Transitions, observation: Tensor) -> None:
    """Write the first observation [P, ...] of new episodes, for every agent.

    An episode under way is thereby cut: its last transition keeps its own next observation and its
    discount, which is what truncation means.
    """
    _write_row(replay, replay.rows, observation)
    replay.rows.add_(1)
    _forget(replay, rounds=1)


def append(
    replay: Transitions,
    action: Tensor,
    reward: Tensor,
    discount: Tensor,
    next_observation: Tensor,
    ended: Tensor,
    observation: Tensor,
) -> None:
    """Store one step of every agent.

    `next_observation` is where the step led, the final one where the episode ended; `observation`
    is what the agent sees now, a reset observation where `ended`, else the same as the former.
    Shapes: action, reward, discount, ended [P]; observations [P, ...].
    """
    agents = _agents(replay)
    slot = replay.written % replay.action.shape[1]
    replay.action[agents, slot] = action
    replay.reward[agents, slot] = reward
    replay.discount[agents, slot] = discount
    replay.row[agents, slot] = replay.rows - 1
    replay.written.add_(1)
    _write_row(replay, replay.rows, next_observation)
    # Where no episode ended this writes the same row again: no branch, so no look from the host.
    _write_row(replay, replay.rows + ended, observation)
    replay.rows.add_(1).add_(ended)
    _forget(replay, rounds=2)


def live(replay: Transitions) -> Tensor:
    """How many transitions of each agent can be sampled, [P]."""
    return replay.written - replay.oldest


def gather(replay: Transitions, index: Tensor) -> Batch:
    """The transitions `index` [P, B], counted from each agent's oldest."""
    slot = (replay.oldest[:, None] + index) % replay.action.shape[1]  # [P, B]
    row = _pick(replay.row, slot)
    length = replay.observation.shape[1]
    return Batch(
        obs_tm1=_pick(replay.observation, row % length),
        a_tm1=_pick(replay.action, slot),
        r_t=_pick(replay.reward, slot),
        discount_t=_pick(replay.discount, slot),
        obs_t=_pick(replay.observation, (row + 1) % length),
    )


def cursors(replay: Transitions) -> tuple[Tensor, Tensor]:
    """A note of this moment for `added_since`: rows and transitions written so far."""
    return replay.rows.clone(), replay.written.clone()


def added_since(replay: Transitions, moment: tuple[Tensor, Tensor]) -> Segment:
    """Everything written since `moment` that is still in the rings."""
    length, capacity = replay.observation.shape[1], replay.action.shape[1]
    row_first = torch.maximum(moment[0], replay.rows - length)
    transition_first = torch.maximum(moment[1], replay.written - capacity)
    row_count, transition_count = replay.rows - row_first, replay.written - transition_first
    at_row = _ring_index(row_first, row_count, length)
    at = _ring_index(transition_first, transition_count, capacity)
    return Segment(
        observation=replay.observation[at_row],
        action=replay.action[at],
        reward=replay.reward[at],
        discount=replay.discount[at],
        row=replay.row[at],
        row_first=row_first,
        row_count=row_count,
        transition_first=transition_first,
        transition_count=transition_count,
    )


def restore(replay: Transitions, segment: Segment) -> None:
    """Write a segment back where it was. Oldest segments first; the cursors are set by the caller,
    who has them from the checkpoint."""
    length, capacity = replay.observation.shape[1], replay.action.shape[1]
    at_row = _ring_index(segment.row_first, segment.row_count, length)
    at = _ring_index(segment.transition_first, segment.transition_count, capacity)
    replay.observation[at_row] = segment.observation
    replay.action[at] = segment.action
    replay.reward[at] = segment.reward
    replay.discount[at] = segment.discount
    replay.row[at] = segment.row


def _agents(replay: Transitions) -> Tensor:
    return torch.arange(replay.written.shape[0], device=replay.written.device)


def _pick(ring: Tensor, slot: Tensor) -> Tensor:
    """Entries of each agent's ring: as one axis, whose whole rows are copied several times faster
    than by a pair of indices. Shapes: ring [P, L, ...], slot [P, B] -> [P, B, ...]."""
    agents = torch.arange(ring.shape[0], device=ring.device)[:, None]
    flat = (agents * ring.shape[1] + slot).flatten()
    return ring.flatten(0, 1).index_select(0, flat).reshape(*slot.shape, *ring.shape[2:])


def _write_row(replay: Transitions, number: Tensor, observation: Tensor) -> None:
    replay.observation[_agents(replay), number % replay.observation.shape[1]] = observation


def _forget(replay: Transitions, rounds: int) -> None:
    """Move `oldest` past transitions that lost their slot or a row.

    A row that is overwritten takes at most the one transition that starts from it (the one that
    leads to it went with the row before), so there are at most as many rounds as rows were written.
    """
    agents, capacity = _agents(replay), replay.action.shape[1]
    replay.oldest.clamp_(min=replay.written - capacity)
    first_row = replay.rows - replay.observation.shape[1]
    for _ in range(rounds):
        lost = replay.row[agents, replay.oldest % capacity] < first_row
        replay.oldest.add_(lost & (replay.oldest < replay.written))


def _ring_index(first: Tensor, count: Tensor, length: int) -> tuple[Tensor, Tensor]:
    """(agent, slot) of the entries first, ..., first+count-1 of every agent, flat over agents."""
    agent = torch.repeat_interleave(torch.arange(len(first), device=first.device), count)
    start_of_agent = count.cumsum(0) - count
    offset = torch.arange(len(agent), device=first.device) - start_of_agent[agent]
    return agent, (first[agent] + offset) % length
