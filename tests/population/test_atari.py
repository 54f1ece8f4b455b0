"""Real emulators: games mixed in one population, and the memory of a full-size one."""

import dataclasses
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch

from valueshare.envs import atari_protocol, environment_spec, make_environments
from valueshare.errors import InvalidInput
from valueshare.learning.randomness import stream_key
from valueshare.population import memory
from valueshare.population.agents import agent_table, populations
from valueshare.population.checkpoints.fingerprint import PROTOCOL, check_fingerprint, fingerprint
from valueshare.population.settings import AgentSettings, ReplayDevice, TrainingSettings
from valueshare.population.spec import PopulationSpec
from valueshare.population.state import make_population
from valueshare.population.train import TrainingResult, train_population
from valueshare.replay import transitions

GAMES = ["ALE/Pong-v5", "ALE/Breakout-v5"]
SETTINGS = TrainingSettings(
    steps=32,
    checkpoint_interval=16,
    eval_interval=32,
    hidden=(16,),
    atari_protocol="machado-2018",
    clip_rewards=True,
    batch_size=4,
    replay_capacity=1_000,
    learning_starts=8,
    update_interval=4,
    target_update_interval=8,
    reduction="sum",
    optimizer_epsilon=1.5e-4,
    eval_episodes=0,
    eval_timesteps=8,
    eval_envs=1,
)
OWN = AgentSettings(epsilon_steps=100, step_size=6.25e-5)
TABLE = agent_table(GAMES, "ib-dqn", seeds=[3], k=[18.0], agent_settings=OWN)


def train(table: pl.DataFrame, **options: object) -> TrainingResult:
    return train_population(table, SETTINGS, **options)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def mixed() -> TrainingResult:
    (table,) = populations(TABLE, dict.fromkeys(GAMES, "atari"))
    return train(table)


def test_a_game_among_others_is_the_game_alone(mixed: TrainingResult) -> None:
    for p in (0, 1):
        alone = train(TABLE[p : p + 1])
        assert torch.equal(alone.state.replay.action[0], mixed.state.replay.action[p])
        assert torch.equal(alone.state.replay.observation[0], mixed.state.replay.observation[p])
        for name, value in alone.state.online.parameters.items():
            torch.testing.assert_close(value[0], mixed.state.online.parameters[name][p])


def test_what_is_stored_is_what_the_emulator_shows(mixed: TrainingResult) -> None:
    # The first phase again, by its actions, in an emulator of its own.
    replay = mixed.state.replay
    for p, game in enumerate(GAMES):
        emulator = make_environments(game, 1, protocol="machado-2018")
        frames = [emulator.reset([stream_key(3, "environment/0")])[0]]
        for t in range(16):
            frames.append(emulator.step([int(replay.action[p, t])]).final_observation[0])
        emulator.close()
        assert np.array_equal(replay.observation[p, :17].numpy(), np.stack(frames))
        index = torch.zeros(2, 1, dtype=torch.int64).index_fill(0, torch.tensor(p), 10)
        stack = transitions.gather(replay, index).obs_tm1[p, 0]
        assert np.array_equal(stack.numpy(), np.stack(frames[7:11]))  # oldest first


def test_resumed_is_uninterrupted(mixed: TrainingResult, tmp_path: Path) -> None:
    ticks = iter(range(10**9))
    stopped = train(TABLE, directory=tmp_path, should_stop=lambda: next(ticks) > 28)
    assert not stopped.finished
    resumed = train(TABLE, directory=tmp_path)
    assert resumed.records.equals(mixed.records)
    for name, value in mixed.state.online.parameters.items():
        assert torch.equal(resumed.state.online.parameters[name], value), name


def test_games_that_differ_in_more_than_their_name_are_refused() -> None:
    specs = [environment_spec(game, None, "machado-2018") for game in GAMES]
    other = dataclasses.replace(specs[1], actions=4)
    with pytest.raises(InvalidInput, match="cannot share a population"):
        make_population(TABLE, SETTINGS, [specs[0], other], torch.device("cpu"))


def a_part(agents: int, replay_device: ReplayDevice | None) -> PopulationSpec:
    settings = dataclasses.replace(
        SETTINGS,
        steps=50_000_000,
        eval_interval=250_000 // 16 * 16,
        hidden=(512,),
        batch_size=32,
        replay_capacity=1_000_000,
        replay_device=replay_device,
    )
    table = agent_table("ALE/Pong-v5", "dqn", seeds=range(agents), agent_settings=OWN)
    return PopulationSpec("population-0", table, settings, "ale")


def test_replay_is_counted_where_it_is() -> None:
    rows, beside = 1_007_852 * 84 * 84, 25 * 10**6
    needs = {device: memory.estimate(a_part(1, device)) for device in (None, "cpu", "disk")}
    replay_bytes = needs[None].per_agent - needs["cpu"].per_agent
    assert replay_bytes == pytest.approx(rows + beside, rel=1e-3)
    assert needs["cpu"].host_per_agent - needs[None].host_per_agent == pytest.approx(replay_bytes, rel=1e-2)
    on_disk = needs["cpu"].host_per_agent - needs["disk"].host_per_agent
    assert on_disk == rows
    # 16 agents with a million frames each fit a GPU of 139 GiB, and leave some of it.
    assert 16 * needs[None].per_agent < 0.9 * 139 * 2**30


def test_agents_that_do_not_fit_are_refused_with_the_number_that_would(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(memory, "free_bytes", lambda device: 40_000_000_000)
    cpu = torch.device("cpu")
    with pytest.raises(InvalidInput, match=r"16 agents require .* 5 would fit"):
        memory.check(memory.estimate(a_part(16, None)), cpu)  # 0.95 x 40 GB / 7.2 GB
    memory.check(memory.estimate(a_part(5, None)), cpu)
    memory.check(memory.estimate(a_part(16, "disk")), cpu)
    with pytest.raises(InvalidInput, match="`replay_device = 'cuda'` needs"):
        memory.check(memory.estimate(a_part(1, "cuda")), cpu)


def test_a_disk_without_room_is_refused_with_the_number_that_fits(tmp_path: Path) -> None:
    settings = dataclasses.replace(a_part(1, "disk").settings, replay_capacity=10**12)
    settings = dataclasses.replace(settings, steps=10**12)
    with pytest.raises(InvalidInput, match="0 would fit"):
        train_population(TABLE[:1], settings, directory=tmp_path)


def test_the_digest_of_the_protocol_guards_a_resumption(mixed: TrainingResult) -> None:
    stored = fingerprint(mixed.population, mixed.state)
    assert stored[PROTOCOL] == atari_protocol("machado-2018").digest
    wanted = {**stored, PROTOCOL: "another"}
    check_fingerprint(stored, stored)
    with pytest.raises(InvalidInput, match=r"other settings \(atari_protocol_digest\)"):
        check_fingerprint(stored, wanted)
