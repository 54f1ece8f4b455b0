"""Atari environments: lives, no-ops, turns, names, and all that the emulator must not do."""

import dataclasses
import inspect
import subprocess
import sys
from typing import Any, ClassVar, cast

import ale_py
import numpy as np
import pytest
from ale_py import roms

from valueshare.envs import (
    EnvironmentSpec,
    atari57,
    atari_game,
    atari_protocol,
    environment_spec,
    make_environments,
)
from valueshare.envs.atari import AtariEnvironments, _share
from valueshare.envs.base import as_keys
from valueshare.envs.emulators import emulator_seeds, indices
from valueshare.errors import InvalidInput
from valueshare.schema import Backend


def test_spec_of_a_game() -> None:
    expected = EnvironmentSpec("ALE/MsPacman-v5", "ale", (84, 84), np.dtype(np.uint8), 18, 27_000, stack=4)
    assert expected.network_shape == (4, 84, 84)
    for name in ("MsPacman", "ms_pacman", "MsPacman-v5", "ALE/MsPacman-v5", "MsPacmanNoFrameskip-v4", "MsPacman-v0"):
        assert environment_spec(name) == expected
    assert environment_spec("CartPole-v1").network_shape == (4,)
    minimal = environment_spec("Pong", protocol="nature-2015")
    assert (minimal.actions, minimal.episode_limit) == (6, 27_000)
    mixed = environment_spec(["Pong", "Breakout", "Pong"])
    assert mixed == dataclasses.replace(expected, name="Breakout+Pong")
    environments = make_environments(["Pong", "Breakout"], 2, episode_limit=9)
    assert environments.spec == dataclasses.replace(mixed, episode_limit=9)


@pytest.mark.parametrize(
    ("names", "arguments", "message"),
    [
        ("Pongg", {}, r"no environment 'Pongg': did you mean Pong\?"),
        ("ALE/Brekout-v5", {}, "did you mean Breakout"),
        ("Pong-ram-v4", {}, r"no Atari game.*did you mean Pong\?"),
        ("ALE/Pong-v7", {}, r"no Atari game.*did you mean Pong\?"),
        ("Zzzzq", {"backend": "ale"}, "no Atari game 'Zzzzq': none is near"),
        ("Pong", {"protocol": "machado"}, "did you mean machado-2018.*There are .*nature-2015"),
        ("CartPole-v1", {"protocol": "machado-2018"}, "CartPole-v1 is not an Atari game"),
        (["Pong", "CartPole-v1"], {}, "cannot be mixed"),
        (["CartPole-v1", "Acrobot-v1"], {}, "cannot be mixed"),
        (["Pong", "Breakout"], {"protocol": "nature-2015"}, r"\(Breakout 4, Pong 6\).*all 18"),
    ],
)
def test_refusals_are_one_line(names: Any, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message) as refusal:
        make_environments(names, 2 if isinstance(names, list) else 1, **arguments)
    assert "\n" not in str(refusal.value)
    with pytest.raises(InvalidInput, match=message):
        environment_spec(names, cast(Backend, arguments.get("backend")), arguments.get("protocol"))


def test_bad_numbers_are_refused() -> None:
    with pytest.raises(InvalidInput, match="2 names for 3 environments"):
        make_environments(["Pong", "Pong"], 3)
    with pytest.raises(InvalidInput, match="episode_limit = 0"):
        make_environments("Pong", 1, episode_limit=0)
    with pytest.raises(InvalidInput, match="at least one"):
        environment_spec([])
    with pytest.raises(InvalidInput, match="3 seeds for 1"):
        make_environments("Pong", 1).reset([1, 2, 3])


def test_emulator_seeds_are_not_negative_and_differ() -> None:
    # The first output of SplitMix64 from state 0 is 0xE220A839..., without its first bit:
    assert emulator_seeds(as_keys([0], 1))[0] == 0x6220A839
    seeds = emulator_seeds(as_keys(range(20_000), 20_000))
    assert seeds.min() >= 0
    assert len(set(seeds.tolist())) > 19_990  # 20,000² / 2^32 = 0.09 pairs are expected to meet


def test_actions_that_a_game_has_not_do_nothing() -> None:
    assert indices(range(18), 18) == list(range(18))
    assert indices([0, 1, 3, 4], 4) == [0, 1, 2, 3]  # Breakout's minimal ones
    # Skiing: ALE's 0 and 2 to 9 are there, FIRE (1) and all with FIRE (10 to 17) are not.
    skiing = indices([0, *range(2, 10)], 18)
    assert skiing == [0, 0, 1, 2, 3, 4, 5, 6, 7, 8] + [0] * 8


def test_threads_are_shared_out() -> None:
    assert _share(threads=16, size=16, total=16) == 16
    assert [_share(16, 1, 16)] * 16 == [1] * 16  # sixteen games
    assert _share(16, 8, 24) == 6  # a third of 16, rounded up
    assert _share(2, 1, 8) == 1
    assert _share(64, 4, 4) == 4  # more would have nothing to do


def test_turns_masks_and_actions() -> None:
    environments = make_environments(["Pong", "Pong", "Freeway"], 3, lockstep=True)
    with pytest.raises(RuntimeError, match="send follows reset"):
        environments.send([0, 0, 0])
    seeds = [1, 2, 3]
    first = environments.reset(seeds)
    with pytest.raises(RuntimeError, match="receive follows send"):
        environments.receive()
    for wrong in ([0, 0, 18], [-1, 0, 0]):
        with pytest.raises(RuntimeError, match="actions are from 0 to 17"):
            environments.send(wrong)
    with pytest.raises(RuntimeError, match="3 environments"):
        environments.send([0, 0])
    with pytest.raises(RuntimeError, match="are stepped together"):
        environments.send([0, 0, 0], np.array([True, False, True]))
    # Pong alone moves: 20 steps, in which Freeway stays at its first picture.
    for _ in range(20):
        result = environments.step([2, 5, 2], np.array([True, True, False]))
        np.testing.assert_array_equal(result.observation[2], first[2])
    assert not np.array_equal(result.observation[0], first[0])
    nobody = environments.step([0, 0, 0], np.zeros(3, np.bool_))
    np.testing.assert_array_equal(nobody.observation, result.observation)
    # A step that nobody received does not leak into what follows, nor do kept results change.
    kept = [field.copy() for field in result]
    environments.send([0, 0, 0])
    with pytest.raises(RuntimeError, match="send follows reset or receive"):
        environments.send([0, 0, 0])
    np.testing.assert_array_equal(environments.reset(seeds), first)
    again = [environments.step([2, 5, 2]) for _ in range(20)][-1]
    for before, copy, after in zip(result, kept, again, strict=True):
        np.testing.assert_array_equal(before, copy)
        np.testing.assert_array_equal(copy[:2], after[:2])
    environments.close()
    with pytest.raises(RuntimeError, match="send follows reset"):
        environments.send([0, 0, 0])


def test_termination_on_the_step_of_the_limit() -> None:
    def first_end(limit: int | None) -> tuple[int, bool, bool]:
        environments = make_environments("Breakout", 1, episode_limit=limit)
        environments.reset([11])
        for step, action in enumerate(np.random.default_rng(0).integers(0, 18, 999), start=1):
            result = environments.step([action])
            if result.terminated[0] or result.truncated[0]:
                return step, bool(result.terminated[0]), bool(result.truncated[0])
        raise AssertionError("the episode continues")

    length, terminated, truncated = first_end(None)
    assert (terminated, truncated) == (True, False)
    assert first_end(length) == (length, True, False)
    assert first_end(length - 1) == (length - 1, False, True)


def test_a_lost_life_ends_an_episode_of_training_and_not_the_game() -> None:
    """Breakout has 5 lives: a game is 5 training episodes, and one of evaluation."""
    training = make_environments("Breakout", 2, protocol="nature-2015", lockstep=True)
    evaluation = make_environments("Breakout", 2, protocol="nature-2015", evaluation=True)
    np.testing.assert_array_equal(training.reset([1, 2]), evaluation.reset([1, 2]))
    lives = games = np.zeros(2, int)
    for actions in np.random.default_rng(0).integers(0, 4, (700, 2)):
        ours, whole = training.step(actions), evaluation.step(actions)
        for name in ("observation", "reward", "final_observation", "truncated"):
            np.testing.assert_array_equal(getattr(ours, name), getattr(whole, name))
        lives, games = lives + ours.terminated, games + whole.terminated
        assert ours.terminated[whole.terminated].all()
        lost = ours.terminated & ~whole.terminated  # the game continues from the same picture
        np.testing.assert_array_equal(ours.observation[lost], ours.final_observation[lost])
        np.testing.assert_array_equal(lives[whole.terminated], 5 * games[whole.terminated])
    assert games.sum() >= 4


def test_the_limit_counts_the_whole_game_where_lives_end_episodes() -> None:
    environments = make_environments("Breakout", 1, protocol="nature-2015", episode_limit=60)
    environments.reset([1])
    ends = []
    for step, action in enumerate(np.random.default_rng(0).integers(0, 4, 180), start=1):
        result = environments.step([action])
        if result.terminated[0] or result.truncated[0]:
            ends.append((step, bool(result.truncated[0])))
    assert [step for step, cut in ends if cut] == [60, 120, 180]
    assert [step for step, cut in ends if not cut]  # lives were lost between


class Scripted:
    """In the place of ale-py's vector environment: one environment, its lives as written."""

    settings: ClassVar[dict[str, Any]] = {}
    lives: ClassVar[list[int]] = []

    def __init__(self, **settings: Any) -> None:
        type(self).settings = settings
        self.steps = 0
        self.ale = self

    def get_action_set(self) -> list[ale_py.Action]:
        return [ale_py.Action.NOOP, ale_py.Action.FIRE, ale_py.Action.RIGHT, ale_py.Action.LEFT]

    def reset(self, **_: Any) -> tuple[Any, dict[str, Any]]:
        return self._frames(), {"lives": np.array([self.lives[self.steps]])}

    def send(self, actions: Any) -> None:
        self.steps += 1

    def recv(self) -> tuple[Any, ...]:
        off = np.zeros(1, np.bool_)
        info = {"lives": np.array([self.lives[self.steps]])}
        return self._frames(), np.zeros(1, np.int32), off, off, info

    def _frames(self) -> Any:
        return np.full((1, 1, 84, 84), self.steps, np.uint8)


def test_which_steps_lose_a_life(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("valueshare.envs.atari.vector_environment", lambda: Scripted)
    Scripted.lives = [3, 3, 2, 2, 3, 1, 0, 0]
    environments = make_environments("Breakout", 1, protocol="nature-2015", episode_limit=5)
    environments.reset([1])
    results = [environments.step([0]) for _ in range(7)]
    # From 3 to 2, and from 3 to 1, on the step of the limit: the lost life is what ended it. At 0
    # lives the game is not over yet.
    assert [bool(r.terminated[0]) for r in results] == [
        False,
        True,
        False,
        False,
        True,
        False,
        False,
    ]
    assert not any(r.truncated[0] for r in results)
    # Every setting of the vector environment is given: its defaults are not the protocol's.
    assert Scripted.settings == {
        "game": "breakout",
        "num_envs": 1,
        "num_threads": 1,
        "batch_size": 0,
        "autoreset_mode": "SameStep",
        "repeat_action_probability": 0.0,
        "full_action_space": False,
        "frameskip": 4,
        "maxpool": True,
        "noop_max": 31,
        "use_fire_reset": False,
        "episodic_life": False,
        "life_loss_info": False,
        "reward_clipping": False,
        "max_num_frames_per_episode": 2**30,
        "img_height": 84,
        "img_width": 84,
        "grayscale": True,
        "stack_num": 1,
    }
    known = set(inspect.signature(ale_py.AtariVectorEnv.__init__).parameters)
    left = {"self", "thread_affinity_offset", "continuous", "continuous_action_threshold"}
    assert known == left | set(Scripted.settings)


def test_no_ops_from_none_to_the_most() -> None:
    protocol = dataclasses.replace(atari_protocol("nature-2015"), max_noops=3)
    environments: Any = make_environments("Pong", 4, protocol=protocol, lockstep=True)
    environments.reset([1, 2, 3, 4])
    vector = environments._groups[0].vector
    frames = {int(n) for _ in range(15) for n in vector.reset()[1]["episode_frame_number"]}
    assert frames == {0, 1, 2, 3}  # 60 draws; one value is missing with probability 1e-7


def test_nothing_is_printed() -> None:
    code = "from valueshare.envs import make_environments as m\nm('Freeway', 1, protocol='nature-2015').reset([1])"
    ran = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
    assert (ran.stdout, ran.stderr) == (b"", b"")


def test_the_57_games() -> None:
    names = atari57()
    assert (len(names), names[0], names[-1]) == (57, "Alien", "Zaxxon")
    pong = atari_game("Pong")
    assert (pong.rom, pong.env_id, pong.random, pong.human) == ("pong", "ALE/Pong-v5", -20.7, 14.6)
    for name in names:
        game = atari_game(name)
        assert game.name == name
        assert game.random is not None
        assert game.human is not None
        assert ale_py.ALEInterface.isSupportedROM(cast(Any, roms.get_rom_path(game.rom)))
    assert atari_game("Adventure") == ("Adventure", "adventure", None, None)  # not of the 57


@pytest.mark.slow
def test_the_57_games_start_and_move() -> None:
    environments = make_environments(atari57(), 57, lockstep=True)
    first = environments.reset(range(57))  # Amidar's is black
    moved = np.zeros(57, bool)
    for actions in np.random.default_rng(0).integers(0, 18, (100, 57)):
        result = environments.step(actions)
        moved |= (result.observation != first).any((1, 2))
    assert moved.all()


def test_raw_steps_go_to_the_emulators_by_their_own_indices() -> None:
    # Two copies with one seed: what one makes of the actions by itself, the other is told.
    names, seeds = ["Pong", "Skiing"], [3, 4]
    by_hand, raw = (AtariEnvironments(names, atari_protocol(), threads=1, lockstep=True) for _ in range(2))
    by_hand.reset(seeds)
    raw.reset(seeds)
    # Skiing has no FIRE (1) and calls ALE's 3 its second; Pong has all 18.
    assert raw.emulator_actions(np.array([[1, 1], [3, 3]])).tolist() == [[1, 0], [3, 2]]
    actions = np.random.default_rng(0).integers(18, size=(12, 2))
    for chosen in actions[:-1]:
        by_hand.step(chosen)
        raw.raw_step(raw.emulator_actions(chosen))
    np.testing.assert_array_equal(raw.step(actions[-1]).observation, by_hand.step(actions[-1]).observation)
