"""The memory a run needs: exact for what it keeps, checked before anything is made."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch

import valueshare
from valueshare import host_memory
from valueshare.envs import environment_spec
from valueshare.errors import InvalidInput
from valueshare.learning.algorithms import ALGORITHMS
from valueshare.learning.randomness import stream_key
from valueshare.population import memory
from valueshare.population.activations import network_to_measure, saved_bytes
from valueshare.population.networks import network_shape
from valueshare.population.state import all_tensors, initial_state, make_population
from valueshare.runs.planning import make_plan

CPU = torch.device("cpu")
LANDER = "LunarLanderContinuous-v3"
MANY_ACTIONS = f"{LANDER}-bins64x64"  # 4,096


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("env", ["CartPole-v1", "Breakout-MinAtar", "Pong"])
def test_small_networks_are_measured_with_weights_as_large_ones_are_without(env: str, algorithm: str) -> None:
    (spec,) = make_plan(env, algorithm, seeds=1).populations.values()
    population = make_population(spec.agents, spec.settings, spec.env_spec, torch.device("meta"))
    network = network_to_measure(population)
    large = env == "Pong" and population.algorithm.is_quantile
    assert next(network.parameters()).is_meta == large
    quantiles = population.quantile_counts.learn
    by_weights, by_shapes = (saved_bytes(each, spec.env_spec, 32, quantiles) for each in (network, population.network))
    assert by_weights == by_shapes > 0


@pytest.mark.parametrize("algorithm", ["ib-dqn", "ib-iqn", "dueling-dqn"])
def test_what_is_needed_holds_the_state_and_little_more(algorithm: str) -> None:
    plan = make_plan("CartPole-v1", algorithm, seeds=5, steps=20_000, checkpoint_interval=5_000)
    (spec,) = plan.populations.values()
    population = make_population(spec.agents, spec.settings, environment_spec("CartPole-v1"), CPU, None)
    state = sum(tensor.nbytes for tensor in all_tensors(initial_state(population)))
    need = memory.estimate(spec)
    passing = need.agents * need.per_agent - state
    weights = sum(p.nbytes for p in initial_state(population).online.parameters.values())
    # Gradients at least, and the rows of a phase: 5,000 x (4 observations + action, reward,
    # discount, row = 16 + 8 + 4 + 4 + 8 bytes) an agent.
    assert passing >= max(weights, 5 * 5_000 * 40)


def test_replay_dominates_and_is_counted_by_hand() -> None:
    (spec,) = make_plan("CartPole-v1", "dqn", seeds=1, steps=10**6, replay_capacity=10**6).populations.values()
    (half,) = make_plan("CartPole-v1", "dqn", seeds=1, steps=10**6, replay_capacity=10**6 // 2).populations.values()
    # Half a million transitions: 24 bytes each, and 1.125 rows of 4 floats.
    assert memory.estimate(spec).per_agent - memory.estimate(half).per_agent == pytest.approx(
        500_000 * (24 + 1.125 * 16), rel=0.01
    )


def test_a_population_that_does_not_fit_is_refused_with_the_number_that_would(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cli: Callable[..., tuple[int, str, str]]
) -> None:
    monkeypatch.setattr(memory, "free_bytes", lambda device: 2_000_000_000)
    monkeypatch.setattr(host_memory, "resident_bytes", lambda: 600_000_000)
    words = ["train", "--env", "CartPole-v1", "--algorithm", "dqn", "--out", str(tmp_path / "run")]
    code, _, err = cli(*words, "--seeds", "100000")
    assert (code, err.count("\n")) == (2, 1)
    assert "100,000 agents require" in err
    assert "of memory beside the 600.0 MB already used by this process;" in err
    assert "2.0 GB available" in err
    assert "available, 5% of it kept in reserve: about " in err
    fit = int(err.split("in reserve: about ")[1].split(" would fit")[0].replace(",", ""))
    code, plan, last = cli(*words, "--seeds", "100000", "--plan")
    assert (code, last) == (2, err)
    assert "100,000 agents in 1 population" in plan
    assert "  --replay-capacity " in plan
    assert not (tmp_path / "run").exists()
    (spec,) = make_plan("CartPole-v1", "dqn", seeds=fit).populations.values()
    memory.check(memory.estimate(spec), CPU)
    (more,) = make_plan("CartPole-v1", "dqn", seeds=fit + 1).populations.values()
    with pytest.raises(InvalidInput, match=f"{fit:,} would fit"):
        memory.check(memory.estimate(more), CPU)


def test_the_plan_is_what_is_held_and_what_is_to_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_memory, "resident_bytes", lambda: 600_000_000)
    monkeypatch.setattr(memory, "free_bytes", lambda device: 2_000_000_000)
    (spec,) = make_plan("CartPole-v1", "dqn", seeds=3, steps=1_000).populations.values()
    need = memory.estimate(spec)
    growth = need.device_bytes(CPU).total
    assert growth == 3 * need.device_bytes(CPU).per_agent + memory.FIXED_BYTES["cpu"]
    assert memory.check(need, CPU) == (
        f"requires {host_memory.format_bytes(600_000_000 + growth)} (600.0 MB already used by this process + "
        f"{host_memory.format_bytes(growth)} for 3 agents); 2.0 GB available"
    )


# Trains, and prints what was said before and the peak of resident memory after.
COMPARED = """
import json, re, sys, torch
from valueshare.training import train
from valueshare.runs.planning import make_plan
from valueshare.population import memory
from valueshare.population.activations import network_to_measure, saved_bytes
env, algorithm, settings = json.loads(sys.argv[1])
settings = {"steps": 60, "eval_interval": 60, "learning_starts": 40, "eval_episodes": 1} | settings
(spec,) = make_plan(env, algorithm, **settings).populations.values()
need = memory.estimate(spec)
print(need.used + need.device_bytes(torch.device("cpu")).total)
train(env, algorithm, out="run", progress=False, **settings)
print(int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) * 1024)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(
    ("env", "algorithm", "settings"),
    [
        ("CartPole-v1", "dqn", {"seeds": 8, "hidden": [1_500, 1_500]}),  # weights
        ("CartPole-v1", "dqn", {"seeds": 16, "hidden": [256, 256], "batch_size": 4_096}),  # activations
        ("CartPole-v1", "iqn", {"seeds": 4, "hidden": [256, 256], "batch_size": 128}),  # quantiles
        (MANY_ACTIONS, "dqn", {"seeds": 16, "hidden": [32, 32], "batch_size": 256}),  # outputs
        (MANY_ACTIONS, "double-dqn", {"seeds": 16, "hidden": [32, 32], "batch_size": 256}),
        (MANY_ACTIONS, "iqn", {"seeds": 2, "hidden": [32, 32], "batch_size": 32}),
        ("LunarLander-v3", "dqn", {"seeds": 4, "eval_envs": 256, "eval_episodes": 256}),  # environments
    ],
)
def test_the_peak_is_what_was_said(tmp_path: Path, env: str, algorithm: str, settings: dict[str, Any]) -> None:
    asked = json.dumps([env, algorithm, settings])
    done = subprocess.run(
        [sys.executable, "-c", COMPARED, asked],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    said, peak = map(int, done.stdout.split())
    assert 0.95 < said / peak < 1.15


@pytest.mark.parametrize("name", ["quantiles", "target_quantiles", "acting_quantiles"])
def test_quantiles_are_counted(name: str) -> None:
    settings: list[dict[str, Any]] = [{}, {name: 10**6}, {name: 10**12}]
    usual, many, too_many = (
        memory.estimate(make_plan("CartPole-v1", "iqn", seeds=1, **own).populations["population-0"]) for own in settings
    )
    # 64 states of a batch, a million quantiles of each, and 64 units in float32 at least.
    assert many.per_agent - usual.per_agent > 64 * 10**6 * 64 * 4
    with pytest.raises(memory.DoesNotFit, match="write fewer `quantiles`, smaller layers"):
        memory.check(too_many, CPU)


@pytest.mark.parametrize(
    ("algorithm", "settings", "states"),
    [  # states and quantiles of one pass
        ("dqn", {"batch_size": 256}, 256),
        ("dqn", {"batch_size": 1, "eval_envs": 2_000, "eval_episodes": 2_000}, 2_000),
        ("iqn", {"batch_size": 32}, 32 * (32 + 64)),
    ],
)
def test_outputs_are_counted(algorithm: str, settings: dict[str, Any], states: int) -> None:
    """Of every action more: its outputs at least 3 times, and a dozen times its 9 weights at most."""
    few, many = (
        memory.estimate(make_plan(env, algorithm, seeds=1, hidden=[8, 8], **settings).populations["population-0"])
        for env in (f"{LANDER}-bins45x45", MANY_ACTIONS)
    )
    numbers = (many.per_agent - few.per_agent) / (4_096 - 2_025) / 4
    assert 3 * states < numbers < 6 * states + 12 * 9


@pytest.mark.parametrize(
    "given",
    [
        {"seeds": count()},
        {"seeds": range(2**40)},
        {"seeds": 2**32},
        {"k": count()},
        {"step_size": count(1)},
        {"hidden": count(1)},
        {"k": range(100), "seeds": 99_999},
    ],
)
def test_lists_from_python_are_refused_before_they_are_made(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match=r"at most|more than"):
        make_plan("CartPole-v1", "ib-dqn", **given)


# Commands one after the other; the exit code and the peak of resident memory after each.
MEASURED = """
import re, resource, sys
from valueshare.cli import main
resource.setrlimit(resource.RLIMIT_AS, (2**35, 2**35))  # no machine is brought down by a mistake
for options in sys.argv[1:]:
    try:
        main(["train", "--env", "CartPole-v1", *options.split()])
    except SystemExit as end:
        peak = re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())
        print(end.code, int(peak[1]) * 1024)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_network_is_refused_by_its_shapes_alone(tmp_path: Path) -> None:
    """One copy of the weights would be 20,000 x 20,000 x 4 bytes = 1.6 GB, or 4 TB."""
    refused = ["--threads -1"]  # for another reason, at the same place
    for hidden in (
        "20000 20000 --seeds 2000",
        "20000 20000 --seeds 2000 --plan",
        "1000000 1000000",
    ):
        refused.append(f"--hidden {hidden}")
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, *refused],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    answers = [line.split() for line in done.stdout.splitlines() if re.fullmatch(r"2 \d+", line)]
    plain, *peaks = [int(peak) for _, peak in answers]
    assert len(peaks) == 3, done
    assert max(peaks) - plain < 400 * 10**6  # modules of PyTorch: 160 MB in its build for CUDA
    other, *messages = done.stderr.splitlines()
    assert "--threads -1: " in other
    assert len(messages) == 3
    assert all("smaller layers (--hidden) or" in line for line in messages)
    assert "0 would fit" in messages[-1]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("free", "settings", "advice"),
    [  # an agent: 11 MB, of which 6 MB are the network's and what learning needs of it
        (10**9, {"hidden": [300, 300]}, "give fewer seeds, smaller layers (`hidden`) or"),
        (45 * 10**6, {"hidden": [300, 300]}, "0 would fit; write smaller layers (`hidden`) or"),
        (10**9, {"hidden": [8]}, "give fewer seeds, a smaller `replay_capacity`, or"),
        (41 * 10**6, {"hidden": [8]}, "0 would fit; write a smaller `replay_capacity`, or"),
        (10**9, {"hidden": [8], "eval_envs": 10**6, "eval_episodes": 10**6}, "fewer `eval_envs`"),
        (
            10**9,
            {"hidden": [8], "eval_interval": 1, "checkpoint_interval": 1},
            "fewer evaluations (a larger",
        ),
    ],
)
def test_advice_is_on_what_needs_most(
    free: int, settings: dict[str, Any], advice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "free_bytes", lambda device: free)
    (spec,) = make_plan("CartPole-v1", "dqn", seeds=1_000, steps=50_000, **settings).populations.values()
    with pytest.raises(memory.DoesNotFit, match=re.escape(advice)) as caught:
        memory.check(memory.estimate(spec), CPU)
    assert bool(caught.value.population_agents) == (": 0 would fit" not in str(caught.value))


def test_the_first_advice_is_a_size_of_populations_that_fits(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cli: Callable[..., tuple[int, str, str]]
) -> None:
    """It changes no setting and no seed, so it is before what does; a run that is resumed is not split again."""
    monkeypatch.setattr(memory, "free_bytes", lambda device: 23_900_000_000)
    monkeypatch.setattr(host_memory, "resident_bytes", lambda: 419_000_000)
    study = ("reproduce", "lunarlander", "--scale", "paper", "--device", "cpu", "--workers", "1", "--plan")
    code, _, err = cli(*study, "--out", tmp_path / "study")
    assert (code, err.count("\n")) == (2, 1)
    problem, advice = err.split(" would fit; ")
    fit = int(problem.split("about ")[1].replace(",", ""))
    shown = re.fullmatch(
        r"write --population-agents (\d+), which keeps all settings and seeds; otherwise give fewer seeds, "
        r"a smaller --replay-capacity, or --replay-device disk\n",
        advice,
    )
    assert shown is not None, advice
    # With two digits, and at least a tenth below what fits: 1,998 agents, so 1,700.
    assert int(shown[1]) == fit * 9 // 10 // 100 * 100
    assert cli(*study, "--out", tmp_path / "study", "--population-agents", shown[1])[0] == 0


@pytest.mark.parametrize(
    ("fit", "agents"), [(0, 0), (1, 1), (9, 9), (11, 9), (57, 51), (1_998, 1_700), (99_999, 89_000)]
)
def test_sizes_of_populations_are_round(fit: int, agents: int) -> None:
    required = memory.MemoryNeed(10**6, 95, 0)
    assert memory.population_agents_advised(required, 100 * fit) == agents


def test_a_resumed_run_is_not_advised_to_split(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cli: Callable[..., tuple[int, str, str]]
) -> None:
    valueshare.train("CartPole-v1", seeds=40, steps=40, eval_interval=40, eval_episodes=1, out=tmp_path / "run")
    monkeypatch.setattr(memory, "free_bytes", lambda device: 150_000_000)
    code, _, err = cli("extend", tmp_path / "run", "--steps", "80000")
    assert (code, "would fit; give fewer seeds" in err, "population" in err) == (2, True, False), err


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_weights_are_those_of_a_network_drawn_by_hand(algorithm: str) -> None:
    """Whatever is built on the meta device before, an agent's seed decides its weights."""
    (spec,) = make_plan("CartPole-v1", algorithm, seeds=[3], hidden=[8, 8]).populations.values()
    memory.estimate(spec)
    env = spec.env_spec
    state = initial_state(make_population(spec.agents, spec.settings, env, CPU))
    torch.manual_seed(stream_key(3, "weights"))
    own = ALGORITHMS[algorithm].build(network_shape(spec.settings, env), 0.0)
    for name, value in own.named_parameters():
        assert torch.equal(state.online.parameters[name][0], value), name


def test_on_a_gpu_the_host_has_room_for_the_copy_of_a_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = torch.device("cuda")
    settings: dict[str, Any] = {"steps": 100_000, "checkpoint_interval": 10_000, "eval_interval": 10_000}
    plan = make_plan("LunarLander-v3", "dqn", seeds=100, hidden=[256, 256], **settings)
    need = memory.estimate(plan.populations["population-0"])
    weights = 8 * 256 + 256 + 256 * 256 + 256 + 256 * 4 + 4
    # Weights, targets and two moments in float32; 10,000 transitions of 24 bytes each, and 1.125 rows of 8 floats.
    copy = 4 * 4 * weights + 10_000 * (24 + 1.125 * 32)
    assert need.checkpoint_copy_per_agent == pytest.approx(copy, rel=0.01)
    room = {"cuda": 10**12, "cpu": 100 * need.host_per_agent + int(0.9 * 100 * copy)}
    monkeypatch.setattr(memory, "free_bytes", lambda device: room[device.type])
    with pytest.raises(
        memory.DoesNotFit, match=r"100 agents require .* of host memory .* smaller `checkpoint_interval`$"
    ):
        memory.check(need, gpu)
    assert memory.process_bytes(need, gpu) > 100 * (need.host_per_agent + 0.99 * copy)
    room["cpu"] = int(1.1 * memory.process_bytes(need, gpu))
    memory.check(need, gpu)
    for_200 = memory.process_bytes(need._replace(agents=200), gpu) / memory.USABLE
    assert memory.most_agents(need, gpu, room["cuda"], int(for_200)) in (199, 200)


def test_what_pytorch_keeps_for_itself_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    # 30 GB of a GPU are nobody's; PyTorch holds 100 GB of it, and tensors are in 5 GB of those.
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (30 * 10**9, 140 * 10**9))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 100 * 10**9)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 5 * 10**9)
    assert memory.free_bytes(torch.device("cuda")) == (30 + 100 - 5) * 10**9


def test_what_the_system_says_is_free() -> None:
    free = memory.free_bytes(CPU)
    assert free is None or free > 10**7


def test_where_the_system_does_not_say_what_is_free_there_is_no_more_than_all_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = memory.free_bytes(CPU)
    monkeypatch.setattr(host_memory, "_available", lambda: None)
    most = memory.free_bytes(CPU)
    assert before is None or (most is not None and before <= most)
    monkeypatch.setattr(host_memory, "_installed", lambda: 3 * 10**9)
    monkeypatch.setattr(host_memory, "_left_in_group", lambda: None)
    assert memory.free_bytes(CPU) == 3 * 10**9
    monkeypatch.setattr(host_memory, "_left_in_group", lambda: 2 * 10**9)
    assert memory.free_bytes(CPU) == 2 * 10**9


def test_bytes_for_people() -> None:
    assert [host_memory.format_bytes(n) for n in (1_500, 2_000_000, 3_210_000_000, 10**13)] == [
        *("1.5 kB", "2.0 MB", "3.2 GB", "10.0 TB"),
    ]
