"""Box actions in bins: the table of actions, names, and the same steps as the continuous environment."""

import warnings
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from valueshare.cli import main
from valueshare.envs import environment_spec, make_environments
from valueshare.envs.action_bins import action_table, split_bins
from valueshare.envs.base import as_keys, mix_to_int32
from valueshare.envs.envpool import _envpool
from valueshare.errors import InvalidInput
from valueshare.population.presets import generic, lunarlander, preset_for
from valueshare.runs.run_folder import open_plan

envpool = _envpool()  # imported directly, it would leave the tests after this one a Matplotlib folder in /tmp

LANDER = "LunarLanderContinuous-v3"


def test_the_table_by_hand() -> None:
    """Main engine slowest, lateral engine fastest; both bounds are there."""
    table = action_table("X-v0-bins3x2", Box(np.array([-1, 0], np.float32), np.array([1, 8], np.float32)))
    assert table.tolist() == [[-1, 0], [-1, 8], [0, 0], [0, 8], [1, 0], [1, 8]]
    assert table.dtype == np.float32
    assert action_table("X-v0", Discrete(3, start=2)).tolist() == [2, 3, 4]
    assert action_table("X-v0-bins5", Box(-2.0, 2.0, (1,))).tolist() == [[-2], [-1], [0], [1], [2]]


def test_names() -> None:
    assert split_bins(f"{LANDER}-bins15x15") == (LANDER, (15, 15))
    assert split_bins(f"{LANDER}-bins15x15").actions == 225
    for plain in (LANDER, "X-bins", "X-bins3x", "bins3", "X-bins3-v0"):
        assert split_bins(plain) == (plain, ())
    assert split_bins(f"X-bins{'x'.join(['2'] * 12)}").actions == 4_096
    assert split_bins("own_module:Thing-v0-bins4").env_id == "own_module:Thing-v0"
    spec = environment_spec(f"{LANDER}-bins7x7")
    assert (spec.name, spec.backend, spec.actions, spec.episode_limit) == (f"{LANDER}-bins7x7", "numba", 49, 1_000)
    assert environment_spec("Pendulum-v1-bins11", "gymnasium").actions == 11
    assert preset_for(f"{LANDER}-bins3x3") == lunarlander()
    assert preset_for("Pendulum-v1-bins11") == generic()


@pytest.mark.parametrize(
    ("env_id", "message"),
    [
        (LANDER, f"or bins of these, like {LANDER}-bins3x3"),
        (f"{LANDER}-bins7", f"bins of 1 action dimension and actions .*like {LANDER}-bins7x7"),
        (f"{LANDER}-bins7x7x7", "bins of 3 action dimensions"),
        (f"{LANDER}-bins1x7", "at least 2 bins"),
        (f"{LANDER}-bins65x65", "4,225 actions: write bins for at most 4,096"),
        ("Pendulum-v1-bins100000", "100,000 actions: write bins for at most 4,096"),
        (f"{LANDER}-bins{'x'.join(['2'] * 13)}", "bins of 13 action dimensions: at most 12"),
        (f"{LANDER}-bins{'x'.join(['9999'] * 1_100)}", "bins of 1,100 action dimensions: at most 12"),
        ("LunarLander-v3-bins3", "discrete already, write LunarLander-v3"),
        ("lunarlandercontinuous-v3-bins3x3", f"did you mean {LANDER}"),
        ("ALE/Pong-v5-bins3", "Pong"),
        ("Breakout-MinAtar-bins3", "no environment"),
    ],
)
def test_refusals(env_id: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message) as refusal:
        environment_spec(env_id)
    assert "\n" not in str(refusal.value)


def test_a_space_without_bounds_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"choose an environment with Discrete actions$"):
        action_table("X-v0-bins3", Box(-np.inf, np.inf, (1,)))


def test_envpool_s_bins_are_the_continuous_pool_driven_with_the_same_pairs() -> None:
    """Both reset an ended environment by id before the next step; no episode reaches its limit of 1,000 here."""
    count, seeds = 6, list(range(6))
    binned = make_environments(f"{LANDER}-bins5x3", count)
    with warnings.catch_warnings(action="ignore"):  # of float64 bounds
        pool: Any = envpool.make_gymnasium(LANDER, num_envs=count, seed=mix_to_int32(as_keys(seeds, count)))
    first, _ = pool.reset()
    np.testing.assert_array_equal(binned.reset(seeds), first)
    rng, endings = np.random.default_rng(0), 0
    for _ in range(300):
        main_bin, side_bin = rng.integers(5, size=count), rng.integers(3, size=count)
        pairs = np.stack([-1 + main_bin / 2, side_bin - 1.0], axis=1).astype(np.float32)  # [E, 2]
        result = binned.step(3 * main_bin + side_bin)
        observation, reward, terminated, _, _ = pool.step(pairs)
        np.testing.assert_array_equal(result.final_observation, observation)
        np.testing.assert_array_equal(result.reward, reward)
        np.testing.assert_array_equal(result.terminated, terminated)
        if (ended := np.flatnonzero(terminated).astype(np.int32)).size:
            endings += ended.size
            np.testing.assert_array_equal(result.observation[ended], pool.reset(ended)[0])
    assert endings > 5


def test_gymnasium_s_bins_are_the_continuous_environment_driven_with_the_same_numbers() -> None:
    binned = make_environments("Pendulum-v1-bins5", 1, backend="gymnasium")
    env = gymnasium.make("Pendulum-v1")
    np.testing.assert_array_equal(binned.reset([3])[0], env.reset(seed=3)[0])
    for action in np.random.default_rng(1).integers(5, size=100).tolist():
        result = binned.step([action])
        observation, reward, *_ = env.step(np.array([action - 2], np.float32))
        np.testing.assert_array_equal(result.final_observation[0], observation)
        assert result.reward[0] == np.float32(reward)


def test_an_environment_may_change_the_action_that_it_is_given() -> None:
    class Spoils(gymnasium.Env[Any, Any]):
        observation_space, action_space = Box(-1, 1, (1,)), Box(-1, 1, (1,))

        def reset(self, **_: Any) -> tuple[Any, dict[str, Any]]:
            return np.zeros(1, np.float32), {}

        def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
            seen = action.copy()
            action[:] = 0.5
            return seen, 0.0, False, False, {}

    gymnasium.register("Spoils-v0", lambda **_: Spoils())
    try:
        environments = make_environments("Spoils-v0-bins3", 1)
        environments.reset([0])
        assert [environments.step([0]).observation.item() for _ in range(2)] == [-1.0, -1.0]
    finally:
        del gymnasium.registry["Spoils-v0"]


def test_train_resume_report_and_play(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, env = str(tmp_path / "run"), f"{LANDER}-bins3x3"
    options = "--steps 60 --learning-starts 20 --eval-interval 30 --eval-episodes 1 --eval-episode-limit 20 --hidden 8"
    main(["train", "--env", env, "--k", "0", "9", "--seeds", "1", *options.split(), "--out", folder])
    plan = open_plan(tmp_path / "run")
    assert plan.agents["env"].unique().to_list() == [env]
    assert plan.backends == {env: "numba"}
    main(["resume", folder])
    main(["report", folder, "--figures", "learning-curves", "--resamples", "100"])
    assert env in (tmp_path / "run" / "report" / "report.html").read_text()
    main(
        [
            "play",
            folder,
            "--agent",
            "1",
            "--episodes",
            "1",
            "--episode-limit",
            "5",
            "--video",
            str(tmp_path / "episode.gif"),
        ]
    )
    assert (tmp_path / "episode.gif").stat().st_size
    assert "this run is finished" in capsys.readouterr().out
