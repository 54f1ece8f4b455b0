"""Limits of an update are arithmetic, and what a benchmark prints can be read by machines."""

import json

import pytest
import torch

from valueshare.benchmarks import import_time
from valueshare.benchmarks.limits import Speed, Work, measured_speed, update_work
from valueshare.benchmarks.output import Row, shown
from valueshare.benchmarks.population import PARTS, Timing, rows_of
from valueshare.population.state import initial_state, make_population
from valueshare.runs.planning import make_plan


def work(algorithm: str, **settings: object) -> Work:
    (spec,) = make_plan("CartPole-v1", algorithm, **settings).populations.values()  # type: ignore[arg-type]
    population = make_population(spec.agents, spec.settings, spec.env_spec, torch.device("cpu"))
    return update_work(population, initial_state(population))


def test_the_work_of_an_update_is_that_of_its_matrices() -> None:
    """4 inputs, layers of 32 and 16 units, 2 actions, 3 agents; a product of a batch with a matrix has 2·B·in·out."""
    sizes = [4 * 32, 32 * 16, 16 * 2]
    # Forward in s and s'; backward for the weights of all layers, and for the inputs of all but the first.
    products = 2 * sum(sizes) + sum(sizes) + sum(sizes[1:])
    settings = {"seeds": 3, "hidden": [32, 16], "batch_size": 8, "replay_capacity": 100, "optimizer": "adam"}
    found = work("dqn", **settings)
    assert found.flops == 3 * 2 * 8 * products
    parameters = sum(sizes) + 32 + 16 + 2
    assert found.bytes == 3 * parameters * 4 * 2 * 4  # weights, gradients and two moments, read and written
    double = work("double-dqn", **settings)
    assert double.flops - found.flops == 3 * 2 * 8 * sum(sizes)  # the online network in s' too


def test_seconds_are_those_of_the_products_and_then_of_the_bytes() -> None:
    assert Work(6, 10).seconds(Speed(3.0, 5.0)) == 4.0
    speed = measured_speed(torch.device("cpu"), 0.01)
    assert 1e8 < speed.flops < 1e14
    assert 1e7 < speed.bytes < 1e13


def test_each_part_has_its_share_of_the_limit() -> None:
    timing = Timing(8, dict(zip(PARTS, (4.0, 5.0, 1.0, 0.5, 10.0), strict=True)), learning_limit=2.0)
    shares = {row.part: (row.limit.split(" at ")[0], row.share) for row in rows_of(timing) if row.limit}
    assert shares == {
        "learning alone": ("products and optimiser", 0.4),  # 2 ms of 5 ms
        "whole loop": ("learning alone", 0.5),  # 5 ms of 10 ms
    }


def test_json_for_machines(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    times = {"import numpy": [0.1, 0.3, 0.2], "import valueshare.expansion": [0.25]}
    monkeypatch.setattr(import_time, "seconds", times.__getitem__)
    import_time.run(as_json=True)
    told = json.loads(capsys.readouterr().out)
    assert told["benchmark"] == "import"
    assert [row["ms"] for row in told["rows"]] == [200.0, 250.0]
    assert told["rows"][1]["limit"] == "import numpy"
    assert told["rows"][1]["share"] == pytest.approx(0.8)
    assert "numpy" in told["versions"]
    import_time.run()
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split() == ["part", "time", "imports/s", "of", "limit", "limit;", "notes"]
    assert lines[3].split()[:6] == ["import", "valueshare.expansion", "250", "ms", "4", "0.80"]


@pytest.mark.parametrize(
    ("ms", "text"), [(1e-5, "10 ns"), (0.0034, "3.4 µs"), (3.9041, "3.904 ms"), (4200.0, "4.2 s"), (0.0, "0 ns")]
)
def test_a_time_has_the_unit_that_it_needs(ms: float, text: str) -> None:
    assert f" {text} " in shown(Row("part", ms, 1.0))
