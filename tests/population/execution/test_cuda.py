"""The captured steps on a GPU against the plain ones on a CPU, and resume on a GPU."""

import dataclasses
import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch

from valueshare.envs import environment_spec
from valueshare.envs.episodes import TrainingEpisodes
from valueshare.nn import operators
from valueshare.population import train as training_loop
from valueshare.population.agents import agent_table
from valueshare.population.compilation import compiled_if
from valueshare.population.evaluate import evaluate
from valueshare.population.execution import buffers
from valueshare.population.execution.evaluators import HostEvaluator
from valueshare.population.execution.executor import GroupExecutor
from valueshare.population.execution.groups import make_grouped
from valueshare.population.execution.learner import Learner, update
from valueshare.population.loop import Executor
from valueshare.population.settings import AgentSettings, ReplayDevice, TrainingSettings
from valueshare.population.state import initial_state, make_population, state_dict
from valueshare.population.train import train_population
from valueshare.replay import transitions

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

SETTINGS = TrainingSettings(
    initialization="paper",
    loss="half-squared",
    steps=120,
    checkpoint_interval=40,
    eval_interval=40,
    hidden=(16, 16),
    batch_size=16,
    replay_capacity=70,
    learning_starts=20,
    update_interval=1,
    target_update_interval=10,
    quantiles=4,
    target_quantiles=4,
    acting_quantiles=4,
    eval_episodes=2,
    eval_envs=2,
    eval_episode_limit=20,
)
GREEDY = AgentSettings(epsilon_start=0.1, epsilon_end=0.1)


@pytest.mark.parametrize(
    ("algorithm", "mapped_bytes"),
    [
        *((name, buffers.MAPPED_BYTES) for name in ("ib-dqn", "ib-double-dqn", "dueling-dqn", "rdq", "ib-iqn")),
        ("ib-dqn", 0),  # as larger steps: a copy engine moves them
    ],
)
def test_captured_steps_are_the_plain_ones(algorithm: str, mapped_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buffers, "MAPPED_BYTES", mapped_bytes)
    table = agent_table("CartPole-v1", algorithm, seeds=[0, 1], k=[2.0])
    plain = train_population(table, SETTINGS, device="cpu")
    captured = train_population(table, SETTINGS, device="cuda")
    # Almost all actions are random at this epsilon, so the two see the same transitions; sums are
    # taken in another order on a GPU, so weights are close, not equal.
    assert torch.equal(captured.state.replay.action.cpu(), plain.state.replay.action)
    for name, value in plain.state.online.parameters.items():
        found = captured.state.online.parameters[name].cpu()
        torch.testing.assert_close(found, value, rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize(
    ("place", "delayed", "groups", "compiled"),
    [
        (None, False, 2, False),
        (None, True, 1, False),
        (None, True, 2, True),
        (None, True, 4, False),
        ("cpu", False, 1, False),
        ("cpu", True, 2, False),
        ("disk", True, 1, False),
    ],
)
def test_where_things_are_changes_nothing(
    tmp_path: Path, place: ReplayDevice | None, delayed: bool, groups: int, compiled: bool
) -> None:
    # Replay on the GPU or not, updates on a stream of their own, groups at their own pace: the same
    # transitions are stored as on a CPU, to the bit where almost all actions are random.
    table = agent_table("CartPole-v1", "ib-dqn", seeds=[0, 1], k=[0.0, 2.0])
    settings = dataclasses.replace(SETTINGS, delayed_actor=delayed)
    plain = train_population(table, settings, device="cpu")
    placed = dataclasses.replace(settings, replay_device=place)
    found = train_population(table, placed, device="cuda", groups=groups, compiled=compiled, directory=tmp_path)
    assert torch.equal(found.state.replay.action.cpu(), plain.state.replay.action)
    assert torch.equal(found.state.replay.observation.cpu(), plain.state.replay.observation)
    for name, value in plain.state.online.parameters.items():
        weights = found.state.online.parameters[name].cpu()
        torch.testing.assert_close(weights, value, rtol=1e-2, atol=1e-3)


def test_atari_agents_with_lagging_updates_in_two_groups(tmp_path: Path) -> None:
    table = agent_table(["ALE/Pong-v5", "ALE/Breakout-v5"], "ib-dqn", seeds=[0, 1], k=[18.0])
    settings = dataclasses.replace(
        SETTINGS,
        hidden=(512,),
        atari_protocol="machado-2018",
        delayed_actor=True,
        clip_rewards=True,
        eval_episodes=0,
        eval_timesteps=8,
    )
    plain = train_population(table, settings, device="cpu")
    ticks = iter(range(10**9))
    options: dict[str, Any] = {"device": "cuda", "groups": 2, "directory": tmp_path}
    train_population(table, settings, should_stop=lambda: next(ticks) > 60, **options)
    resumed = train_population(table, settings, **options)
    assert torch.equal(resumed.state.replay.action.cpu(), plain.state.replay.action)
    assert torch.equal(resumed.state.replay.observation.cpu(), plain.state.replay.observation)


def test_an_update_beside_acting_disturbs_neither(monkeypatch: pytest.MonkeyPatch) -> None:
    # Acting by the weights before the last update, agents act and store while the update runs. The
    # products of both are split and summed in workspaces: were one workspace both's, the sums would
    # be wrong at random. With a wait after each update nothing runs beside it.
    table = agent_table("ALE/Pong-v5", "ib-dqn", seeds=range(8), k=[0.0, 18.0], agent_settings=GREEDY)
    settings = dataclasses.replace(
        SETTINGS,
        steps=240,
        checkpoint_interval=120,
        eval_interval=240,
        hidden=(512,),
        batch_size=32,
        replay_capacity=240,
        atari_protocol="machado-2018",
        delayed_actor=True,
        clip_rewards=True,
        eval_episodes=0,
        eval_timesteps=8,
    )

    def trained() -> dict[str, torch.Tensor]:
        found = train_population(table, settings, device="cuda").state
        rings = {n: getattr(found.replay, n) for n in ("action", "reward", "discount")}
        return {n: value.cpu() for n, value in {**state_dict(found), **rings}.items()}

    first, again = trained(), trained()

    def update_alone(learner: Learner, counter: int, *staged: Callable[[], None]) -> None:
        update(learner, counter, *staged)
        torch.cuda.synchronize()

    monkeypatch.setattr("valueshare.population.execution.learner.update", update_alone)
    # Asynchronous groups do not wait for it.
    monkeypatch.setattr("valueshare.population.engine.prefers_processes", lambda *_: False)
    alone = trained()
    for name, value in alone.items():
        assert torch.equal(first[name], value), name
        assert torch.equal(again[name], value), name


@pytest.mark.parametrize("compiled", [False, True])
def test_agents_train_where_the_kernels_fail(
    compiled: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    kernels = pytest.importorskip("valueshare.nn.kernels.convolution")
    too_large = kernels.FORWARD._replace(rows=512, columns=64)  # for the memory of a multiprocessor
    for tiles in ("FORWARD", "FORWARD_OF_BYTES", "FORWARD_OF_FEW_ROWS"):
        monkeypatch.setattr(kernels, tiles, too_large)
    monkeypatch.setattr(operators, "_LEFT_OUT", set())
    table = agent_table("ALE/Pong-v5", "ib-iqn", seeds=[0, 1], k=[18.0])
    settings = dataclasses.replace(
        SETTINGS, hidden=(64,), atari_protocol="machado-2018", eval_episodes=0, eval_timesteps=8, tf32=True
    )
    trained = train_population(table, settings, device="cuda", compiled=compiled).state
    assert "PyTorch's own products are used in place of this package's GPU kernels" in caplog.text
    plain = train_population(table, settings, device="cpu").state
    assert torch.equal(trained.replay.action.cpu(), plain.replay.action)
    first = initial_state(make_population(table, settings, environment_spec("ALE/Pong-v5"), torch.device("cpu")))
    for name, value in plain.online.parameters.items():
        found, initial = trained.online.parameters[name].cpu(), first.online.parameters[name]
        # 1 where nothing is learned. With products rounded to TensorFloat-32 on a CPU, 0.02 to 0.5.
        assert (found - value).norm() < 0.8 * (value - initial).norm(), name


def test_memory_is_free_again_after_a_population() -> None:
    table = agent_table("CartPole-v1", "ib-dqn", seeds=[0, 1], k=[2.0])
    train_population(table, SETTINGS, device="cuda")
    before = allocated()
    large = dataclasses.replace(SETTINGS, hidden=(4_096, 4_096))  # 2 x 67 MB, several times over
    train_population(table, large, device="cuda")
    assert allocated() - before < 10**7


def allocated() -> int:
    """Without the workspaces of cuBLAS: 33.6 MB for each of PyTorch's 32 streams that it was ever used on."""
    gc.collect()
    torch._C._cuda_clearCublasWorkspaces()
    return torch.cuda.memory_allocated()


def recorded(count: Callable[[], int], counts: list[int]) -> Callable[[int], None]:
    """Adds the count before every step."""
    return lambda step: counts.append(count())


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("algorithm", ["ib-dqn", "ib-iqn"])
def test_environments_on_the_gpu_are_those_of_the_host(algorithm: str, compiled: bool) -> None:
    gymnax = pytest.importorskip("valueshare.envs.gymnax")
    games = ["Breakout-MinAtar", "SpaceInvaders-MinAtar", "Breakout-MinAtar", "Asterix-MinAtar"]
    if not gymnax.GymnaxEnvironments(games, device="cuda").on_gpu:
        pytest.skip("JAX is installed without CUDA")
    on_device = pytest.importorskip("valueshare.population.execution.on_device")
    settings = dataclasses.replace(SETTINGS, hidden=(16,), steps=200, checkpoint_interval=200, eval_interval=200)
    tables = [agent_table(game, algorithm, seeds=[row], k=[6.0]) for row, game in enumerate(games)]
    table = pl.concat(tables).with_columns(agent=pl.int_range(pl.len(), dtype=pl.Int64))
    specs = [environment_spec(game) for game in dict.fromkeys(games)]
    found = []
    for device in ("cpu", "cuda"):
        population = make_population(table, settings, specs, torch.device("cuda"))
        state = initial_state(population)
        environments = gymnax.GymnaxEnvironments(games, device=device)
        executor: Executor
        if device == "cpu":
            executor = GroupExecutor(make_grouped(population, state, [environments], compiled=compiled))
        else:
            executor = on_device.DeviceExecutor(population, state, environments, compiled=compiled)
        episodes = TrainingEpisodes(len(games))
        executor.reset([5, 6, 7, 8])
        count, counts = environments.program.step._cache_size, list[int]()
        executor.run(range(200), recorded(count, counts), episodes)
        numbers = {**state_dict(state), **state.replay._asdict()}
        found.append(({name: value.clone() for name, value in numbers.items()}, episodes))
        assert counts[1] - counts[0] <= 1  # compiled once for each device, if no earlier case has done it
        assert {*counts[1:], count()} == {counts[1]}  # and not again after the first step
        executor.close()
    (host, host_episodes), (gpu, gpu_episodes) = found
    for name, value in host.items():
        torch.testing.assert_close(gpu[name], value, rtol=0, atol=0, msg=name)
    assert host_episodes.episode_count.sum() > 0
    assert (gpu_episodes.episode_count == host_episodes.episode_count).all()
    assert (gpu_episodes.return_sum == host_episodes.return_sum).all()


@pytest.mark.parametrize("compiled", [False, True])
def test_scores_on_the_gpu_are_those_of_the_host(compiled: bool) -> None:
    gymnax = pytest.importorskip("valueshare.envs.gymnax")
    game, rows = "Breakout-MinAtar", ["Breakout-MinAtar"] * 6
    if not gymnax.GymnaxEnvironments(rows, device="cuda").on_gpu:
        pytest.skip("JAX is installed without CUDA")
    on_device = pytest.importorskip("valueshare.population.execution.on_device")
    settings = dataclasses.replace(SETTINGS, hidden=(16,), eval_episodes=7, eval_envs=3, eval_epsilon=0.2)
    table = agent_table(game, "ib-iqn", seeds=[0, 1], k=[6.0])
    population = make_population(table, settings, environment_spec(game), torch.device("cuda"))
    state = initial_state(population)
    found = []
    for device, kind in (("cpu", HostEvaluator), ("cuda", on_device.DeviceEvaluator)):
        environments = gymnax.GymnaxEnvironments(rows, device=device, episode_limit=20)
        evaluator = kind(population, state, environments, compiled=compiled)
        found += [evaluate(population, evaluator, step, lambda step: None) for step in (0, 40)]
    for host, gpu in zip(found[:2], found[2:], strict=True):
        assert host.episodes.tolist() == gpu.episodes.tolist() == [7, 7]
        assert host.score.tolist() == gpu.score.tolist()
        assert gpu.overestimation == pytest.approx(host.overestimation, rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("compiled", [False, True])
def test_rings_may_have_more_than_2_to_the_31_elements_on_a_gpu(compiled: bool) -> None:
    rows = 152_500  # two agents: 2.15e9 bytes
    replay = transitions.empty(2, 1_000, (84, 84), torch.uint8, stack=2, rows=rows, device="cuda")
    replay.rows.fill_(replay.observation.shape[1] - 3)
    frame = torch.full((2, 84, 84), 1, dtype=torch.uint8, device="cuda")
    number = torch.ones(2, dtype=torch.int64, device="cuda")
    transitions.begin_episodes(replay, frame)

    def store() -> None:
        transitions.add(replay, number, number.float(), number.float(), frame, number < 0, frame)

    step = compiled_if(compiled, store, tuned=False)
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    for value in (2, 3, 4):  # 4 is after the wrap
        frame.fill_(value)
        number.fill_(value)
        step()
    assert torch.cuda.max_memory_allocated() - before < 10**7  # no copy of a ring
    index = torch.tensor([[0, 1, 2]] * 2, device="cuda")
    for gather in (transitions.gather, torch.compile(transitions.gather)):
        batch = gather(replay, index)
        assert batch.obs_tm1[1, :, :, 83, 83].tolist() == [[1, 1], [1, 2], [2, 3]]
        assert batch.obs_t[1, :, :, 0, 0].tolist() == [[1, 2], [2, 3], [3, 4]]


def test_resumed_is_uninterrupted_on_a_gpu(tmp_path: Path) -> None:
    own = AgentSettings(epsilon_steps=50)
    table = agent_table("CartPole-v1", "ib-dqn", seeds=[0, 1], k=[0.0, 2.0], agent_settings=own)
    ticks = iter(range(10**9))
    train_population(
        table,
        SETTINGS,
        device="cuda",
        directory=tmp_path,
        should_stop=lambda: next(ticks) > 90,
    )
    resumed = train_population(table, SETTINGS, device="cuda", directory=tmp_path)
    whole = train_population(table, SETTINGS, device="cuda")
    assert resumed.records.equals(whole.records)
    tensors = state_dict(whole.state)
    for name, value in state_dict(resumed.state).items():
        assert torch.equal(value, tensors[name]), name


def test_checkpoints_are_the_same_whether_training_waits_for_them_or_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = agent_table("CartPole-v1", "ib-dqn", seeds=[0, 1], k=[0.0, 2.0])
    waited, background = tmp_path / "waited", tmp_path / "background"
    train_population(table, SETTINGS, device="cuda", directory=background)
    monkeypatch.setattr(training_loop, "writes_in_background", lambda device, env, replay: False)
    train_population(table, SETTINGS, device="cuda", directory=waited)
    files = [path.relative_to(waited) for path in waited.rglob("*") if path.is_file()]
    assert len(files) > 6
    for file in files:
        assert (background / file).read_bytes() == (waited / file).read_bytes(), file
