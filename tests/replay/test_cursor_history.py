"""Sampling as of a step that was a little before the last one."""

import torch

from valueshare.replay import transitions
from valueshare.replay.cursor_history import (
    empty_history,
    record_step,
    replay_at,
    slice_agents,
    start_history,
)
from valueshare.replay.transitions import SAMPLING_LAG, Transitions

CAPACITY, AGENTS = 20, 2


def full_rings() -> tuple[Transitions, torch.Generator]:
    """Rings that have wrapped; episodes of five steps of one agent, of three of the other."""
    replay = transitions.empty(AGENTS, CAPACITY, (2, 2), torch.uint8, stack=3, rows=CAPACITY + 10)
    rng = torch.Generator().manual_seed(0)
    transitions.begin_episodes(replay, frames(rng))
    for t in range(3 * CAPACITY):
        store(replay, rng, t)
    return replay, rng


def frames(rng: torch.Generator) -> torch.Tensor:
    return torch.randint(0, 256, (AGENTS, 2, 2), dtype=torch.uint8, generator=rng)


def store(replay: Transitions, rng: torch.Generator, t: int) -> None:
    ended = torch.tensor([t % 5 == 4, t % 3 == 2])
    next_obs = frames(rng)
    obs = torch.where(ended[:, None, None], frames(rng), next_obs)
    number = torch.full((AGENTS,), t)
    transitions.add(replay, number, number.float(), number.float(), next_obs, ended, obs)


def everything(replay: Transitions) -> list[list[torch.Tensor]]:
    """All live transitions of each agent."""
    counts = transitions.size(replay).tolist()
    index = torch.arange(max(counts)).expand(AGENTS, -1)
    batch = transitions.gather(replay, index)
    return [[part[i, :count].clone() for part in batch] for i, count in enumerate(counts)]


def test_what_was_live_at_a_step_is_still_there_some_steps_later() -> None:
    replay, rng = full_rings()
    history = empty_history(AGENTS, torch.device("cpu"))
    start_history(history, replay, 60)
    expected = {60: everything(replay)}
    for t in range(60, 60 + SAMPLING_LAG - 1):
        store(replay, rng, t)
        record_step(history, replay)
        expected[t + 1] = everything(replay)
    for step, agents in expected.items():
        found = everything(replay_at(history, replay, torch.tensor(step)))
        for own, own_found in zip(agents, found, strict=True):
            for value, value_found in zip(own, own_found, strict=True):
                assert torch.equal(value_found, value), step
    newest, oldest = expected[60 + SAMPLING_LAG - 1], expected[60]
    assert not torch.equal(newest[0][2], oldest[0][2])


def test_agents_note_for_themselves() -> None:
    replay, rng = full_rings()
    history = empty_history(AGENTS, torch.device("cpu"))
    start_history(history, replay, 60)
    second = slice(1, 2)
    store(replay, rng, 60)
    record_step(slice_agents(history, second), transitions.slice_agents(replay, second))
    assert history.step.tolist() == [60, 61]
    assert history.written[:, 60 % SAMPLING_LAG].tolist() == [60, 60]
    assert history.written[:, 61 % SAMPLING_LAG].tolist() == [0, 61]
