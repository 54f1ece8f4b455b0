"""Programs in benchmarks/: fits of made-up costs, the loss of the single-file DQN, and runs at a small scale."""

import io
import json
import runpy
import subprocess
import sys
from pathlib import Path
from statistics import mean
from typing import Any

import pytest
import torch

from valueshare.benchmarks import population
from valueshare.runs.workers import worker

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


def program(name: str, *words: str) -> str:
    command = [sys.executable, str(BENCHMARKS / name), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def line(varied: str, ms: dict[int, float]) -> list[dict[str, Any]]:
    return [{varied: size, "ms": {"learning": each}} for size, each in ms.items()]


def test_a_fit_finds_the_fixed_part_and_where_it_ends() -> None:
    sentence = runpy.run_path(str(BENCHMARKS / "cost_against_size.py"))["sentence"]
    # 2 ms + 0.5 ms per agent: equal parts at 4 agents.
    said = sentence(line("agents", {n: 2 + 0.5 * n for n in (1, 2, 8, 64)}), "agents", "learning")
    assert "proportional to agents; both are equal at about 4 (2 ms + 500 µs · agents" in said
    assert "every point within 10%" in said
    # 4 ms + 0.01 ms · width²: equal parts at width 20.
    said = sentence(line("width", {w: 4 + 0.01 * w**2 for w in (8, 16, 32, 64)}), "width", "learning")
    assert "the square of width; both are equal at about 20 (4 ms + 10 µs · width²" in said
    # Half of the batch costs less than half: a fixed part would be negative.
    said = sentence(line("batch", {8: 1.0, 16: 2.0, 32: 4.2}), "batch", "learning")
    assert said.startswith("proportional to batch from 8 to 32 (0 ms + ")
    # Costs that fall with the size: a slope would be negative.
    said = sentence(line("batch", {8: 2.0, 16: 2.0, 32: 1.0}), "batch", "learning")
    assert said.startswith("mostly fixed from 8 to 32 (1.3")  # 1/y weighs 2 · 1/2 + 1 against 2 · 1/4 + 1: 4/3 ms
    assert "32 (-25%)" in said


def test_the_loss_of_the_peer_is_that_of_dqn() -> None:
    module = runpy.run_path(str(BENCHMARKS / "single_file_dqn.py"))
    agent = module["DQN"]("gymnasium", torch.device("cpu"), compiled=False)
    torch.nn.init.normal_(agent.target[0].weight)  # another network than the online one
    agent.run(60)
    rows = agent.replay[:60]
    goes_on = rows[:-1, 10] > 0
    assert not goes_on.all()
    assert torch.equal(rows[:-1, 4:8][goes_on], rows[1:, :4][goes_on])  # s' is the next s
    errors = []
    for row in rows:
        s, s_next, action, reward, discount = row[:4], row[4:8], int(row[8]), float(row[9]), float(row[10])
        assert reward == 1.0
        assert discount == pytest.approx(0.99) or discount == 0.0
        with torch.no_grad():
            errors.append(float(agent.online(s)[action]) - reward - discount * float(agent.target(s_next).max()))
    loss = agent.td_loss(agent.replay, torch.arange(60)).item()
    assert loss == pytest.approx(mean(error**2 for error in errors), rel=1e-5)


@pytest.mark.slow
def test_the_peer_learns_cartpole() -> None:
    agent = runpy.run_path(str(BENCHMARKS / "single_file_dqn.py"))["DQN"]("gymnasium", torch.device("cpu"))
    agent.run(30_000)
    before = len(agent.returns)
    agent.run(20_000)
    assert mean(agent.returns[before:]) > 3 * mean(agent.returns[:100])


@pytest.mark.slow
def test_costs_are_measured_once(tmp_path: Path) -> None:
    words = "--agents 1 2 3 --widths 4 8 --batches 2 4 --base 2 8 4 --replay-capacity 300 --seconds 0.1 --out"
    first = program("cost_against_size.py", *words.split(), str(tmp_path))
    points = json.loads((tmp_path / "points.json").read_text())
    assert [(p["agents"], p["width"], p["batch"]) for p in points] == [
        (1, 8, 4),
        (2, 8, 4),
        (3, 8, 4),
        (2, 4, 4),
        (2, 8, 2),
    ]
    assert {path.name for path in tmp_path.glob("*.png")} == {
        f"cost-against-{s}.png" for s in ("agents", "width", "batch")
    }
    again = program("cost_against_size.py", *words.split(), str(tmp_path))
    assert json.loads((tmp_path / "points.json").read_text()) == points
    assert (first.count("took"), again.count("took")) == (5, 0)
    assert first.count("learning, against") == again.count("learning, against") == 1  # two points are not fitted


@pytest.mark.slow
def test_the_compiled_lunar_lander_against_envpool() -> None:
    lines = program("lunar_lander.py", "--counts", "9", "--blocks", "2").splitlines()
    assert [line.split()[:2] for line in lines[2:5]] == [["9", name] for name in ("random", "hovering", "landing")]


def test_where_time_goes(tmp_path: Path) -> None:
    """The parts of 60 steps of two agents; then a figure of both files."""
    files = [tmp_path / "a.json", tmp_path / "b.json"]
    for path in files:
        program("where_time_goes.py", "--agents", "2", "--steps", "60", "--label", path.stem, "--json", str(path))
        measured = json.loads(path.read_text())
        assert measured["label"] == path.stem
        assert min(measured["us"].values()) > 0
    program("where_time_goes.py", "--draw", *map(str, files), "--figure", str(tmp_path / "figure.png"))
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_one_agent_against_its_peer(tmp_path: Path) -> None:
    path = tmp_path / "one.json"
    words = "--no-compile --rounds 1 --seconds 0.1 --backends envpool --update-intervals 10 --device cpu --json"
    program("one_agent.py", *words.split(), str(path))
    rows = json.loads(path.read_text())["rows"]
    assert [row["learner"] for row in rows] == ["valueshare", "single file"]
    assert rows[1]["times_peer"] == [1.0]
    assert rows[0]["times_peer"][0] == pytest.approx(rows[0]["steps_per_s"][0] / rows[1]["steps_per_s"][0], rel=0.01)


def test_a_population_reports_its_speed_to_the_comparison_with_peers(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """against_peers_population.py as a program, in this process."""
    path = runpy.run_path(str(BENCHMARKS / "against_peers.py"))["POPULATION"]
    threads: list[int] = []
    measure = population.measure
    monkeypatch.setattr(worker, "set_up_process", threads.append)
    monkeypatch.setattr(population, "measure", lambda *words, **options: measure(*words, **options | {"seconds": 0.1}))
    monkeypatch.setattr(sys, "argv", [str(path), "4", "0.2", "eager", "1"])  # agents, seconds, compilation, threads
    monkeypatch.setattr(sys, "stdin", io.StringIO("go\n"))
    runpy.run_path(str(path), run_name="__main__")
    ready, steps_per_second = capsys.readouterr().out.split()
    assert (ready, threads) == ("ready", [1])
    assert float(steps_per_second) > 0


@pytest.mark.slow
@pytest.mark.parametrize("env", ["CartPole-v1", "MountainCar-v0"])
def test_the_settings_of_rl_zoo_are_trained_once(env: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a few steps; seeds that are in the file are left out when the command is given again."""
    path = tmp_path / "sb3.jsonl"
    names = runpy.run_path(str(BENCHMARKS / "presets_sb3.py"))
    names["PRESETS"][env] = names["PRESETS"][env]._replace(steps=300)
    for count in ("1", "2"):
        words = ["presets_sb3.py", "--env", env, "--seeds", "3", count, "--out", str(path)]
        monkeypatch.setattr(sys, "argv", words)
        names["main"]()
    records = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(record["env"], record["seed"]) for record in records] == [(env, 3), (env, 4)]
    for record in records:
        assert 300 <= record["steps"] < 300 + 256  # rounded up to a multiple of train_freq
        assert len(record["returns"]) == record["episodes"] > 0
