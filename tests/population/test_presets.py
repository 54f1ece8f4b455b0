"""Presets by environment: which one, what the docs say of them, and what they reach."""

from dataclasses import asdict
from pathlib import Path

import polars as pl
import pytest

from valueshare.learning.algorithms import ALGORITHMS
from valueshare.nn.torsos import NetworkShape
from valueshare.population.agents import agent_table
from valueshare.population.presets import (
    PRESETS,
    Preset,
    acrobot,
    atari,
    cartpole,
    generic,
    lunarlander,
    lunarlander_paper,
    mountaincar,
    preset_for,
)
from valueshare.population.train import train_population

DOCS = Path(__file__).parents[2] / "docs" / "settings.md"


def test_a_preset_goes_by_its_environment() -> None:
    for env, preset in PRESETS.items():
        assert preset_for(env) == preset()
    assert preset_for("LunarLander-v3") == lunarlander() != lunarlander_paper()
    assert preset_for("Blackjack-v1") == generic()


@pytest.mark.parametrize(
    ("observation", "hidden"), [((4, 84, 84), (512,)), ((1, 36, 50), (512,)), ((3, 20, 20), (128,)), ((7,), (128, 128))]
)
def test_the_generic_preset_fits_the_network_of_the_observations(
    observation: tuple[int, ...], hidden: tuple[int, ...]
) -> None:
    settings = preset_for("my/Own-v0", ["dqn"], observation).settings
    assert settings.hidden == hidden
    ALGORITHMS["dqn"].build(NetworkShape(observation, 3, settings.hidden, settings.observation_scale), 0.0)


def test_the_papers_presets_have_its_initial_weights_and_those_for_everyday_use_pytorch_s() -> None:
    for preset in (lunarlander_paper(), preset_for("ALE/Pong-v5")):
        assert preset.settings.initialization == "paper"
    for preset in (generic(), cartpole(), acrobot(), mountaincar(), lunarlander()):
        assert preset.settings.initialization == "pytorch"


def test_the_table_of_the_docs_is_that_of_the_code() -> None:
    """Every row of one setting, in every column."""
    text = DOCS.read_text().split("## Presets")[1].split("\n## ")[0]
    rows = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("| `")]
    presets = [generic(), cartpole(), acrobot(), mountaincar(), lunarlander()]
    presets += [lunarlander_paper(), atari()]
    compared = 0
    for name, *shown in ([cell.strip() for cell in row] for row in rows):
        if name.count("`") == 2 and name != "`eval_episode_limit`":
            assert [_number(cell) for cell in shown] == [_setting(p, name.strip("`")) for p in presets]
            compared += 1
    assert compared >= 18


def _setting(preset: Preset, name: str) -> object:
    value = {**asdict(preset.settings), **asdict(preset.agent_settings)}[name]
    return list(value) if isinstance(value, tuple) else value


def _number(cell: str) -> object:
    """128 128 -> [128, 128]; off -> False; 5e-4 -> 0.0005; huber -> huber."""
    if cell in ("on", "off"):
        return cell == "on"
    plain = cell.replace(",", "")
    try:
        numbers = [float(word) for word in plain.split()]
    except ValueError:
        return plain
    return numbers if len(numbers) > 1 or numbers == [512.0] else numbers[0]


@pytest.mark.slow
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize(
    ("env", "least"),
    [
        ("CartPole-v1", 475.0),
        ("Acrobot-v1", -100.0),
        ("MountainCar-v0", -130.0),
        ("LunarLander-v3", 150.0),
    ],
)
def test_a_preset_learns_its_environment(env: str, least: float) -> None:
    """The mean of 16 seeds in the last evaluation, for k = 0: docs/presets.md."""
    preset = preset_for(env)
    table = agent_table(env, "ib-dqn", seeds=range(16), agent_settings=preset.agent_settings)
    records = train_population(table, preset.settings).records
    last = records.filter(pl.col("step") == preset.settings.steps)
    assert last["score"].null_count() == 0
    assert last["score"].mean() >= least, last["score"].to_list()  # type: ignore[operator]
