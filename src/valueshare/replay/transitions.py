"""Replay for a population: every observation is stored once, every agent has its own cursors.

Two rings per agent. *Rows* are observation slots, filled in the order of the steps: within an episode the next
observation of a transition is the row after its own. When an episode ends, its final observation has a row, and the
reset observation the next one; so a truncated step bootstraps from where its own episode stopped, never from where the
next one began. *Transitions* hold action, reward, discount and the number of the row they start from.

    rows         o0  o1  o2  o3*  o0' o1' ...         * final observation: no transition starts here
    transitions  0→1 1→2 2→3      4→5     ...

Where the network sees stacks of S frames, a row is one frame, and a transition knows its *age*: the
steps since its episode's first row, S-1 at most. The stack of row r is made when it is sampled, of
the rows r - min(age, j), j = S-1, ..., 0: before the episode's first row there is that row again.

Cursors count up for ever (int64) and are taken modulo the ring's length on access. Episodes that end use a row more
than they have transitions, so a ring of rows may overwrite a row while its transition is still in the other ring:
`oldest` is the first transition that still has all its rows. A stack is taken to reach back S-1 rows whatever its age,
so that a row which is overwritten takes one transition at most.

Both rings are longer than they say by `SAMPLING_LAG`, and still hold that many evicted transitions: a batch can be
sampled as of a step shortly before the last one.

Everything is a tensor on one device and is updated in place without reading it on the host, so that
`add` and `gather` can be part of a CUDA graph. A ring may have more than 2^31 elements: all
indices are int64. Legend: P agents, B batch, C transitions, R rows, S frames in a stack.
"""

import math
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from valueshare.errors import InvalidInput
from valueshare.replay.mapped import mapped_zeros

SAMPLING_LAG = 16  # most transitions that may be added between the step of an update and its sampling
_LAG_ROWS = 2 * SAMPLING_LAG  # two for a step that ends an episode


class Batch(NamedTuple):
    """Transitions: in obs_tm1, a_tm1 gave r_t, discount_t (0 at termination) and obs_t."""

    obs_tm1: Tensor  # [P, B, ...]
    a_tm1: Tensor  # [P, B] int64
    r_t: Tensor  # [P, B]
    discount_t: Tensor  # [P, B]
    obs_t: Tensor  # [P, B, ...]


class Transitions(NamedTuple):
    """The rings and their cursors: tensors only, changed in place."""

    observation: Tensor  # [P, R, ...]  as the environment gives them, unscaled
    action: Tensor  # [P, C]  int64
    reward: Tensor  # [P, C]  float32, on the training scale
    discount: Tensor  # [P, C]  float32, 0 at termination; never a flag that ignores truncation
    row: Tensor  # [P, C]  int64, number of the row a transition starts from
    age: Tensor  # [P, C]  uint8, of its stack; [P, 0] where nothing is stacked
    rows: Tensor  # [P]  rows written so far
    written: Tensor  # [P]  transitions written so far
    oldest: Tensor  # [P]  number of the oldest transition that can be sampled
    frames_since_reset: Tensor  # [P]  int64, the age of the next transition
    frame_offsets: Tensor  # [S]  int64: S-1, ..., 0, how far behind the newest the frames of a stack are


def default_rows(capacity: int, stack: int = 0) -> int:
    """Rows for `capacity` transitions: an eighth more, for the final observations.

    Episodes of eight steps or more keep every transition; shorter ones keep fewer, down to 56 % of
    them if every episode is a single step. Frames are large, and their episodes are long: a
    128th more, and what a stack reaches back.
    """
    if stack:
        return capacity + capacity // 128 + stack + 4
    return capacity + capacity // 8 + 4


def empty(
    agents: int,
    capacity: int,
    observation_shape: tuple[int, ...],
    observation_dtype: torch.dtype = torch.float32,
    *,
    stack: int = 0,
    rows: int | None = None,
    device: torch.device | str = "cpu",
    folder: Path | None = None,
) -> Transitions:
    """Rings without a transition in them; `stack` is S.

    C is `capacity` and R is `rows`, both with the sampling lag. With a `folder`, the rows are on its disk.
    """
    rows = default_rows(capacity, stack) if rows is None else rows
    min_rows = max(4, stack + 3)
    if capacity < 1 or rows < min_rows:
        raise InvalidInput(f"a replay of {capacity} transitions and {rows} rows: write at least 1 and {min_rows}")

    def allocate(*shape: int, dtype: torch.dtype = torch.int64) -> Tensor:
        return torch.zeros((agents, *shape), dtype=dtype, device=device)

    slots, row_shape = capacity + SAMPLING_LAG, (rows + _LAG_ROWS, *observation_shape)
    if folder is None:
        observation = allocate(*row_shape, dtype=observation_dtype)
    else:
        observation = mapped_zeros(folder, (agents, *row_shape), observation_dtype)
    return Transitions(
        observation=observation,
        action=allocate(slots),
        reward=allocate(slots, dtype=torch.float32),
        discount=allocate(slots, dtype=torch.float32),
        row=allocate(slots),
        age=allocate(slots if stack else 0, dtype=torch.uint8),
        rows=allocate(),
        written=allocate(),
        oldest=allocate(),
        frames_since_reset=allocate(),
        frame_offsets=torch.arange(stack - 1, -1, -1).to(device),  # on the meta device itself it imports SymPy
    )


def slice_agents(replay: Transitions, agents: slice) -> Transitions:
    """Views of the rings of some agents."""
    rings = {name: tensor[agents] for name, tensor in replay._asdict().items()}
    return Transitions(**{**rings, "frame_offsets": replay.frame_offsets})


def begin_episodes(replay: Transitions, observation: Tensor) -> None:
    """Write the first observation [P, ...] of new episodes, for every agent.

    An episode under way is thereby cut: its last transition keeps its own next observation and its
    discount, which is what truncation means.
    """
    agents = _agents(replay)
    _write_row(replay, agents, replay.rows, observation)
    replay.rows.add_(1)
    replay.frames_since_reset.zero_()
    _evict(replay, agents, rounds=1)


def add(
    replay: Transitions,
    action: Tensor,
    reward: Tensor,
    discount: Tensor,
    next_observation: Tensor,
    ended: Tensor,
    observation: Tensor,
) -> None:
    """Store one step of every agent.

    `next_observation` is that of the step itself, the final one where the episode ended; `observation`
    is what the agent sees now, a reset observation where `ended`, else the same as the former.
    Shapes: action, reward, discount, ended [P]; observations [P, ...], the newest frame of stacks.
    """
    agents, stack = _agents(replay), len(replay.frame_offsets)
    slot = replay.written % replay.action.shape[1]
    replay.action[agents, slot] = action
    replay.reward[agents, slot] = reward
    replay.discount[agents, slot] = discount
    replay.row[agents, slot] = replay.rows - 1
    if stack:
        replay.age[agents, slot] = replay.frames_since_reset.to(torch.uint8)
        replay.frames_since_reset.add_(1).clamp_(max=stack - 1).masked_fill_(ended, 0)
    replay.written.add_(1)
    _write_row(replay, agents, replay.rows, next_observation)
    # Where no episode ended this writes the same row again: no branch, so the host reads nothing.
    _write_row(replay, agents, replay.rows + ended, observation)
    replay.rows.add_(1).add_(ended)
    _evict(replay, agents, rounds=2)


def size(replay: Transitions) -> Tensor:
    """Number of transitions per agent that can be sampled, [P]."""
    return replay.written - replay.oldest


def gather(replay: Transitions, index: Tensor, out: Batch | None = None) -> Batch:
    """The transitions `index` [P, B], counted from each agent's oldest; into `out` where given.

    Shapes of the observations: [P, B, ...], of stacks [P, B, S, ...].
    """
    slot = (replay.oldest[:, None] + index) % replay.action.shape[1]  # [P, B]
    row, length = _gather_ring(replay.row, slot), replay.observation.shape[1]
    into: Batch | tuple[None, ...] = (None,) * len(Batch._fields) if out is None else out
    if not len(replay.frame_offsets):
        obs = _gather_ring(replay.observation, row % length, into[0])
        next_obs = _gather_ring(replay.observation, (row + 1) % length, into[4])
    else:
        age = _gather_ring(replay.age, slot).to(torch.int64)[..., None]  # [P, B, 1]
        stack = row[..., None] - torch.minimum(age, replay.frame_offsets)  # [P, B, S]
        # A step on, a stack has lost its oldest frame, and one more row is its newest.
        rows = torch.cat([stack, row[..., None] + 1], -1) % length  # [P, B, S + 1]
        if out is None:
            frames = _gather_frames(replay.observation, rows)
            obs, next_obs = frames[:, :, :-1], frames[:, :, 1:]
        else:
            obs = _gather_ring(replay.observation, rows[..., :-1], into[0])
            next_obs = _gather_ring(replay.observation, rows[..., 1:], into[4])
    return Batch(
        obs_tm1=obs,
        a_tm1=_gather_ring(replay.action, slot, into[1]),
        r_t=_gather_ring(replay.reward, slot, into[2]),
        discount_t=_gather_ring(replay.discount, slot, into[3]),
        obs_t=next_obs,
    )


def holds_frames(replay: Transitions) -> bool:
    """Whether a row is an image, and not a vector or a number."""
    return replay.observation.ndim > 3


def _agents(replay: Transitions) -> Tensor:
    return torch.arange(replay.written.shape[0], device=replay.written.device)


def _gather_ring(ring: Tensor, slot: Tensor, out: Tensor | None = None) -> Tensor:
    """Entries of each agent's ring. Agents and slots are flattened to one axis: copying whole rows of it is several
    times faster than indexing by pairs. Shapes: ring [P, L, ...], slot [P, B, ...] -> [P, B, ..., ...]."""
    agents = torch.arange(ring.shape[0], device=ring.device).reshape(-1, *(1,) * (slot.ndim - 1))
    flat = (agents * ring.shape[1] + slot).flatten()
    entries = ring.flatten(0, 1)
    if out is None:
        return entries.index_select(0, flat).reshape(*slot.shape, *ring.shape[2:])
    torch.index_select(entries, 0, flat, out=out.view(-1, *ring.shape[2:]))
    return out


def _gather_frames(ring: Tensor, slot: Tensor) -> Tensor:
    """`_gather_ring` for frames, in words of eight bytes where they are made of such.

    A ring of a million frames is far larger than a GPU's TLB covers. So every row is read once, in a few wide loads,
    into a new tensor: compiled code would otherwise fuse the gather into the convolution, and read single bytes of
    the ring, each of them once per window.
    """
    size = math.prod(ring.shape[2:]) * ring.itemsize
    if size % 8:
        return _gather_ring(ring, slot)
    rows = ring.reshape(*ring.shape[:2], -1).view(torch.int64)  # [P, R, size / 8]
    words = _gather_ring(rows, slot)
    return words.view(ring.dtype).reshape(*slot.shape, *ring.shape[2:])


def _write_row(replay: Transitions, agents: Tensor, number: Tensor, observation: Tensor) -> None:
    replay.observation[agents, number % replay.observation.shape[1]] = observation


def _evict(replay: Transitions, agents: Tensor, rounds: int) -> None:
    """Move `oldest` past transitions that lost their slot or a row.

    A row that is overwritten takes at most one transition: of single observations the one that
    starts from it (the one that leads to it went with the row before), of stacks the one that
    starts S-1 rows after it. So there are at most as many rounds as rows were written.
    """
    slots = replay.action.shape[1]
    replay.oldest.clamp_(min=replay.written - (slots - SAMPLING_LAG))
    rows = replay.observation.shape[1] - _LAG_ROWS
    first_row = replay.rows - rows + max(len(replay.frame_offsets) - 1, 0)
    for _ in range(rounds):
        lost = replay.row[agents, replay.oldest % slots] < first_row
        replay.oldest.add_(lost & (replay.oldest < replay.written))
