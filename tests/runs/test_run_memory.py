"""The memory a run needs: exact for what it keeps, checked before anything is made."""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from valueshare.envs import environment_spec
from valueshare.errors import InvalidInput
from valueshare.experiments.plans import make_plan
from valueshare.learning.algorithms import ALGORITHMS
from valueshare.learning.randomness import stream_key
from valueshare.population.state import (
    all_tensors,
    initial_state,
    make_population,
    network_shape,
)
from valueshare.runs import memory
from valueshare.runs.plan import parts

CPU = torch.device("cpu")


@pytest.mark.parametrize("algorithm", ["ib-dqn", "ib-iqn", "dueling-dqn"])
def test_what_is_needed_holds_the_state_and_little_more(algorithm: str) -> None:
    plan = make_plan("CartPole-v1", algorithm, seeds=5, steps=20_000, phase_steps=5_000)
    (part,) = parts(plan)
    population = make_population(
        part.agents, part.settings, environment_spec("CartPole-v1"), CPU, None
    )
    state = sum(tensor.nbytes for tensor in all_tensors(initial_state(population)))
    need = memory.need(part)
    passing = need.agents * need.per_agent - state
    weights = sum(p.nbytes for p in initial_state(population).online.parameters.values())
    # Gradients at least, and the rows of a phase: 5,000 x (4 observations + action, reward,
    # discount, row = 16 + 8 + 4 + 4 + 8 bytes) an agent.
    assert passing >= max(weights, 5 * 5_000 * 40)


def test_replay_dominates_and_is_counted_by_hand() -> None:
    (part,) = parts(make_plan("CartPole-v1", "dqn", seeds=1, steps=10**6, replay_capacity=10**6))
    (half,) = parts(
        make_plan("CartPole-v1", "dqn", seeds=1, steps=10**6, replay_capacity=10**6 // 2)
    )
    # Half a million transitions: 24 bytes each, and 1.125 rows of 4 floats.
    assert memory.need(part).per_agent - memory.need(half).per_agent == pytest.approx(
        500_000 * (24 + 1.125 * 16), rel=0.01
    )


def test_a_population_that_does_not_fit_is_refused_with_the_number_that_would(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cli: Callable[..., tuple[int, str, str]]
) -> None:
    monkeypatch.setattr(memory, "free_bytes", lambda device: 2_000_000_000)
    words = ["train", "--env", "CartPole-v1", "--algorithm", "dqn", "--out", str(tmp_path / "run")]
    code, _, err = cli(*words, "--seeds", "100000")
    assert (code, err.count("\n")) == (2, 1)
    assert "100,000 agents need" in err
    assert "2.0 GB are free" in err
    fit = int(err.split("free: ")[1].split(" would fit")[0].replace(",", ""))
    code, plan, last = cli(*words, "--seeds", "100000", "--plan")
    assert (code, last) == (2, err)
    assert "100,000 agents in 1 population" in plan
    assert "replay_capacity = " in plan
    assert not (tmp_path / "run").exists()
    (part,) = parts(make_plan("CartPole-v1", "dqn", seeds=fit))
    memory.check(memory.need(part), CPU)
    (more,) = parts(make_plan("CartPole-v1", "dqn", seeds=fit + 1))
    with pytest.raises(InvalidInput, match=f"{fit:,} would fit"):
        memory.check(memory.need(more), CPU)


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
    assert max(peaks) - plain < 100 * 10**6
    other, *messages = done.stderr.splitlines()
    assert "threads = -1" in other
    assert len(messages) == 3
    assert all("smaller layers (hidden) or" in line for line in messages)
    assert "0 would fit" in messages[-1]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("free", "settings", "advice"),
    [  # an agent: 11 MB, of which 6 MB are the network's and what learning needs of it
        (10**9, {"hidden": [300, 300]}, "give fewer seeds, smaller layers (hidden) or"),
        (310 * 10**6, {"hidden": [300, 300]}, "0 would fit; write smaller layers (hidden) or"),
        (10**9, {"hidden": [8]}, "give fewer seeds, a smaller replay-capacity or"),
        (310 * 10**6, {"hidden": [8]}, "0 would fit; write a smaller replay-capacity or"),
    ],
)
def test_advice_is_on_what_needs_most(
    free: int, settings: dict[str, Any], advice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "free_bytes", lambda device: free)
    (part,) = parts(make_plan("CartPole-v1", "dqn", seeds=1_000, steps=50_000, **settings))
    with pytest.raises(memory.DoesNotFit, match=re.escape(advice)) as caught:
        memory.check(memory.need(part), CPU)
    assert caught.value.one_fits == ("fewer seeds" in advice)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_weights_are_those_of_a_network_drawn_by_hand(algorithm: str) -> None:
    """Whatever is built on the meta device before, an agent's seed decides its weights."""
    (part,) = parts(make_plan("CartPole-v1", algorithm, seeds=[3], hidden=[8, 8]))
    memory.need(part)
    spec = environment_spec("CartPole-v1")
    state = initial_state(make_population(part.agents, part.settings, spec, CPU))
    torch.manual_seed(stream_key(3, "weights"))
    own = ALGORITHMS[algorithm].build(network_shape(part.settings, spec), 0.0)
    for name, value in own.named_parameters():
        assert torch.equal(state.online.parameters[name][0], value), name


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
    monkeypatch.setattr(memory, "_available", lambda: None)
    most = memory.free_bytes(CPU)
    assert before is None or (most is not None and before <= most)
    monkeypatch.setattr(memory, "_installed", lambda: 3 * 10**9)
    monkeypatch.setattr(memory, "_left_in_group", lambda: None)
    assert memory.free_bytes(CPU) == 3 * 10**9
    monkeypatch.setattr(memory, "_left_in_group", lambda: 2 * 10**9)
    assert memory.free_bytes(CPU) == 2 * 10**9


def test_bytes_for_people() -> None:
    assert [memory.shown(n) for n in (1_500, 2_000_000, 3_210_000_000, 10**13)] == [
        *("1.5 kB", "2.0 MB", "3.2 GB", "10.0 TB"),
    ]
