"""Atari games that differ in name alone share populations; nothing else does."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from valueshare.envs.base import EnvironmentSpec
from valueshare.errors import InvalidInput
from valueshare.population.agents import agent_table
from valueshare.population.settings import TrainingSettings
from valueshare.runs.launcher_options import parse_shard
from valueshare.runs.plan import Plan, difference, from_config, split, to_config
from valueshare.runs.plan_text import about_settings, plan_listing, plan_summary
from valueshare.runs.planning import default_folder, families, make_plan
from valueshare.runs.shards import shard_plan
from valueshare.schema import Backend

SETTINGS = TrainingSettings(steps=1_000, learning_starts=500, checkpoint_interval=100, eval_interval=100)


def game(name: str, actions: int = 18, backend: Backend = "ale") -> EnvironmentSpec:
    return EnvironmentSpec(name, backend, (84, 84), np.dtype(np.uint8), actions, 27_000, stack=4)


def plan(specs: list[EnvironmentSpec], changed: dict[str, TrainingSettings]) -> Plan:
    """Two algorithms of two architectures on every environment, one seed."""
    by_name = {spec.name: spec for spec in specs}
    settings = {name: changed.get(name, SETTINGS) for name in by_name}
    tables = [agent_table(name, ["ib-dqn", "double-dqn"], seeds=[0]) for name in by_name]
    agents = pl.concat(tables).with_columns(agent=pl.int_range(pl.len(), dtype=pl.Int64))
    backends = {name: spec.backend for name, spec in by_name.items()}
    return Plan(agents, settings, backends, families=families(settings, by_name))


def shared(made: Plan, algorithm: str = "ib-dqn") -> list[list[str]]:
    """The environments of each population of an algorithm."""
    return [spec.agents["env"].to_list() for spec in made.populations.values() if algorithm in spec.agents["algorithm"]]


def test_the_kind_of_evaluation_that_is_given_replaces_that_of_the_preset() -> None:
    """Atari's preset evaluates 125,000 timesteps, CartPole's 10 episodes."""
    of_pong = make_plan("Pong", eval_episodes=1, seeds=1).settings["ALE/Pong-v5"]
    assert (of_pong.eval_episodes, of_pong.eval_timesteps) == (1, 0)
    of_cartpole = make_plan("CartPole-v1", eval_timesteps=500, seeds=1).settings["CartPole-v1"]
    assert (of_cartpole.eval_episodes, of_cartpole.eval_timesteps) == (0, 500)
    with pytest.raises(InvalidInput, match="set one of `eval_episodes` and `eval_timesteps`"):
        make_plan("Pong", eval_episodes=1, eval_timesteps=500, seeds=1)


NOTE = (
    "note: {} is Pong by the protocol machado-2018 (docs/atari.md), not Gymnasium's defaults; "
    "change with --atari-protocol"
)


@pytest.mark.parametrize(
    ("env", "lines"),
    [
        ("CartPole-v1", ["settings: preset of CartPole-v1"]),
        ("LunarLanderContinuous-v3-bins3x3", ["settings: preset of LunarLander-v3"]),
        ("LunarLander-v2", ["settings: generic (LunarLander-v2 has no preset; LunarLander-v3 has one)"]),
        ("FrozenLake-v1", ["settings: generic (FrozenLake-v1 has no preset)"]),
        (["Acrobot-v1", "Breakout-MinAtar"], ["settings: preset of Acrobot-v1, preset of MinAtar games"]),
        (["Pong", "Breakout"], ["settings: preset of Atari games"]),
        *(
            (name, ["settings: preset of Atari games", NOTE.format(name)])
            for name in ("PongNoFrameskip-v4", "ALE/Pong-v5")
        ),
    ],
)
def test_where_the_settings_come_from(env: str | list[str], lines: list[str]) -> None:
    assert about_settings(make_plan(env, seeds=1, eval_episode_limit=100), env) == lines


def test_epsilon_that_rises_is_noted() -> None:
    note = "note: --epsilon-end is above --epsilon-start: epsilon rises, so agents explore more and more"
    for end, steps, noted in (([0.05, 0.5], 10, [note]), (0.1, 10, []), (0.5, 0, [])):  # 0 steps: 0.5 from the start
        plan = make_plan("CartPole-v1", seeds=1, epsilon_start=0.1, epsilon_end=end, epsilon_steps=steps)
        assert about_settings(plan, "CartPole-v1")[1:] == noted


def test_a_population_that_is_split_is_one_population() -> None:
    made = make_plan("CartPole-v1", ["ib-dqn", "double-dqn"], k=[0, 1], seeds=2, steps=10)
    first = plan_summary(made)[0]
    assert first == "CartPole-v1: 6 agents in 2 populations, 10 steps each"
    assert plan_summary(split(made, 1), 2)[0] == "CartPole-v1: 6 agents in 2 populations, split into 6, 10 steps each"
    dqn = make_plan("CartPole-v1", "dqn", seeds=4, steps=10)
    assert (
        plan_summary(split(dqn, 2), 2)[0]
        == "CartPole-v1: 4 agents in 1 population, split over 2 workers, 10 steps each"
    )


def test_games_of_one_kind_share_a_population() -> None:
    made = plan([game("Pong"), game("Breakout"), game("Alien")], {})
    assert shared(made) == [["Pong", "Breakout", "Alien"]]
    assert [spec.agents["algorithm"].unique().to_list() for spec in made.populations.values()] == [
        ["ib-dqn"],
        ["double-dqn"],
    ]
    assert plan_summary(made) == [
        "Pong and 2 more: 6 agents in 2 populations, 1,000 steps each",
        "note: ib-dqn with k = 0 is dqn: to share value across actions, give a k above 0",
        "6 agents, 6,000 agent-steps in all",
    ]


def test_other_settings_actions_or_backends_are_other_kinds() -> None:
    longer = replace(SETTINGS, steps=2_000)
    lagging = replace(SETTINGS, delayed_actor=True)
    specs = [
        *(game("Pong"), game("Small", actions=6), game("Long"), game("Lag"), game("Breakout")),
        *(game("A-v1", backend="envpool"), game("B-v1", backend="envpool")),
    ]
    made = plan(specs, {"Long": longer, "Lag": lagging})
    assert shared(made) == [
        ["Pong", "Breakout"],
        *(["Small"], ["Long"], ["Lag"]),
        *(["A-v1"], ["B-v1"]),
    ]
    assert {spec.settings.steps for spec in made.populations.values() if spec.env == "Long"} == {2_000}


def test_minatar_games_share_a_population() -> None:
    games = ("Breakout-MinAtar", "Freeway-MinAtar")
    plan = make_plan(games, ("dqn", "ib-dqn", "iqn"), k=[0, 6], seeds=2)
    assert [spec.agents["env"].unique().sort().to_list() for spec in plan.populations.values()] == [[*games]] * 2
    assert [set(spec.agents["algorithm"]) for spec in plan.populations.values()] == [{"dqn", "ib-dqn"}, {"iqn"}]


def test_families_are_stored_where_there_are_any() -> None:
    made = plan([game("Pong"), game("Breakout"), game("A-v1", backend="envpool")], {})
    stored = to_config(made)
    assert stored["families"] == {"Pong": "Pong", "Breakout": "Pong"}
    again = from_config(stored, made.agents)
    assert [p.agents["env"].to_list() for p in again.populations.values()] == [
        p.agents["env"].to_list() for p in made.populations.values()
    ]
    assert "families" not in to_config(plan([game("A-v1", backend="envpool")], {}))


def test_a_setting_that_an_older_version_did_not_have_is_the_default() -> None:
    wanted = to_config(plan([game("Pong")], {}))
    older = to_config(plan([game("Pong")], {}))
    del older["settings"]["Pong"]["delayed_actor"]
    assert difference(older, wanted) is None
    lagging = to_config(plan([game("Pong")], {"Pong": replace(SETTINGS, delayed_actor=True)}))
    assert difference(older, lagging) == "`delayed_actor` of Pong is false in the existing run, true now"


def test_games_go_by_their_full_names_with_their_protocol() -> None:
    made = make_plan(["Pong", "ALE/Breakout-v5"], "dqn", seeds=1)
    assert list(made.settings) == ["ALE/Pong-v5", "ALE/Breakout-v5"]
    assert {settings.atari_protocol for settings in made.settings.values()} == {"machado-2018"}
    assert shared(made, "dqn") == [["ALE/Pong-v5", "ALE/Breakout-v5"]]  # all 18 actions
    # With the actions that a game needs, Pong has 6 and Breakout 4.
    apart = make_plan(["Pong", "Breakout"], "dqn", seeds=1, atari_protocol="nature-2015")
    assert shared(apart, "dqn") == [["ALE/Pong-v5"], ["ALE/Breakout-v5"]]
    with pytest.raises(InvalidInput, match="CartPole-v1 is not an Atari game"):
        make_plan("CartPole-v1", atari_protocol="machado-2018")


def test_a_folder_of_many_games_has_a_short_name() -> None:
    made = make_plan(["Pong", "Breakout", "Alien", "Qbert"], "dqn", seeds=1)
    assert str(default_folder(made)) == "runs/ALE-Pong-v5-and-3-more-dqn"


def test_a_plan_in_full_is_what_a_user_would_write_and_only_what_applies() -> None:
    shown = plan_listing(
        make_plan("CartPole-v1", ["dqn"], seeds=2, step_size=[1e-3, 3e-4], hidden=[64, 32], loss="huber")
    )
    assert {"  --algorithm dqn", "  --seeds 2", "  --first-seed 0", "  --step-size 0.001 0.0003"} <= set(shown)
    assert {"  --hidden 64 32", "  --no-clip-rewards", "  --loss huber", "  --adam-betas 0.9 0.999"} <= set(shown)
    names = {line.split()[0] for line in shown if line.startswith("  --")}
    unused = {"--k", "--beta", "--kappa", "--quantiles", "--rmsprop-decay", "--eval-timesteps", "--tf32", "--no-tf32"}
    assert not names & (unused | {"--atari-protocol", "--replay-device"})
    made = make_plan("CartPole-v1", ["ib-iqn"], k=[0, 4], seeds=1, optimizer="rmsprop", quantiles=8, kappa=1.0)
    shown = plan_listing(made)
    assert {"  --k 0 4", "  --quantiles 8", "  --kappa 1", "  --rmsprop-decay 0.95"} <= set(shown)
    assert not [line for line in shown if line.startswith(("  --loss", "  --adam-betas", "  --beta"))]


def test_a_plan_in_full_shows_what_environments_have_in_common_once() -> None:
    shown = plan_listing(
        make_plan(["FrozenLake-v1", "FrozenLake8x8-v1"], "ib-dqn", k="n", seeds=2, backend="gymnasium")
    )
    both = "FrozenLake-v1 (gymnasium), FrozenLake8x8-v1 (gymnasium)"
    assert [line for line in shown if line.endswith("(gymnasium)")] == [both]
    assert shown.count("  --seeds 2") == 1
    # These two have 4 actions, and Acrobot 3; it has a preset of its own, with 64 units in each layer.
    envs = ["FrozenLake-v1", "FrozenLake8x8-v1", "Acrobot-v1"]
    shown = plan_listing(make_plan(envs, "ib-dqn", k="n", seeds=2, backend="gymnasium"))
    heads = [shown.index(line) for line in (f"{both}, Acrobot-v1 (gymnasium)", both, "Acrobot-v1 (gymnasium)")]
    shared, first, second = shown[heads[0] : heads[1]], shown[heads[1] : heads[2]], shown[heads[2] :]
    assert "  --seeds 2" in shared
    assert "  --seeds 2" not in [*first, *second]
    assert {"  --k 4", "  --hidden 128 128"} <= set(first)
    assert {"  --k 3", "  --hidden 64 64"} <= set(second)


def test_a_plan_in_full_lists_the_seeds_that_options_cannot_describe() -> None:
    made = make_plan("CartPole-v1", ["ib-dqn"], k=[0, 4], seeds=3)
    rows = replace(made, agents=made.agents[2:5])  # seed 2 of k = 0, seeds 0 and 1 of k = 4
    shown = plan_listing(rows)
    assert shown[-1] == "  3 of these agents, with seeds 0 to 2"
    assert not [line for line in shown if line.startswith(("  --seeds", "  --first-seed"))]


def ks(env: str | list[str], k: object) -> list[tuple[str, float]]:
    """CartPole-v1 has 2 actions, Acrobot-v1 has 3."""
    made = make_plan(env, ["double-dqn", "ib-dqn"], k=k, seeds=1)  # type: ignore[arg-type]
    return made.agents.filter(pl.col("algorithm") == "ib-dqn").select("env", "k").rows()


def test_the_layer_with_k_0_is_left_out_where_the_same_without_it_is_trained() -> None:
    made = make_plan("CartPole-v1", ["dqn", "ib-dqn", "ib-iqn"], k=[0, 2], seeds=2)
    rows = made.agents.select("agent", "algorithm", "k", "seed").rows()
    assert rows == [
        *((0, "dqn", 0, 0), (1, "dqn", 0, 1)),
        *((2, "ib-dqn", 2, 0), (3, "ib-dqn", 2, 1)),
        *((4, "ib-iqn", 0, 0), (5, "ib-iqn", 0, 1), (6, "ib-iqn", 2, 0), (7, "ib-iqn", 2, 1)),
    ]
    note = "note: ib-dqn with k = 0 is dqn, which is trained already: left out"
    assert [line for line in plan_summary(made) if "note" in line] == [note]
    assert note in plan_summary(shard_plan(made, parse_shard("2/2")))
    assert note in plan_listing(made)
    alone = make_plan("CartPole-v1", ["ib-dqn", "dqn"], seeds=1)  # k = 0 is the default
    assert alone.agents["algorithm"].to_list() == ["dqn"]
    assert f"{note}; to share value across actions, give a k above 0" in plan_summary(alone)
    stored = from_config(to_config(made), made.agents)
    assert not any("note" in line for line in plan_summary(stored))  # of a run that is resumed


def test_k_n_is_the_number_of_actions_of_each_environment() -> None:
    assert ks("CartPole-v1", "n") == ks("CartPole-v1", "N") == [("CartPole-v1", 2)]
    both = ["CartPole-v1", "Acrobot-v1"]
    cartpole, acrobot = both
    expected = [(cartpole, 0), (cartpole, 1), (cartpole, 2), (acrobot, 0), (acrobot, 1), (acrobot, 3)]
    assert ks(both, [0, 1, "n"]) == expected
    assert ks(both, iter([0, 1, "n"])) == expected
    made = make_plan(both, k="n", seeds=1)
    assert from_config(to_config(made), made.agents).agents.equals(made.agents)  # a run folder has numbers alone
    assert made.agents.schema["k"] == pl.Float64
    assert "'n'" not in str(to_config(made))


def test_k_n_that_is_given_as_a_number_too_is_one_agent() -> None:
    assert ks(["CartPole-v1", "Acrobot-v1"], ["n", 2]) == [("CartPole-v1", 2), ("Acrobot-v1", 3), ("Acrobot-v1", 2)]


@pytest.mark.parametrize(
    ("k", "message"),
    [
        (["n", "n"], "`k`: n is given more than once; write each value once"),
        ("m", r"^`k = 'm'`: write a number, or 'n', the number of actions$"),
        ([0, None], r"^`k = None`: write a number, or 'n', the number of actions$"),
    ],
)
def test_other_texts_are_no_k(k: object, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        ks("CartPole-v1", k)


def test_k_n_needs_an_algorithm_with_k() -> None:
    with pytest.raises(InvalidInput, match=r"^`k = n`: only ib-dqn, ib-double-dqn, ib-iqn have it"):
        make_plan("CartPole-v1", "dqn", k="n", seeds=1)
