"""Segments of replay: transitions written between two checkpoints."""

from typing import NamedTuple

import torch
from torch import Tensor

from valueshare.replay.transitions import Transitions, holds_frames


class Segment(NamedTuple):
    """Transitions written to replay between two checkpoints, flat over agents."""

    observation: Tensor  # [sum of row_count, ...]; without frames, which `packing` streams
    action: Tensor  # [sum of transition_count]
    reward: Tensor
    discount: Tensor
    row: Tensor
    age: Tensor  # [sum of transition_count], or [0]
    row_first: Tensor  # [P]  number of an agent's first row in here
    row_count: Tensor  # [P]
    transition_first: Tensor  # [P]
    transition_count: Tensor  # [P]


class Cursors(NamedTuple):
    """Cursors of replay at some step, [P] each."""

    rows: Tensor
    transitions: Tensor


def cursors(replay: Transitions) -> Cursors:
    """A copy of the cursors, for `added_since`."""
    return Cursors(replay.rows.clone(), replay.written.clone())


def rows_since(replay: Transitions, since: Cursors) -> tuple[Tensor, Tensor]:
    """Number of each agent's first row written since then and still there, and their count."""
    first = torch.maximum(since.rows, replay.rows - replay.observation.shape[1])
    return first, replay.rows - first


def added_since(replay: Transitions, since: Cursors) -> Segment:
    """Everything written since then that is still in the rings; of frames the cursors only."""
    length, capacity = replay.observation.shape[1], replay.action.shape[1]
    row_first, row_count = rows_since(replay, since)
    transition_first = torch.maximum(since.transitions, replay.written - capacity)
    transition_count = replay.written - transition_first
    at = _ring_index(transition_first, transition_count, capacity)
    observation = replay.observation[:0, 0]
    if not holds_frames(replay):
        observation = replay.observation[_ring_index(row_first, row_count, length)]
    action, reward, discount, row = (ring[at] for ring in (replay.action, replay.reward, replay.discount, replay.row))
    age = replay.age[at] if len(replay.frame_offsets) else replay.age.flatten()
    counts = (row_first, row_count, transition_first, transition_count)
    return Segment(observation, action, reward, discount, row, age, *counts)


def restore(replay: Transitions, segment: Segment) -> None:
    """Write a segment back where it was. Oldest segments first; the cursors are set by the caller,
    who has them from the checkpoint, and frames are restored by `packing`."""
    length, capacity = replay.observation.shape[1], replay.action.shape[1]
    at = _ring_index(segment.transition_first, segment.transition_count, capacity)
    if not holds_frames(replay):
        at_row = _ring_index(segment.row_first, segment.row_count, length)
        replay.observation[at_row] = segment.observation
    for name in ("action", "reward", "discount", "row", *(("age",) if len(replay.frame_offsets) else ())):
        getattr(replay, name)[at] = getattr(segment, name)


def _ring_index(first: Tensor, count: Tensor, length: int) -> tuple[Tensor, Tensor]:
    """(agent, slot) of the entries first, ..., first+count-1 of every agent, flat over agents."""
    agent = torch.repeat_interleave(torch.arange(len(first), device=first.device), count)
    start_of_agent = count.cumsum(0) - count
    offset = torch.arange(len(agent), device=first.device) - start_of_agent[agent]
    return agent, (first[agent] + offset) % length
