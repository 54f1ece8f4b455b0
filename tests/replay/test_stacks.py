"""Stacks made when they are sampled, against a naive buffer that stores every stack whole."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from valueshare.errors import InvalidInput
from valueshare.replay import packing, segments, transitions
from valueshare.replay.transitions import Transitions

AGENTS, GAMMA = 2, 0.9
PLAIN, TERMINATED, TRUNCATED = 0, 1, 2
Frame = int
Tick = tuple[tuple[int, ...], int]  # how the step ends for each agent; 0: a phase ends with it

ticks = st.lists(
    st.tuples(st.tuples(*[st.sampled_from([0, 0, 0, 1, 2])] * AGENTS), st.integers(0, 9)),
    min_size=1,
    max_size=60,
)


class Whole(NamedTuple):
    stack: tuple[Frame, ...]
    action: int
    discount: float
    next_stack: tuple[Frame, ...]


class Naive:
    """One agent: whole transitions in a list, with the number of the frame each starts from."""

    def __init__(self, capacity: int, rows: int, size: int) -> None:
        self.capacity, self.row_capacity, self.size = capacity, rows, size
        self.stored: list[tuple[int, Whole]] = []
        self.frames = 0
        self.episode: list[Frame] = []

    def stack(self) -> tuple[Frame, ...]:
        """The last frames of the episode, its first one repeated before it."""
        padded = [self.episode[0]] * self.size + self.episode
        return tuple(padded[-self.size :])

    def start(self, frame: Frame) -> None:
        self.episode = [frame]
        self.frames += 1
        self.forget()

    def append(self, action: int, discount: float, frame: Frame, reset: Frame | None) -> None:
        row, before = self.frames - 1, self.stack()
        self.episode.append(frame)
        self.stored.append((row, Whole(before, action, discount, self.stack())))
        self.frames += 1
        if reset is not None:
            self.episode = [reset]
            self.frames += 1
        self.forget()

    def forget(self) -> None:
        """Full stacks reach back `size` - 1 frames; every one is taken for a full one."""
        oldest = self.frames - self.row_capacity + self.size - 1
        self.stored = [(row, t) for row, t in self.stored[-self.capacity :] if row >= oldest]


def frames_of(numbers: list[Frame], shape: tuple[int, ...]) -> torch.Tensor:
    """Frames that are one number all over, which is how they are told apart."""
    values = torch.tensor(numbers, dtype=torch.int16)
    return values.reshape(-1, *(1,) * len(shape)).expand(-1, *shape)


def play(
    history: Sequence[Tick], size: int, capacity: int, rows: int, shape: tuple[int, ...] = ()
) -> tuple[Transitions, list[Naive]]:
    """The same history in both; every frame, of every agent, is a number of its own."""
    replay = transitions.empty(AGENTS, capacity, shape, torch.int16, stack=size, rows=rows)
    naive = [Naive(capacity, rows, size) for _ in range(AGENTS)]
    fresh = iter(range(10**6))

    def new_frames() -> list[Frame]:
        return [next(fresh) for _ in range(AGENTS)]

    def start() -> None:
        first = new_frames()
        transitions.begin_episodes(replay, frames_of(first, shape))
        for buffer, frame in zip(naive, first, strict=True):
            buffer.start(frame)

    start()
    for t, (ends, phase) in enumerate(history):
        following, resets = new_frames(), new_frames()
        shown = [r if e else f for f, r, e in zip(following, resets, ends, strict=True)]
        discounts = [0.0 if e == TERMINATED else GAMMA for e in ends]
        transitions.add(
            replay,
            torch.tensor([t] * AGENTS),
            torch.tensor([t] * AGENTS) / 2,
            torch.tensor(discounts),
            frames_of(following, shape),
            torch.tensor(ends) > 0,
            frames_of(shown, shape),
        )
        for p, buffer in enumerate(naive):
            buffer.append(t, discounts[p], following[p], resets[p] if ends[p] else None)
        if phase == 0:
            start()
    return replay, naive


def contents(replay: Transitions) -> list[list[Whole]]:
    """Every live transition of every agent, oldest first."""
    live = transitions.size(replay)
    index = torch.arange(max(1, int(live.max()))).expand(AGENTS, -1)
    batch = transitions.gather(replay, index)
    pixels = [obs.reshape(*obs.shape[:3], -1) for obs in (batch.obs_tm1, batch.obs_t)]
    assert all((own == own[..., :1]).all() for own in pixels)  # a frame is one number all over
    pixels = [own[..., 0] for own in pixels]
    return [
        [
            Whole(tuple(stack), action, round(discount, 6), tuple(following))
            for stack, action, discount, following in zip(
                *(c[p].tolist() for c in (pixels[0], batch[1], batch[3], pixels[1])), strict=True
            )
        ][: int(live[p])]
        for p in range(AGENTS)
    ]


@settings(max_examples=150, deadline=None)
@given(
    history=ticks,
    size=st.integers(1, 4),
    capacity=st.integers(1, 20),
    spare=st.integers(3, 30),
    shape=st.sampled_from([(), (2, 3), (2, 2), (4, 3)]),  # the last two are whole words: see gather
)
def test_every_live_stack_is_the_one_that_was_seen(
    history: list[Tick], size: int, capacity: int, spare: int, shape: tuple[int, ...]
) -> None:
    replay, naive = play(history, size, capacity, max(4, size + spare), shape)
    assert contents(replay) == [[whole for _, whole in buffer.stored] for buffer in naive]


def test_a_stack_by_hand() -> None:
    # S = 3, agent 0 of two, the second step truncated for it. Every step takes four new numbers,
    # two of them agent 0's: the frame it leads to, and one for a reset.
    history = [((PLAIN, PLAIN), 1), ((TRUNCATED, PLAIN), 1), ((PLAIN, PLAIN), 1)]
    replay, _ = play(history, size=3, capacity=8, rows=20)
    # Its frames: 0 at the start; 2 (4 unused); 6, then 8 after the reset; 10.
    assert contents(replay)[0] == [
        Whole((0, 0, 0), 0, GAMMA, (0, 0, 2)),
        Whole((0, 0, 2), 1, GAMMA, (0, 2, 6)),  # truncated: leads to its own final frame
        Whole((8, 8, 8), 2, GAMMA, (8, 8, 10)),  # the new episode has nothing of the old one
    ]


@settings(max_examples=40, deadline=None)
@given(history=ticks, cut=st.integers(0, 60), size=st.integers(1, 4), capacity=st.integers(1, 20))
def test_packed_segments_restore_every_live_stack(history: list[Tick], cut: int, size: int, capacity: int) -> None:
    rows, shape = capacity + size + 4, (2, 3)
    before, _ = play(history[:cut], size, capacity, rows, shape)
    replay, _ = play(history, size, capacity, rows, shape)
    zero = torch.zeros(AGENTS, dtype=torch.int64)
    again = transitions.empty(AGENTS, capacity, shape, torch.int16, stack=size, rows=rows)
    for ring, since in ((before, segments.Cursors(zero, zero)), (replay, segments.cursors(before))):
        segments.restore(again, segments.added_since(ring, since))
        for file in packing.frame_files_since(ring, since):
            packing.restore(again, file._asdict())
    for cursor in ("rows", "written", "oldest"):
        getattr(again, cursor).copy_(getattr(replay, cursor))
    assert contents(again) == contents(replay)


def test_frames_are_packed_in_chunks_and_files(monkeypatch: pytest.MonkeyPatch) -> None:
    # Rows of 12 bytes: chunks of 3, and a file when it has 60 bytes. 31 rows an agent, none lost:
    # 11 chunks each, the last of one row.
    monkeypatch.setattr(packing, "CHUNK_BYTES", 36)
    monkeypatch.setattr(packing, "FILE_BYTES", 60)
    replay, _ = play([((PLAIN, PLAIN), 1)] * 30, 2, capacity=40, rows=50, shape=(2, 3))
    zero = torch.zeros(AGENTS, dtype=torch.int64)
    files = list(packing.frame_files_since(replay, segments.Cursors(zero, zero)))
    chunks = torch.cat([file.chunks for file in files])
    assert chunks[:, 2].tolist() == [*[3] * 10, 1] * 2
    assert [len(file.chunks) for file in files[:2]] == [2, 2]  # 36 bytes are not yet 60
    assert sum(len(file.data) for file in files) == chunks[:, 3].sum()


def test_frames_that_hardly_change_shrink() -> None:
    generator = torch.Generator().manual_seed(0)
    frames = torch.randint(256, (1, 84, 84), dtype=torch.uint8, generator=generator)
    video = frames.repeat(100, 1, 1)
    video[:, 10, 10] = torch.arange(100, dtype=torch.uint8)  # one pixel moves
    packed = packing.pack(video.numpy())
    # The first frame is noise, 7,056 bytes; the others are a byte each among zeros.
    assert 7_056 < len(packed) < 2 * 7_056
    assert packing.unpack(packed, 100, 84 * 84, torch.uint8).tobytes() == video.numpy().tobytes()


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int16, torch.float32])
@pytest.mark.parametrize("shape", [(4, 4), (3, 7)])  # whole bytes of bits, and 21 bits
def test_frames_of_any_type_are_unpacked_as_they_were(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    frames = torch.randint(2, (50, *shape), generator=torch.Generator().manual_seed(1)).to(dtype)
    unpacked = packing.unpack(packing.pack(frames.numpy()), 50, frames[0].numel(), dtype)
    assert torch.equal(torch.from_numpy(unpacked).reshape(frames.shape), frames)


def test_booleans_are_packed_as_bits() -> None:
    noise = torch.rand(1_000, 10, 10, 10, generator=torch.Generator().manual_seed(0)) < 0.5
    # Noise cannot be compressed: 125 bytes a frame stay, and 1,000 without bits were 160 at least.
    assert len(packing.pack(noise.numpy())) < 1_000 * 130


def test_packed_frames_of_another_size_are_refused() -> None:
    """A few bytes can stand for gigabytes of zeros: no more is unpacked than there is room for."""
    packed = packing.pack(np.zeros((100, 84, 84), np.uint8))
    with pytest.raises(InvalidInput, match="have 7,057 bytes or more, not 705,601"):
        packing.unpack(packing.pack(np.zeros((1, 7_057), np.uint8)), 1, 705_601, torch.uint8)
    with pytest.raises(InvalidInput, match="have 7,057 bytes or more, not 7,056"):
        packing.unpack(packed, 1, 7_056, torch.uint8)
    with pytest.raises(InvalidInput, match="have 883 bytes or more, not 882"):  # a byte per boolean, not a bit
        packing.unpack(packing.pack(np.zeros((1, 7_056), np.uint8)), 1, 7_056, torch.bool)


def test_a_million_transitions_of_an_atari_agent_fit_7_2_gigabytes() -> None:
    replay = transitions.empty(1, 10**6, (84, 84), torch.uint8, stack=4, device="meta")
    # Rows: 10^6 + 7,812 (a 128th) + 8, of 7,056 bytes; a transition has 8 + 4 + 4 + 8 + 1 beside.
    # And what is spare: 16 transitions, 32 rows.
    rows = 10**6 + 10**6 // 128 + 8 + 32
    total = sum(tensor.nbytes for tensor in replay)
    assert total == rows * 7_056 + 25 * (10**6 + 16) + 4 * 8 + 4 * 8
    assert total < 7.2e9


def test_rings_may_have_more_than_2_to_the_31_elements() -> None:
    # Two agents, 152,532 rows of 84x84 each: 2.15e9 bytes, of which only the written ones are ever
    # touched. The second agent's last rows are beyond what 32 bits can count.
    replay = transitions.empty(2, 1_000, (84, 84), torch.uint8, stack=2, rows=152_500)
    rows = replay.observation.shape[1]
    assert replay.observation.numel() > 2**31
    replay.rows.fill_(rows - 3)
    transitions.begin_episodes(replay, torch.full((2, 84, 84), 1, dtype=torch.uint8))
    for frame in (2, 3, 4):  # 4 is after the wrap
        value = torch.full((2, 84, 84), frame, dtype=torch.uint8)
        number = torch.full((2,), frame)
        transitions.add(replay, number, number.float(), number.float(), value, number < 0, value)
    batch = transitions.gather(replay, torch.tensor([[0, 1, 2]] * 2))
    assert batch.obs_tm1[1, :, :, 83, 83].tolist() == [[1, 1], [1, 2], [2, 3]]
    assert batch.obs_t[1, :, :, 0, 0].tolist() == [[1, 2], [2, 3], [3, 4]]
    assert replay.observation[1, -2, 0, 0] == 2


def test_a_ring_too_short_for_a_stack_is_refused() -> None:
    with pytest.raises(InvalidInput, match="at least 1 and 7"):
        transitions.empty(1, 5, (2, 2), stack=4, rows=6)
