"""Names, specs, seeds and refusals; and EnvPool's dynamics against Gymnasium's."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import get_args

import gymnasium
import numpy as np
import pytest
from numpy.typing import NDArray

from valueshare.envs import environment_spec, make_environments
from valueshare.envs.backends import BACKENDS
from valueshare.envs.base import as_keys, mix_to_int32, spec_from_spaces
from valueshare.errors import InvalidInput
from valueshare.schema import Backend
from valueshare.tabular.mdp import FiniteMDP


def test_importing_does_not_load_envpool() -> None:
    code = "import sys, valueshare.envs; sys.exit('envpool' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_every_backend_has_an_entry() -> None:
    assert set(BACKENDS) == set(get_args(Backend))


def test_lunar_lander_is_compiled() -> None:
    lander = environment_spec("LunarLander-v3")
    assert (lander.backend, lander.actions, lander.episode_limit) == ("numba", 4, 1000)
    assert replace(lander, backend="envpool") == environment_spec("LunarLander-v3", "envpool")
    binned = environment_spec("LunarLanderContinuous-v3-bins5x7")
    assert (binned.backend, binned.actions) == ("numba", 35)
    assert replace(binned, backend="envpool") == environment_spec("LunarLanderContinuous-v3-bins5x7", "envpool")


def test_envpool_where_it_has_the_id() -> None:
    assert environment_spec("CartPole-v1").backend == "envpool"
    assert environment_spec("CartPole-v1", "gymnasium").backend == "gymnasium"
    assert environment_spec("Catch-v0").episode_limit is None
    assert environment_spec("Blackjack-v1").backend == "envpool"  # no Atari game, by its version


@pytest.mark.parametrize(
    ("env_id", "backend", "message"),
    [
        ("lunarlander-v3", None, "did you mean LunarLander-v3"),
        ("CartPole-v7", "gymnasium", "did you mean CartPole-v1"),
        ("Xyzzyq", None, "no EnvPool environment, Gymnasium environment, Atari game or compiled environment"),
        ("LunarLanderContinuous-v3", None, "with Discrete actions"),
        ("Pendulum-v1", "gymnasium", "with Discrete actions"),
        ("MiniGrid-Empty-5x5-v0", None, r"observations Dict.*with Box or Discrete observations"),
        ("Blackjack-v1", "gymnasium", r"Tuple\(.*with Box or Discrete observations, or .*FlattenObservation"),
        (
            "no_such_module:Thing-v0",
            None,
            r"^there is no module 'no_such_module' .* for no_such_module\.py in this folder, ",
        ),
        ("a_module.py:Thing-v0", None, r"^there is .* without \.py, a_module:Thing-v0$"),
        ("CartPole-v1", "gym", "choose 'envpool', 'gymnasium', 'ale', 'numba' or 'jax'"),
    ],
)
def test_refusals_are_one_line(env_id: str, backend: Backend | None, message: str) -> None:
    with pytest.raises(InvalidInput, match=message) as refusal:
        make_environments(env_id, 2, backend=backend)
    assert "\n" not in str(refusal.value)
    with pytest.raises(InvalidInput, match=message):
        environment_spec(env_id, backend)


def test_a_name_that_its_module_does_not_register_is_compared_with_those_that_it_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["Cave-v0", "Corridor-v0", "Tower-v0", "my/LongCorridor-v1", "Maze-v0", "Hall-v0"]
    register = "\n".join(f"gymnasium.register({name!r}, entry_point='halls_of_mine:Hall')" for name in names)
    (tmp_path / "halls_of_mine.py").write_text(f"import gymnasium\n{register}\n")
    (tmp_path / "empty_of_mine.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(gymnasium.envs.registration, "registry", dict(gymnasium.registry))
    for _ in range(2):  # imported now, or before
        with pytest.raises(InvalidInput) as refusal:
            environment_spec("halls_of_mine:Coridor-v0")
        start, _, listed = str(refusal.value).partition(": its module registers ")
        assert start == "there is no environment 'halls_of_mine:Coridor-v0'"
        assert listed.endswith(" and 1 more")
        first, *others = listed.removesuffix(" and 1 more").split(", ")
        assert first == "halls_of_mine:Corridor-v0"
        assert len(others) == 4
        assert {name.removeprefix("halls_of_mine:") for name in others} < set(names)
    with pytest.raises(InvalidInput, match=r"^there is no environment 'halls_of_mine:Maze-v3': .* halls_of_mine:Maze-"):
        environment_spec("halls_of_mine:Maze-v3")
    with pytest.raises(InvalidInput, match="importing empty_of_mine registers no environment"):
        environment_spec("empty_of_mine:Vault-v0")
    with pytest.raises(InvalidInput, match="its module registers halls_of_mine:Corridor-v0, "):
        FiniteMDP.from_gymnasium("halls_of_mine:Coridor-v0")


def test_what_is_advised_for_other_spaces_works() -> None:
    """The example of docs/training.md: Blackjack's Tuple of 32, 11 and 2 values, a 1 for each."""
    section = (Path(__file__).parents[2] / "docs" / "training.md").read_text()
    example = section.split("## Custom environments")[1].split("```python\n")[1]
    gymnasium.registry.pop("my/FlatBlackjack-v0", None)  # another test may have run the page
    exec(example.split("```")[0], {})
    environments = make_environments("my/FlatBlackjack-v0", 3)
    assert (environments.spec.observation_shape, environments.spec.episode_limit) == ((45,), 50)
    first = environments.reset(range(3))
    assert (first.sum(1) == 3).all()
    assert set(np.unique(first)) == {0, 1}
    assert environments.step([0, 1, 0]).observation.shape == (3, 45)


def test_bad_numbers_are_refused() -> None:
    with pytest.raises(InvalidInput, match="count = 0"):
        make_environments("CartPole-v1", 0)
    with pytest.raises(InvalidInput, match="threads = 0"):
        make_environments("CartPole-v1", 1, threads=0)
    for backend in ("envpool", "gymnasium"):
        with pytest.raises(InvalidInput, match="episode_limit = 0"):
            make_environments("CartPole-v1", 1, backend=backend, episode_limit=0)
        with pytest.raises(InvalidInput, match="3 seeds for 2 environments"):
            make_environments("CartPole-v1", 2, backend=backend).reset([1, 2, 3])


def test_seeds_are_mixed_not_truncated() -> None:
    # The first output of SplitMix64 from state 0 is 0xE220A8397B1DCDAF.
    assert mix_to_int32(as_keys([0], 1))[0] == 0xE220A839 - 2**32
    keys = [*range(4_000), *(i << 32 for i in range(1, 4_000)), *(-i for i in range(1, 4_000))]
    mixed = mix_to_int32(as_keys(keys, len(keys)))
    assert len(set(mixed.tolist())) == len(keys)
    # Every bit of the seed is set in about half of them: 12,000 coins, standard deviation 55.
    bits = (mixed.view(np.uint32)[:, None] >> np.arange(32, dtype=np.uint32)) & 1
    assert np.abs(bits.sum(axis=0) - len(keys) / 2).max() < 5 * 55


def test_envpool_lunarlander_pays_the_published_reward() -> None:
    """The change of -100·distance - 100·speed - 100·|angle| + 10·legs, less 0.3 or 0.03 of fuel."""
    environments = make_environments("LunarLander-v3", 16)

    def shaping(observation: NDArray[np.float32]) -> NDArray[np.float64]:  # [E, 8] -> [E]
        x, y, vx, vy, angle, _, left, right = observation.T.astype(np.float64)
        cost = np.hypot(x, y) + np.hypot(vx, vy) + np.abs(angle)
        return np.asarray(10 * (left + right) - 100 * cost)

    last = environments.reset(range(16))
    endings = 0
    for actions in np.random.default_rng(0).integers(0, 4, (200, 16)):
        result = environments.step(actions)
        fuel = np.array([0.0, 0.03, 0.3, 0.03])[actions]  # nothing, left, main, right
        expected = shaping(result.final_observation) - shaping(last) - fuel
        expected[result.terminated] = -100.0  # random play never lands
        np.testing.assert_allclose(result.reward, expected, atol=1e-4)
        endings += int(result.terminated.sum())
        last = result.observation
    assert endings > 10


def test_envpool_cartpole_moves_as_gymnasiums() -> None:
    environments = make_environments("CartPole-v1", 8)
    env = gymnasium.make("CartPole-v1", disable_env_checker=True)
    last = environments.reset(range(8))
    for actions in np.random.default_rng(0).integers(0, 2, (60, 8)):
        result = environments.step(actions)
        for row, action in enumerate(actions.tolist()):
            env.reset()
            env.unwrapped.state = last[row].astype(np.float64)  # type: ignore[attr-defined]
            after, reward, terminated, _, _ = env.step(action)
            np.testing.assert_allclose(result.final_observation[row], after, atol=1e-6)
            assert (result.reward[row], result.terminated[row]) == (reward, terminated)
        last = result.observation


@pytest.mark.parametrize("dtype", [np.uint16, np.uint32, np.uint64])
def test_observations_that_checkpoints_cannot_hold_are_refused(dtype: type[np.integer]) -> None:
    actions: gymnasium.spaces.Discrete[np.int64] = gymnasium.spaces.Discrete(2)
    spaces = {d: gymnasium.spaces.Box(0, 100, (2,), d) for d in (dtype, np.uint8, np.int32)}
    with pytest.raises(InvalidInput, match=f"observations of {np.dtype(dtype)}") as refusal:
        spec_from_spaces("Thing-v0", "gymnasium", spaces[dtype], actions, None)
    assert "\n" not in str(refusal.value)
    for held in (np.uint8, np.int32):
        spec = spec_from_spaces("Thing-v0", "gymnasium", spaces[held], actions, None)
        assert spec.observation_dtype == held


def test_envpool_is_loaded_without_jax_and_matplotlib() -> None:
    """Importing them would take seconds of every command, for nothing. Jumanji's environments need Matplotlib."""
    code = "from valueshare.envs import environment_spec as spec; import sys; spec('CartPole-v1')"
    shown = "print(*(name in sys.modules for name in ('envpool', 'jax', 'matplotlib')))"
    jumanji = "import valueshare.envs.envpool as e; print('Maze-v0' in e.known_names('Maze-v0'))"
    script = f"{code}; {shown}; {jumanji}"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "True False False\nTrue\n"


def test_jumanji_leaves_matplotlib_as_it_is() -> None:
    """It gives Matplotlib a folder in /tmp in which only its first user may write: others would see a warning."""
    code = "import os, matplotlib, valueshare.envs.envpool as e; e.known_names('Maze-v0'); "
    code += "print([os.environ.get(name) for name in ('MPLCONFIGDIR', 'MPLBACKEND')], matplotlib.get_configdir())"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MPL")}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.startswith("[None, None]")
    assert "jumanji" not in done.stdout
