"""The speed of a population is measured shortly, and leaves nothing."""

import gc
import weakref
from dataclasses import replace
from typing import Any, Literal

import pytest

from valueshare.experiments.study import make_study
from valueshare.population import train
from valueshare.population.engine import Engine, make_engine
from valueshare.population.state import Population
from valueshare.runs.workers import tasks


@pytest.mark.parametrize(("place", "groups"), [("disk", 2), pytest.param(None, 99, marks=pytest.mark.slow)])
def test_the_rate_of_a_plan_is_measured_shortly_and_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, place: Literal["disk"] | None, groups: int
) -> None:
    engines: list[weakref.ref[Any]] = []
    seen: list[tuple[int, int | None, str | None]] = []

    def noted(population: Population, *arguments: Any, **options: Any) -> Engine:
        engine = make_engine(population, *arguments, **options)
        engines.append(weakref.ref(engine.executor))
        device = population.settings.replay_device
        seen.append((options["groups"], options["threads"], device))
        assert population.settings.replay_capacity <= tasks.MEASURE_REPLAY
        return engine

    monkeypatch.setattr(train, "make_engine", noted)
    monkeypatch.setattr(tasks, "MEASURE_SECONDS", 0.1)
    monkeypatch.setattr(tasks, "WARM_UP_STEPS", 8)
    (plan,) = make_study("atari57", "smoke", replay_device=place).runs.values()
    spec = plan.populations["population-0"]
    spec = replace(spec, agents=spec.agents.head(2))
    rate = tasks.population_speed(spec, "cpu", compiled=False, threads=2, groups=groups)
    assert 0 < rate < 100_000
    assert seen == [(min(groups, spec.agents.height), 2, place)]
    gc.collect()
    assert [engine() for engine in engines] == [None]
