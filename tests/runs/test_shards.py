"""Shards and splits: every agent exactly once, and no number changed."""

from collections.abc import Callable
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import valueshare
from valueshare.analysis.importers.results import read_results
from valueshare.errors import InvalidInput
from valueshare.runs.launcher_options import LauncherOptions, Shard, parse_shard, shard_folder
from valueshare.runs.plan import Plan, from_config, split, to_config
from valueshare.runs.planning import make_plan
from valueshare.runs.run import Run
from valueshare.runs.shards import end_times, longest_first, shard_plan

Cli = Callable[..., tuple[int, str, str]]


def plan(long: int = 1_000) -> Plan:
    """6 agents in 2 populations on CartPole, and 6 in 2 on Acrobot with as many steps as given."""
    made = make_plan(["CartPole-v1", "Acrobot-v1"], ["ib-dqn", "double-dqn"], k=[0, 4], seeds=2)
    settings = {env: replace(own, steps=1_000 if env == "CartPole-v1" else long) for env, own in made.settings.items()}
    return replace(made, settings=settings)


PLAN = plan()


def agents(made: Plan) -> list[int]:
    return [int(agent) for spec in made.populations.values() for agent in spec.agents["agent"]]


@settings(deadline=None)
@given(st.integers(1, 12))
def test_shards_are_an_exact_partition(count: int) -> None:
    shards = [shard_plan(PLAN, Shard(number, count)) for number in range(1, count + 1)]
    owners = [agent for shard in shards for agent in agents(shard)]
    assert sorted(owners) == list(range(12))
    sizes = [shard.agents.height for shard in shards]
    assert max(sizes) - min(sizes) <= 1  # all agents are equally long
    for shard in shards:
        rows = PLAN.agents.filter(PLAN.agents["agent"].is_in(shard.agents["agent"].to_list()))
        assert shard.agents.equals(rows)  # the same rows, with their numbers in the whole table
        assert set(shard.settings) == set(shard.backends) == set(shard.agents["env"])


def test_shards_are_equally_long() -> None:
    # 6 agents of 1,000 steps and 6 of 3,000: 24,000. Half of it, 12,000, is the first 6 and 2 of
    # the others; a quarter, 6,000, is the first 6 alone.
    longer = plan(3_000)
    assert [shard_plan(longer, Shard(i, 2)).agents.height for i in (1, 2)] == [8, 4]
    assert [shard_plan(longer, Shard(i, 4)).agents.height for i in (1, 2, 3, 4)] == [6, 2, 2, 2]


def test_populations_stay_together() -> None:
    # 12 agents in populations of 4, 2, 4 and 2: divided in the middle, no population is split.
    first, second = (shard_plan(PLAN, Shard(i, 2)) for i in (1, 2))
    assert [spec.agents.height for spec in first.populations.values()] == [4, 2]
    assert list(first.settings) == ["CartPole-v1"]
    assert list(second.settings) == ["Acrobot-v1"]
    # A split that was there stays as fine.
    fine = shard_plan(split(PLAN, 3), Shard(1, 2))
    assert [spec.agents.height for spec in fine.populations.values()] == [2, 2, 2]


def test_a_split_keeps_the_order_and_is_stored() -> None:
    fine = split(PLAN, 3)
    assert fine.chunks == {"population-0": 2, "population-2": 2}
    names = [spec.name for spec in fine.populations.values()]
    assert names == [
        *("population-0-0", "population-0-1", "population-1"),
        *("population-2-0", "population-2-1", "population-3"),
    ]
    assert agents(fine) == agents(PLAN)
    assert max(spec.agents.height for spec in fine.populations.values()) == 2  # 4 in halves, not 3 and 1
    again = from_config(to_config(fine), fine.agents)
    assert [spec.name for spec in again.populations.values()] == names
    assert split(fine, 100).chunks == fine.chunks  # never back to larger ones
    assert split(PLAN, {"population-2": 1}).chunks == {"population-2": 4}


def test_a_run_in_shards_and_chunks_is_the_run(tmp_path: Path, tiny: dict[str, Any]) -> None:
    tiny |= {"k": [0, 4], "seeds": 2}

    def train(out: Path, **options: Any) -> Run:
        return valueshare.train("CartPole-v1", "ib-dqn", out=out, launcher=LauncherOptions(**options), **tiny)

    whole = train(tmp_path / "whole").records
    assert whole.height == 4 * 3
    assert train(tmp_path / "split", population_agents=1).records.equals(whole)
    tables = [train(tmp_path / "all", shard=f"{i}/3").records for i in (1, 2, 3)]
    assert pl.concat(tables).sort("agent", "step").equals(whole)
    folders = [f"shard-{i}-of-3" for i in (1, 2, 3)]
    assert sorted(path.name for path in (tmp_path / "all").iterdir()) == folders
    together = read_results([tmp_path / "all"])
    assert (together.table.height, together.notes) == (whole.height, ())
    (note,) = read_results([tmp_path / "all" / folders[i] for i in (0, 2)]).notes
    assert note == f"{tmp_path / 'all'}: of the shards 1/3 to 3/3 only 1/3, 3/3 are here"
    another = "shards of a different split .shard-1-of-3.: use the same number of shards, or choose another `out`"
    with pytest.raises(InvalidInput, match=another):
        train(tmp_path / "all", shard="1/2")
    with pytest.raises(InvalidInput, match="this run, finished"):
        train(tmp_path / "all", shard="2/3")
    with pytest.raises(InvalidInput, match="holds a run with other settings"):
        valueshare.train("CartPole-v1", "ib-dqn", out=tmp_path / "all" / folders[0], **tiny)
    again = valueshare.resume(tmp_path / "all", launcher=LauncherOptions(shard="2/3"), progress=False)
    assert again.finished


@pytest.mark.parametrize(("small", "large", "where"), [(1, 2, "2 is in none"), (2, 1, "2 is in two")])
def test_shards_of_different_tables(
    small: int, large: int, where: str, tmp_path: Path, tiny: dict[str, Any], cli: Cli
) -> None:
    """Of 4 agents and of 8: 0 and 1 with 4 to 7, or 2 and 3 with 0 to 3."""
    for shard, ks in ((small, [0, 4]), (large, [1, 2, 8, 16])):
        launcher = LauncherOptions(shard=f"{shard}/2")
        valueshare.train("CartPole-v1", k=ks, seeds=2, out=tmp_path / "all", launcher=launcher, **tiny)
    code, out, err = cli("report", tmp_path / "all")
    assert (code, out) == (2, "")
    assert err == (
        f"valueshare: {tmp_path / 'all'}: its shards are of different tables (agent {where} of "
        "them): give those of one table\n"
    )
    assert not (tmp_path / "all" / "report").exists()


def test_what_is_no_shard() -> None:
    for text in ("0/3", "4/3", "1/0", "1", "a/b", "-1/3", "1/3/5", "/"):
        with pytest.raises(InvalidInput, match="shard = "):
            parse_shard(text)
    assert parse_shard("3/3") == Shard(3, 3)
    with pytest.raises(InvalidInput, match="the table has 12 agents"):
        shard_plan(PLAN, Shard(1, 13))
    assert shard_folder(Path("a"), Shard(7, 12)) == Path("a/shard-07-of-12")


def test_list_scheduling_by_hand() -> None:
    # 7, 5, 4, 3 on two places: 7 + 3 and 5 + 4. In the order 3, 4, 5, 7: 3 + 5 and 4 + 7.
    seconds = {"a": 3.0, "b": 4.0, "c": 5.0, "d": 7.0}
    order = longest_first(seconds)
    assert order == ["d", "c", "b", "a"]
    assert end_times([seconds[name] for name in order], 2) == [9.0, 10.0]
    assert end_times(list(seconds.values()), 2) == [8.0, 11.0]
    assert end_times([2.0], 3) == end_times([2.0], 10**19) == [2.0]  # workers without a task are not counted


@given(st.lists(st.integers(1, 20), min_size=1, max_size=6), st.integers(1, 3))
def test_longest_first_is_within_four_thirds_of_the_best(tasks: list[int], places: int) -> None:
    """Graham's bound, against every order there is."""
    named = {str(i): float(task) for i, task in enumerate(tasks)}
    ours = end_times([named[name] for name in longest_first(named)], places)[-1]
    best = min(end_times(order, places)[-1] for order in permutations(map(float, tasks)))
    assert ours <= best * (4 / 3 - 1 / (3 * places)) + 1e-9
