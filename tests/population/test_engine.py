"""Engines: how threads are shared, and training without evaluation."""

import sys
from dataclasses import replace
from typing import Any

import pytest
import torch

from valueshare.envs import Environments, environment_spec, make_environments
from valueshare.population import engine as engines
from valueshare.population.agents import agent_table
from valueshare.population.engine import Engine, make_engine
from valueshare.population.phase import run_phase
from valueshare.population.settings import TrainingSettings
from valueshare.population.state import initial_state, make_population

SETTINGS = TrainingSettings(
    steps=60,
    checkpoint_interval=60,
    eval_interval=60,
    hidden=(8,),
    batch_size=4,
    learning_starts=10,
    update_interval=5,
    eval_episodes=2,
    eval_envs=2,
)


def engine(**options: Any) -> Engine:
    table = agent_table("tests/Chain-v0", "dqn", seeds=range(4))
    spec = environment_spec("tests/Chain-v0")
    population = make_population(table, SETTINGS, spec, torch.device("cpu"))
    return make_engine(population, initial_state(population), compiled=False, **options)


@pytest.mark.parametrize(
    ("threads", "groups", "expected"),
    [
        # Evaluation first, with all threads; then each group with its share, and at least one.
        (None, 1, [6, 6]),  # one a core, of which there are 6
        (None, 2, [6, 3, 3]),
        (5, 2, [5, 2, 2]),
        (1, 4, [1, 1, 1, 1, 1]),
    ],
)
def test_groups_share_threads_and_evaluation_has_all(
    monkeypatch: pytest.MonkeyPatch, threads: int | None, groups: int, expected: list[int]
) -> None:
    given: list[int | None] = []

    def noted(*arguments: Any, threads: int | None, **options: Any) -> Environments:
        given.append(threads)
        return make_environments(*arguments, threads=threads, **options)

    monkeypatch.setattr(engines, "make_environments", noted)
    monkeypatch.setattr(engines, "available_cores", lambda: 6)
    engine(threads=threads, groups=groups).close()
    assert given == expected


def test_an_engine_may_only_train() -> None:
    training = engine(evaluates=False, groups=2)
    training.executor.reset(range(4))
    training.executor.run(range(20), lambda step: None, None)
    assert training.evaluator is None
    assert int(training.state.updates) == 2  # at 10 and 15
    assert training.state.replay.written.tolist() == [20] * 4
    with pytest.raises(RuntimeError, match="only trains"):
        run_phase(training, 0, lambda step: None)
    training.close()


@pytest.mark.parametrize(
    ("settings", "expected"),
    [(SETTINGS, [False, True]), (replace(SETTINGS, eval_episodes=0, eval_timesteps=6), [True, True])],
)
def test_environments_that_stop_together_are_stepped_together(
    monkeypatch: pytest.MonkeyPatch, settings: TrainingSettings, expected: list[bool]
) -> None:
    """Those of an evaluation by timesteps do, as those of training; by episodes, each ends on its own."""
    given: list[bool] = []

    def noted(*arguments: Any, lockstep: bool, **options: Any) -> Environments:
        given.append(lockstep)
        return make_environments(*arguments, lockstep=lockstep, **options)

    monkeypatch.setattr(engines, "make_environments", noted)
    monkeypatch.setattr(sys.modules[__name__], "SETTINGS", settings)
    engine().close()
    assert given == expected
