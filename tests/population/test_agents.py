"""The table of agents, and settings that are refused."""

import dataclasses
import json
import re
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

from valueshare.algorithm_info import ALGORITHM_INFO, AlgorithmInfo
from valueshare.errors import InvalidInput
from valueshare.learning.algorithms import ALGORITHMS
from valueshare.population.agents import SCHEMA, agent_table, populations
from valueshare.population.presets import PRESETS, generic, lunarlander_paper
from valueshare.population.settings import PER_AGENT, AgentSettings, TrainingSettings
from valueshare.population.train import train_population

DOCS = Path(__file__).parents[2] / "docs"


def test_several_values_may_be_in_a_tensor_or_an_array() -> None:
    several: list[Any] = [torch.tensor([0.0, 4.0]), np.array([0.0, 4.0]), (0, 4), range(0, 8, 4)]
    for given in several:
        assert agent_table("CartPole-v1", "ib-dqn", seeds=[0], k=given)["k"].to_list() == [0, 4]
    one: Any = torch.tensor(4.0)
    assert agent_table("CartPole-v1", "ib-dqn", seeds=[0], k=one)["k"].to_list() == [4]


def test_the_table_is_the_cross_product() -> None:
    own = [AgentSettings(step_size=alpha) for alpha in (1e-3, 1e-4)]
    table = agent_table("CartPole-v1", ["dqn", "ib-dqn"], seeds=range(5, 8), k=[1, 4], agent_settings=own)
    # dqn: 1 k x 2 step sizes x 3 seeds = 6; ib-dqn: 2 x 2 x 3 = 12.
    assert table.height == 18
    assert table["agent"].to_list() == list(range(18))
    assert table.filter(algorithm="dqn")["k"].unique().to_list() == [0.0]
    assert table["seed"].to_list() == [5, 6, 7] * 6
    assert not table.drop("agent").is_duplicated().any()


def test_each_seed_is_given_once() -> None:
    with pytest.raises(InvalidInput, match=r"^`seeds`: 1 is given more than once; give each seed once$"):
        agent_table("A", "dqn", seeds=[0, 1, 1, 1])


def test_only_rdq_is_there_once_for_each_beta() -> None:
    own = [AgentSettings(step_size=alpha, beta=beta) for alpha in (0.1, 0.2) for beta in (0.3, 0.4)]
    table = agent_table("A", ["dqn", "rdq"], seeds=[0, 1], agent_settings=own)
    plain = table.filter(algorithm="dqn")
    assert plain["step_size"].to_list() == [0.1, 0.1, 0.2, 0.2]
    assert plain["beta"].unique().to_list() == [0.3]
    assert table.filter(algorithm="rdq").height == 8
    with pytest.raises(InvalidInput, match="duplicate agents"):
        agent_table("A", "dqn", seeds=[0], agent_settings=[own[0], own[0]])


def test_the_pages_name_every_column_and_setting_per_agent() -> None:
    folders, report = ((DOCS / name).read_text(encoding="utf-8") for name in ("run-folders.md", "report.md"))
    (columns,) = re.findall(r"^\| `agents.parquet` \| One row per agent: `(.*)` \|$", folders, re.MULTILINE)
    short = [re.sub("^epsilon_.*", "epsilon_*", name) for name in SCHEMA]
    assert columns == ", ".join(dict.fromkeys(short))
    (settings,) = re.findall(r"\[settings per agent\]\(settings.md\) \((.*?)\)", report)
    words = [re.sub("^epsilon .*", "epsilon", name.replace("_", " ")) for name in PER_AGENT]
    assert settings == ", ".join(dict.fromkeys(words))


def test_losses_of_one_name_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    dqn = ALGORITHMS["dqn"]
    for name in ("first", "second"):  # a partial has no name at all
        monkeypatch.setitem(ALGORITHM_INFO, name, dqn.info)
        monkeypatch.setitem(ALGORITHMS, name, dqn._replace(loss=partial(dqn.loss)))
    table = agent_table("CartPole-v1", ["dqn", "first", "second", "ib-dqn"], seeds=[0])
    assert [group["algorithm"].to_list() for group in populations(table)] == [["dqn", "ib-dqn"], ["first"], ["second"]]


def test_a_setting_that_an_algorithm_does_not_read_adds_no_agents(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ALGORITHM_INFO, "patient", AlgorithmInfo("Patient DQN", reads=("discount",)))
    monkeypatch.setitem(ALGORITHMS, "patient", ALGORITHMS["dqn"]._replace(info=ALGORITHM_INFO["patient"]))
    settings = [AgentSettings(discount=discount, step_size=step) for discount in (0.9, 0.99) for step in (1e-3, 1e-4)]
    table = agent_table("CartPole-v1", ["dqn", "patient"], seeds=[0], agent_settings=settings)
    columns = ["algorithm", "discount", "step_size"]
    assert table.select(columns).rows() == [
        ("dqn", 0.9, 1e-3),
        ("dqn", 0.9, 1e-4),
        ("patient", 0.9, 1e-3),
        ("patient", 0.9, 1e-4),
        ("patient", 0.99, 1e-3),
        ("patient", 0.99, 1e-4),
    ]


def test_populations_share_environment_network_and_loss() -> None:
    known = ["dqn", "double-dqn", "ib-dqn", "dueling-dqn", "iqn", "ib-iqn", "ib-double-dqn", "rdq"]
    shared = [
        ["dqn", "ib-dqn"],
        ["double-dqn", "ib-double-dqn"],
        ["dueling-dqn"],
        ["iqn", "ib-iqn"],
        ["rdq"],
    ]
    table = agent_table(["A", "B"], known, seeds=[0, 1], k=2.0)
    groups = populations(table)
    found = [(g["env"].unique().to_list(), g["algorithm"].unique(maintain_order=True).to_list()) for g in groups]
    assert found == [([env], group) for env in ("A", "B") for group in shared]
    assert pl.concat(groups).sort("agent").equals(table)


def test_populations_of_all_algorithms_share_network_and_loss() -> None:
    """With algorithms that are new, too."""
    groups = [set(group["algorithm"]) for group in populations(agent_table("A", list(ALGORITHMS), seeds=[0], k=2.0))]
    keys = [{ALGORITHMS[name].population_key for name in group} for group in groups]
    assert all(len(of_group) == 1 for of_group in keys)
    assert len(set().union(*keys)) == len(groups)
    assert set().union(*groups) == set(ALGORITHMS)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"batch_size": 0}, "batch_size = 0"),
        ({"batch_size": 64, "replay_capacity": 32}, "smaller than `batch_size"),
        ({"loss": "hinge"}, "half-squared, huber"),
        ({"step_size_schedule": "cosine"}, "write one of constant, linear"),
        ({"eval_episodes": 0}, "one of `eval_episodes` and `eval_timesteps`"),
        ({"eval_interval": 15_000}, "checkpoints: write `checkpoint_interval = 15000`, or a divisor of it"),
        ({"eval_epsilon": 1.5}, "`eval_epsilon = 1.5`: write a number >= 0 and <= 1"),
        ({"hidden": (128, 0)}, "`hidden = 0`: write a number >= 1"),
        ({"reward_scale": 0.0}, "`reward_scale = 0`: write a number > 0"),
        ({"adam_betas": (0.9, 1.0)}, "`adam_betas = 1`: write a number >= 0 and < 1"),
        ({"learning_starts": 0}, "learning_starts"),
        ({"batch_size": 2.5}, "`batch_size = 2.5`: write a whole number"),
        ({"steps": float("inf")}, "`steps = inf`: write a whole number"),
        ({"quantiles": float("nan")}, "`quantiles = nan`: write a whole number"),
        ({"update_interval": "4"}, "`update_interval = '4'`: write a whole number"),
        ({"hidden": (128, 1.5)}, "`hidden = 1.5`: write a whole number"),
        ({"eval_episodes": -1, "eval_timesteps": 100}, "eval_episodes = -1"),
        ({"eval_timesteps": -1}, "eval_timesteps = -1"),
        ({"eval_episode_limit": 0}, "eval_episode_limit = 0"),
        ({"eval_episode_limit": 1.5}, "eval_episode_limit = 1.5"),
        ({"adam_betas": (0.9,)}, "write 2 numbers"),
        ({"observation_scale": float("inf")}, "`observation_scale = inf`: write a finite number"),
        ({"optimizer_epsilon": float("nan")}, "optimizer_epsilon = nan"),
        ({"kappa": 1e-45}, "`kappa = 1e-45`: write a number >= 1e-30"),
    ],
)
def test_settings_that_cannot_work_are_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        TrainingSettings(**wrong)


def test_counts_are_integers_whatever_they_were_written_as() -> None:
    settings = TrainingSettings(
        steps=1e3,  # type: ignore[arg-type]
        batch_size=np.int64(8),  # type: ignore[arg-type]
        hidden=[16.0],  # type: ignore[arg-type]
        eval_episode_limit=2e1,  # type: ignore[arg-type]
    )
    found = (settings.steps, settings.batch_size, *settings.hidden)
    assert (*found, settings.eval_episode_limit) == (1_000, 8, 16, 20)
    assert {type(value) for value in (*found, settings.eval_episode_limit)} == {int}


def test_agents_that_cannot_work_are_refused() -> None:
    for wrong in ({"step_size": 0.0}, {"discount": 1.1}, {"epsilon_steps": -1}, {"beta": -1.0}):
        with pytest.raises(InvalidInput):
            AgentSettings(**wrong)
    with pytest.raises(InvalidInput, match="k = -1"):
        agent_table("CartPole-v1", "ib-dqn", seeds=[0], k=-1)
    with pytest.raises(InvalidInput, match="algorithm = 'sarsa'"):
        agent_table("CartPole-v1", "sarsa", seeds=[0])
    for seed in (-1, 2**63):
        with pytest.raises(InvalidInput, match="seeds are whole numbers from 0"):
            agent_table("CartPole-v1", "dqn", seeds=[0, seed])
    with pytest.raises(InvalidInput, match="each seed once"):
        agent_table("CartPole-v1", "dqn", seeds=[1, 1])
    with pytest.raises(InvalidInput, match="`k`: 2 is given more than once"):
        agent_table("CartPole-v1", "ib-dqn", seeds=[1], k=[2, 2])


def test_a_device_that_is_not_there_is_refused() -> None:
    table = agent_table("CartPole-v1", "dqn", seeds=[0])
    for device in ("cuda:99", "quantum", "meta"):
        with pytest.raises(InvalidInput, match="device ="):
            train_population(table, TrainingSettings(), device=device)


def test_settings_survive_json() -> None:
    presets = (generic, lunarlander_paper, *PRESETS.values())
    for preset in (make() for make in presets):
        text = json.dumps(preset.settings.to_json())
        assert TrainingSettings.from_json(json.loads(text)) == preset.settings
    with pytest.raises(InvalidInput, match="unknown settings surprise"):
        TrainingSettings.from_json({"surprise": 1})


def test_the_papers_lunarlander() -> None:
    settings, own = lunarlander_paper()
    assert (settings.hidden, settings.batch_size, settings.target_update_interval) == (
        (256, 256),
        128,
        100,
    )
    assert settings.phases == 10
    assert [p for p in range(10) if settings.evaluates_after(p)] == list(range(10))
    assert settings.replay_transitions == 100_000  # of 500,000: a run writes no more
    assert (own.step_size, own.discount, own.epsilon_end) == (1e-3, 0.99, 0.05)
    longer = dataclasses.replace(settings, steps=25_000)
    assert (longer.phases, longer.phase_end(2)) == (3, 25_000)
    assert longer.evaluates_after(2)  # the end of training, though no multiple of 10,000
