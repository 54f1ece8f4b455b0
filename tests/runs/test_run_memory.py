"""The memory a run needs: exact for what it keeps, checked before anything is made."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from valueshare.envs import environment_spec
from valueshare.errors import InvalidInput
from valueshare.experiments.plans import make_plan
from valueshare.population.state import all_tensors, initial_state, make_population
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


def test_what_pytorch_keeps_for_itself_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    # 30 GB of a GPU are nobody's; PyTorch holds 100 GB of it, and tensors are in 5 GB of those.
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (30 * 10**9, 140 * 10**9))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 100 * 10**9)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 5 * 10**9)
    assert memory.free_bytes(torch.device("cuda")) == (30 + 100 - 5) * 10**9


def test_what_the_system_says_is_free() -> None:
    free = memory.free_bytes(CPU)
    assert free is None or free > 10**7


def test_bytes_for_people() -> None:
    assert [memory.shown(n) for n in (1_500, 2_000_000, 3_210_000_000, 10**13)] == [
        *("1.5 kB", "2.0 MB", "3.2 GB", "10.0 TB"),
    ]
