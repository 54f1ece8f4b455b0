"""The Atari studies by every launcher and in shards: the same agents, the same numbers."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
import torch

from valueshare import starting
from valueshare.analysis.importers.results import read_results
from valueshare.errors import InvalidInput
from valueshare.experiments.study import make_study
from valueshare.runs.launcher_options import Shard
from valueshare.runs.launchers import ExecutionOptions
from valueshare.runs.run import open_run
from valueshare.runs.shards import shard_plans

Cli = Callable[..., tuple[int, str, str]]
STUDIES = ("atari57", "atari-sensitivity", "atari-rmsprop", "atari-rdq-beta")
PLAN = ("--scale", "smoke", "--plan", "--rate", "100")


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.mark.parametrize("count", [1, 3, 7, 64])
def test_shards_of_the_papers_study_are_an_exact_partition(count: int) -> None:
    study = make_study("atari57", "paper")
    plans = list(study.runs.values())
    shards = [shard_plans(plans, Shard(number, count)) for number in range(1, count + 1)]
    for number, plan in enumerate(plans):
        own = [shard[number] for shard in shards]
        rows = pl.concat([each.agents for each in own if each is not None])
        assert rows.sort("agent").equals(plan.agents)  # each once, with its number in the study
    sizes = [sum(p.agents.height for p in shard if p is not None) for shard in shards]
    assert sum(sizes) == 1_995
    assert max(sizes) - min(sizes) <= 1  # all agents are equally long
    # Laid end to end: a shard of many has agents of one run, or of two neighbours.
    if count == 64:
        assert max(sum(plan is not None for plan in shard) for shard in shards) == 2
    for shard in shards:
        for each in (each for each in shard if each is not None):
            assert max(spec.agents.height for spec in each.populations.values()) <= 16
            assert set(each.settings) == set(each.agents["env"])


@pytest.mark.parametrize("study", STUDIES)
def test_every_study_takes_the_launchers_options(study: str, cli: Cli) -> None:
    code, text, _ = cli("reproduce", study, *PLAN, "--population-agents", "1")
    assert code == 0
    agents = 6 if study == "atari-sensitivity" else 4
    assert f"{agents} agents in 1 population, split into {agents}, 300 steps each" in text
    code, text, _ = cli("reproduce", study, *PLAN, "--shard", "2/2")
    assert (code, " agents in all of shard 2/2, " in text) == (0, True)
    code, _, err = cli("reproduce", study, "--scale", "smoke", "--plan", "--launcher", "ray",
                        "--ray-address", "127.0.0.1:1")  # fmt: skip
    assert code == 2
    assert err.startswith("valueshare: there is no Ray cluster at 127.0.0.1:1: ")


def test_memory_is_that_of_all_workers(cli: Cli) -> None:
    words = ("reproduce", "atari57", *PLAN)
    each = [cli(*words, "--population-agents", "1", *more)[1] for more in ((), ("--workers", "2"))]
    growth = re.search(r"memory: requires .* \(.* already used by this process \+ ([\d.]+) MB for 1 agent\)", each[0])
    two = re.search(r"memory: requires ([\d.]+) GB for 2 populations at once \(600.0 MB ", each[1])
    assert growth is not None
    assert two is not None
    # Two processes, each with libraries of its own.
    assert float(two[1]) == pytest.approx(2 * (float(growth[1]) / 1_000 + 0.6), abs=0.06)


def test_options_that_do_not_go_together(tmp_path: Path, cli: Cli) -> None:
    for words, message in (
        (["--launcher", "ray", "--rate", "5"], "--rate is the speed of one machine: leave it out"),
        (["--shard", "0/3"], "shards are counted from 1"),
        (["--shard", "1/9"], "the table has 4 agents; write at most as many shards"),
    ):
        out = tmp_path / "study"
        code, _, err = cli("reproduce", "atari57", "--scale", "smoke", "--out", out, *words)
        assert (code, err.count("\n"), out.exists()) == (2, 1, False), err
        assert message in err


@pytest.mark.parametrize("study", ["atari57", "lunarlander"])
def test_the_size_of_populations_is_in_the_stored_command(
    study: str, tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(plan: object, folder: object, command: str, *_: object) -> None:
        raise InvalidInput(f"stored: {command}")

    monkeypatch.setattr(starting, "start", start)
    words = f"reproduce {study} --scale smoke --population-agents 2"
    rate = ("--rate", "100") if study == "atari57" else ()
    assert cli(*words.split(), *rate, "--out", tmp_path / "study")[2] == f"valueshare: stored: valueshare {words}\n"


@pytest.mark.slow
def test_a_study_in_shards_is_the_study(tmp_path: Path, cli: Cli) -> None:
    """Two runs of 2 agents each: 3 shards have one agent, one of either run, and one."""
    study = make_study(
        "atari57",
        "smoke",
        algorithm=("dqn", "dueling-dqn"),
        seeds=2,
        steps=60,
        eval_interval=60,
        eval_timesteps=100,
        replay_capacity=200,
    )
    words = "reproduce atari57 --scale smoke --seeds 2 --steps 60 --eval-interval 60 "
    words += "--eval-timesteps 100 --replay-capacity 200 --algorithm dqn dueling-dqn"
    out = tmp_path / "all"
    for number in (1, 2, 3):
        command = [*words.split(), "--shard", f"{number}/3"]
        code, text, _ = cli(*command, "--rate", "100", "--out", out)
        assert code == 0
        assert text.endswith(f"when all shards are there: valueshare report {out}\n")
    folders = sorted(str(path.parent.relative_to(out)) for path in out.rglob("agents.parquet"))
    assert folders == [
        *("dqn/shard-1-of-3", "dqn/shard-2-of-3"),
        *("dueling-dqn/shard-2-of-3", "dueling-dqn/shard-3-of-3"),
    ]
    for name, plan in study.runs.items():
        how = ExecutionOptions(progress=False)
        whole = starting.start(plan, tmp_path / "whole" / name, "", how)
        shards = [open_run(path) for path in sorted((out / name).iterdir())]
        assert all(shard.finished for shard in shards)
        together = pl.concat([shard.records for shard in shards]).sort("agent", "step")
        assert together.equals(whole.records)
    assert read_results([out]).table.height == 4 * 2
    stored = json.loads((out / "dqn" / "shard-2-of-3" / "provenance.json").read_text())
    assert stored["command"] == f"valueshare {words} --shard 2/3"
    code, text, _ = cli(*words.split(), "--shard", "2/3", "--out", out)  # nothing is run again
    assert (code, text.count("this run is finished")) == (0, 2)
