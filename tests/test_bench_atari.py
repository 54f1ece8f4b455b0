"""The Atari benchmark measures what it says, on rings that are really full."""

from dataclasses import replace
from typing import Any

import polars as pl
import pytest
import torch

from valueshare import cli
from valueshare.benchmarks import atari, plain_agent
from valueshare.benchmarks.atari import _settings, _table, bare_emulators, measure
from valueshare.benchmarks.atari_options import AtariBench
from valueshare.benchmarks.layer import nature_network
from valueshare.benchmarks.output import Output
from valueshare.benchmarks.training_loop import (
    TrainingLoop,
    atari_population,
    fill_with_copies,
    training_engine,
)
from valueshare.cli.bench import bench_atari
from valueshare.envs.atari import AtariEnvironments
from valueshare.errors import InvalidInput
from valueshare.experiments.study import make_study
from valueshare.population import memory
from valueshare.population.agents import agent_table
from valueshare.population.execution.group_trial import GroupTrial
from valueshare.population.execution.groups import GroupedPopulation, make_grouped
from valueshare.population.state import Population, State, initial_state
from valueshare.replay import transitions

PARTS = "raw", "plain", "part", "loop"


def parts_of(bench: AtariBench) -> list[str]:
    output = Output("atari", "agent-steps")
    measure(bench, output=output)
    return [row.part for row in output.rows]


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.set_num_threads(1)
    monkeypatch.setitem(cli.COMMANDS, "bench atari", bench_atari)


def test_a_filled_ring_holds_copies_of_real_frames_to_its_end() -> None:
    replay = transitions.empty(1, 10, (1,), torch.uint8, stack=2)
    transitions.begin_episodes(replay, torch.tensor([[0]], dtype=torch.uint8))
    no = torch.tensor([False])
    for t in (1, 2, 3):  # frames 0, 1, 2, 3; rewards 1, 2, 3
        seen = torch.tensor([[t]], dtype=torch.uint8)
        reward = torch.tensor([float(t)])
        transitions.add(replay, torch.tensor([t]), reward, torch.tensor([0.9]), seen, no, seen)
    fill_with_copies(replay)
    assert int(transitions.size(replay)) == 10
    batch = transitions.gather(replay, torch.arange(10).unsqueeze(0))
    # Rows repeat 0 1 2 3 and transitions 1 2 3, twice as many at a time; a stack is a row and the
    # one before it. The oldest are the slack, which is evicted.
    stacks, oldest = batch.obs_tm1.reshape(10, 2).tolist(), transitions.SAMPLING_LAG
    assert stacks == [[(a - 1) % 4, a % 4] for a in range(oldest, oldest + 10)]
    assert batch.obs_t.reshape(10, 2)[:, 1].tolist() == [(a + 1) % 4 for a in range(oldest, oldest + 10)]
    assert batch.r_t.flatten().tolist() == [1 + a % 3 for a in range(oldest, oldest + 10)]
    # And it continues: the next transition takes the place of the oldest.
    seen = torch.tensor([[9]], dtype=torch.uint8)
    transitions.add(replay, torch.tensor([7]), torch.ones(1), torch.ones(1), seen, no, seen)
    assert int(replay.oldest) == oldest + 1


def test_agents_take_the_games_in_turn() -> None:
    table = _table(AtariBench(env=("Pong", "Breakout"), algorithm="ib-dqn"), 5)
    assert table["env"].to_list() == ["ALE/Pong-v5"] * 3 + ["ALE/Breakout-v5"] * 2
    assert table["agent"].to_list() == [0, 1, 2, 3, 4]
    assert set(table["k"]) == {18.0}
    assert set(table["epsilon_end"]) == {1.0}
    one = _table(AtariBench(env=("Pong", "Breakout")), 1)
    assert one["env"].to_list() == ["ALE/Pong-v5"]


def test_a_loop_learns_at_the_steps_at_which_training_would() -> None:
    bench = AtariBench(agents=2, env=("Pong", "Breakout"), replay_capacity=100)
    (plan,) = make_study("atari57", "smoke").runs.values()
    settings = replace(
        next(iter(plan.populations.values())).settings, delayed_actor=True
    )  # replay starts at 100; an update every 4 steps
    population = atari_population(_table(bench, 2), settings, torch.device("cpu"))
    state = initial_state(population)
    engine = training_engine(population, state, compiled=False, threads=2, groups=2)
    loop = TrainingLoop(engine, 95)
    loop.run(10)
    loop.run(5)
    assert loop.t == 110
    assert int(state.updates) == 3  # at 100, 104 and 108
    assert state.replay.written.tolist() == [15, 15]
    engine.close()


@pytest.mark.slow
@pytest.mark.parametrize("asynchronous", [False, True])
def test_rows_come_as_they_are_known_with_their_ratios(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], asynchronous: bool
) -> None:
    monkeypatch.setattr("valueshare.population.engine.prefers_processes", lambda *_: asynchronous)
    monkeypatch.setattr(plain_agent, "steps_per_second", lambda *_: 50.0)
    output = Output("atari", "agent-steps")
    bench = AtariBench(
        agents=2,
        replay_capacity=200,
        loops=("serial", "delayed-groups-2"),
        raw_seconds=0.05,
        part_seconds=0.01,
        loop_seconds=0.01,
    )
    measure(bench, output=output)
    rows = {row.part: row for row in output.rows}
    assert list(rows) == [
        "raw ALE, 2 emulators",
        "one plain agent",
        "learning alone, per update",
        "acting alone",
        "storing alone",
        "loop",
        "loop, delayed actor, 2 groups",
    ]
    assert rows["one plain agent"].ms == 20.0  # 50 steps a second
    for name in ("loop", "loop, delayed actor, 2 groups"):
        row = rows[name]
        assert row.rate is not None
        assert row.rate == pytest.approx(2 * 1e3 / row.ms)  # two agents
        assert row.note.endswith(f", {row.rate / 50:.1f} x one plain agent")
        assert row.limit == "raw ALE beside it"
        assert row.share is not None
        assert 0 < row.share < 2
    learning = rows["learning alone, per update"]
    assert learning.rate == pytest.approx(2 * 4 * 1e3 / learning.ms)  # an update every 4 steps
    assert learning.share is not None
    assert 0 < learning.share < 1
    shown = [line for line in capsys.readouterr().out.splitlines() if line.startswith(tuple(rows))]
    assert [line[:34].rstrip() for line in shown] == list(rows)


def test_what_is_left_out_is_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(atari, "atari_population", None)
    raw = AtariBench(agents=2, raw_seconds=0.05, plain_seconds=0, part_seconds=0, loop_seconds=0)
    assert parts_of(raw) == ["raw ALE, 2 emulators"]
    assert AtariBench(loop_seconds=0, loops=("serial", "delayed")).measured_loops == ("serial",)


def test_the_first_loop_has_the_groups_of_a_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("valueshare.population.engine.prefers_processes", lambda *_: True)
    given: list[tuple[int, ...]] = []

    def tried(
        population: Population, state: State, candidates: tuple[int, ...], make: Any, **options: Any
    ) -> tuple[GroupedPopulation, GroupTrial]:
        given.append(candidates)
        options.pop("on_step")
        trial = GroupTrial({count: [float(count)] for count in candidates}, options.pop("default"))
        return make_grouped(population, state, make(trial.chosen), **options), trial

    monkeypatch.setattr("valueshare.population.engine.try_groups", tried)
    alone = {"raw_seconds": 0, "plain_seconds": 0, "part_seconds": 0, "loop_seconds": 0.01}
    bench = AtariBench(agents=4, replay_capacity=200, loops=("delayed-auto",), **alone)  # type: ignore[arg-type]
    assert AtariBench().loops[0] == "delayed-auto"
    output = Output("atari", "agent-steps")
    measure(bench, threads=8, output=output)
    assert [row.part for row in output.rows] == ["loop, delayed actor, 4 groups (tried: 2, 4)"]
    assert given == [(2, 4)]  # of four agents with eight threads


@pytest.mark.slow
def test_loops_can_be_measured_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("valueshare.population.engine.prefers_processes", lambda *_: True)
    alone = {"raw_seconds": 0, "plain_seconds": 0, "part_seconds": 0, "loop_seconds": 0.01}
    bench = AtariBench(agents=1, replay_capacity=200, loops=("delayed",), **alone)  # type: ignore[arg-type]
    assert parts_of(bench) == ["loop, delayed actor"]


@pytest.mark.parametrize("game", ["Pong", "Skiing"])
def test_one_plain_agent_steps_and_learns(game: str, monkeypatch: pytest.MonkeyPatch) -> None:
    networks: list[torch.nn.Module] = []

    def noted(actions: int) -> torch.nn.Module:
        networks.append(nature_network(actions))
        return networks[-1]

    monkeypatch.setattr(plain_agent, "nature_network", noted)
    rate = plain_agent.steps_per_second(0.01, torch.device("cpu"), game, warm_up=8)
    assert 0 < rate < 100_000
    online, target = (list(network.parameters()) for network in networks)
    # Updates were made, and no target copy yet: the two began with the same weights.
    assert not any(torch.equal(a, b) for a, b in zip(online[-2:], target[-2:], strict=True))


def test_bare_emulators_get_actions_that_their_game_has(monkeypatch: pytest.MonkeyPatch) -> None:
    # Skiing has 9 of the 18: an emulator that gets another waits for ever.
    bench = AtariBench(agents=2, env=("Pong", "Skiing"))
    sent: list[list[int]] = []
    raw_step = AtariEnvironments.raw_step

    def noted(self: AtariEnvironments, actions: Any) -> Any:
        sent.append(actions.tolist())
        return raw_step(self, actions)

    monkeypatch.setattr(AtariEnvironments, "raw_step", noted)
    with bare_emulators(_table(bench, 2), _settings(bench), 2) as step:
        for _ in range(30):
            step()
    pong, skiing = zip(*sent, strict=True)
    assert len(skiing) == 30
    assert max(skiing) < 9 <= max(pong)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--env", "Braekout"], "did you mean Breakout"),
        (["--agents", "0"], "--agents 0: "),
        (["--agents", "1"], "groups-2 needs 2 agents"),
        (["--algorithm", "ddqn"], "there is no algorithm 'ddqn': it is called double-dqn here"),
        (["--raw-seconds", "-1"], "--raw-seconds -1"),
        (
            [w for part in PARTS for w in (f"--{part}-seconds", "0")],
            "nothing is left to measure",
        ),
        (["--replay-device", "cuda"], "--replay-device cuda needs training on a CUDA device"),
        (["--loops", "fast"], "fast"),
        (["--loops"], "--loops: write a value after it"),
    ],
)
def test_bad_input_is_one_line(capsys: pytest.CaptureFixture[str], words: list[str], message: str) -> None:
    with pytest.raises(SystemExit) as exit_:
        cli.main(["bench", "atari", "--device", "cpu", "--replay-capacity", "100", *words])
    err = capsys.readouterr().err
    assert (exit_.value.code, err.count("\n")) == (2, 1), err
    assert message in err


def test_agents_that_do_not_fit_are_refused_with_the_number_that_would(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(memory, "free_bytes", lambda device: 40 * 10**9)
    with pytest.raises(InvalidInput, match=r"16 agents require .*: about 5 would fit"):
        parts_of(AtariBench())


def test_a_table_that_does_not_fit_is_not_made(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made: list[int] = []

    def watched(*words: Any, seeds: range, **options: Any) -> pl.DataFrame:
        made.append(len(seeds))
        assert len(seeds) < 1_000, "this would take hours, and all memory"
        return agent_table(*words, seeds=seeds, **options)

    monkeypatch.setattr(atari, "agent_table", watched)
    with pytest.raises(SystemExit) as exit_:
        cli.main(["bench", "atari", "--device", "cpu", "--agents", "1000000000"])
    err = capsys.readouterr().err
    assert (exit_.value.code, err.count("\n")) == (2, 1), err
    assert "valueshare: 1,000,000,000 agents require " in err
    assert made == [1]


def test_threads_that_cannot_be_are_refused() -> None:
    with pytest.raises(InvalidInput, match="`threads = -1`: write at least 1"):
        measure(AtariBench(), threads=-1, output=Output("atari", "agent-steps"))
