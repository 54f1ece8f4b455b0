"""Environments that are rendered: one at a time, with an image of every state and action names.

The observations, rewards and ends are those of `envs.make_environments` for the same seed and actions; the caller
limits an episode's length. Images come from the environment's own library:

- Atari: the screen in colour, the brighter of a step's last two frames, as the agent sees it in
  grayscale. ALE's vector environment has one kind of image, so a second one with the same seed and
  actions runs beside it.
- MinAtar: the 10 x 10 cells in the colours of MinAtar's own display. Gymnax's other environments have no images here.
- EnvPool renders CartPole, MountainCar, Acrobot and others by itself, and LunarLander for the compiled one too, whose
  episodes are the same on x86-64. Elsewhere rounding differs, and a video may show another course of the episode.
- Gymnasium renders with `render_mode="rgb_array"`, which may need pygame or more.

Where nothing can be rendered, the images are None.
"""

import warnings
from typing import Any, NamedTuple, Protocol

import gymnasium
import numpy as np
from numpy.typing import NDArray

from valueshare.envs import EnvironmentSpec, atari_game, atari_protocol, make_environments
from valueshare.envs.action_bins import action_table, split_bins
from valueshare.envs.base import as_keys, mix_to_int32
from valueshare.envs.emulators import emulator_indices, emulator_options, emulator_seeds
from valueshare.envs.envpool import pool_actions
from valueshare.envs.gymnasium import RAISED, CheckedEnvironment, check_finite, make_one
from valueshare.envs.lunar_lander import is_lunar_lander
from valueshare.envs.minatar import is_minatar, minatar_channels
from valueshare.envs.one_hot import encode
from valueshare.errors import first_line
from valueshare.video.actions import MINATAR_NAMES, action_names, atari_words, base_name

Frame = NDArray[np.uint8]  # [H, W, 3]

ATARI_FPS = 60
DEFAULT_RATE = 30.0  # steps per second, of environments that have none
UNLIMITED = 2**30  # steps or frames; no episode is as long

# Gymnasium's own, of environments that EnvPool has too.
RATES = {"CartPole": 50.0, "LunarLander": 50.0, "LunarLanderContinuous": 50.0, "MountainCar": 30.0, "Acrobot": 15.0}
MINATAR_RATE = 20.0  # of MinAtar's own display
CELL_PIXELS = 40
NO_IMAGE = "render() returns no RGB image"


class RenderedStep(NamedTuple):
    """The result of a step; at an episode's end its last state, not the first of the next."""

    observation: NDArray[Any]
    image: Frame | None
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False  # by the environment itself


class RenderedEnv(Protocol):
    """One environment that returns images."""

    rate: float  # steps per second of a video
    actions: tuple[str, ...]  # names
    problem: str  # why it cannot be rendered; empty where it can

    def reset(self, key: int) -> RenderedStep:
        """Start an episode, as `Environments.reset([key])` does."""

    def step(self, action: int) -> RenderedStep: ...

    def close(self) -> None: ...


def make_rendered_env(spec: EnvironmentSpec, protocol: str | None = None) -> RenderedEnv:
    """An environment that is rendered; `protocol` is for Atari alone."""
    if spec.backend == "ale":
        return RenderedAtari(spec, protocol)
    if spec.backend == "envpool" or (
        spec.backend == "numba" and is_lunar_lander(spec.name)
    ):  # a compiled LunarLander has the episodes of EnvPool
        return RenderedEnvPool(spec)
    if spec.backend in ("numba", "jax"):
        return RenderedGrid(spec)
    return RenderedGymnasium(spec)


class RenderedAtari:
    """A game under its protocol as in evaluation, and the same game in colour."""

    problem = ""

    def __init__(self, spec: EnvironmentSpec, protocol: str | None) -> None:
        import ale_py
        import ale_py.roms
        from ale_py.vector_env import AtariVectorEnv

        rule, game = atari_protocol(protocol), atari_game(spec.name)
        self.environments = make_environments(
            spec.name, 1, protocol=rule, episode_limit=UNLIMITED, threads=1, evaluation=True
        )
        ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
        emulator: Any = ale_py.ALEInterface()
        emulator.loadROM(ale_py.roms.get_rom_path(game.rom))
        height, width = emulator.getScreenDims()  # not 210 x 160 in all games
        names = emulator.getLegalActionSet() if rule.full_actions else emulator.getMinimalActionSet()
        self.actions = tuple(atari_words(action.name) for action in names)
        self.rate = ATARI_FPS / rule.frame_skip
        self.colour: Any = AtariVectorEnv(
            game=game.rom,
            num_envs=1,
            num_threads=1,
            img_height=height,
            img_width=width,
            grayscale=False,
            **emulator_options(rule),
        )
        self.index = emulator_indices(self.colour, spec.actions)

    def reset(self, key: int) -> RenderedStep:
        observation = self.environments.reset([key])[0]
        frames, _ = self.colour.reset(seed=emulator_seeds(as_keys([key], 1)))
        return RenderedStep(observation, frames[0, 0])

    def step(self, action: int) -> RenderedStep:
        result = self.environments.step([action])
        frames, _, over, _, info = self.colour.step(np.array([self.index[action]]))
        last = info["final_obs"] if over[0] else frames
        return RenderedStep(
            result.final_observation[0], last[0, 0], float(result.reward[0]), bool(result.terminated[0])
        )

    def close(self) -> None:
        self.environments.close()
        self.colour.close()


class RenderedGrid:
    """A MinAtar game; or another environment of Gymnax, without images."""

    def __init__(self, spec: EnvironmentSpec) -> None:
        minatar = is_minatar(spec.name)
        self.environments = make_environments(spec.name, 1, backend=spec.backend, episode_limit=UNLIMITED)
        self.rate, self.actions = (
            (MINATAR_RATE, MINATAR_NAMES) if minatar else (DEFAULT_RATE, action_names(spec, np.arange(spec.actions)))
        )
        self.colours = minatar_colours(spec.name) if minatar else None
        self.problem = "" if minatar else "Gymnax draws no images of it"

    def reset(self, key: int) -> RenderedStep:
        observation = self.environments.reset([key])[0]
        return RenderedStep(observation, self._image(observation))

    def step(self, action: int) -> RenderedStep:
        result = self.environments.step([action])
        obs, ended = result.final_observation[0], bool(result.terminated[0])
        return RenderedStep(obs, self._image(obs), float(result.reward[0]), ended, bool(result.truncated[0]))

    def close(self) -> None:
        self.environments.close()

    def _image(self, observation: NDArray[Any]) -> Frame | None:
        if self.colours is None:
            return None
        # Where several things share a cell, the last channel is shown; cells without any are black.
        numbers = np.arange(1, len(observation) + 1)[:, None, None]
        cells: Frame = self.colours[(observation * numbers).max(0)]  # [10, 10, 3]
        return cells.repeat(CELL_PIXELS, 0).repeat(CELL_PIXELS, 1)


def minatar_colours(game: str) -> Frame:
    """Black, and a colour per channel: those of MinAtar's display, from matplotlib's cubehelix. [channels + 1, 3]."""
    import matplotlib

    places = np.linspace(0, 1, minatar_channels(game) + 2)[:-1]
    colours: Frame = np.rint(255 * matplotlib.colormaps["cubehelix"](places)[:, :3]).astype(np.uint8)
    return colours


class RenderedEnvPool:
    """A pool of one environment that renders."""

    def __init__(self, spec: EnvironmentSpec) -> None:
        self.spec = spec
        self.rate = RATES.get(base_name(spec.name), DEFAULT_RATE)
        self.env_actions = pool_actions(spec.name)
        self.actions = action_names(spec, self.env_actions)
        self.pool: Any = None
        self.problem = ""

    def reset(self, key: int) -> RenderedStep:
        with warnings.catch_warnings():  # of float64 bounds, by Gymnasium
            warnings.simplefilter("ignore")
            self.pool = self._make_pool(mix_to_int32(as_keys([key], 1)))
            observation = self.pool.reset()[0]
        return RenderedStep(self._cast(observation), self._image())

    def step(self, action: int) -> RenderedStep:
        observation, reward, terminated, cut, _ = self.pool.step(self.env_actions[[action]])
        ended = bool(terminated[0])
        return RenderedStep(
            self._cast(observation), self._image(), float(np.float32(reward[0])), ended, bool(cut[0]) and not ended
        )

    def close(self) -> None:
        self.pool = None

    def _make_pool(self, seeds: NDArray[np.int32]) -> Any:
        import envpool

        env_id = split_bins(self.spec.name).env_id
        common = {"num_envs": 1, "num_threads": 1, "seed": seeds, "max_episode_steps": UNLIMITED}
        if not self.problem:
            try:
                return envpool.make_gymnasium(env_id, render_mode="rgb_array", **common)
            except Exception as error:  # anything, from an environment without images
                self.problem = f"EnvPool: {first_line(error)}"
        return envpool.make_gymnasium(env_id, **common)

    def _image(self) -> Frame | None:
        image = None
        if not self.problem:
            try:
                image = _checked_image(self.pool.render()[0])
                self.problem = NO_IMAGE if image is None else ""
            except Exception as error:  # as above
                self.problem = f"EnvPool: {first_line(error)}"
        return image

    def _cast(self, observation: NDArray[Any]) -> NDArray[Any]:
        obs: NDArray[Any] = encode(self.spec, observation)[0].copy()
        return obs


class RenderedGymnasium:
    """An environment of Gymnasium, with images if it can be made with them."""

    def __init__(self, spec: EnvironmentSpec) -> None:
        self.spec = spec
        env, self.problem = _gymnasium_env(spec.name)
        self.actions = action_names(spec, action_table(spec.name, env.action_space))
        known = RATES.get(base_name(spec.name), DEFAULT_RATE)
        self.rate = float(env.metadata.get("render_fps") or known)
        self.env = CheckedEnvironment(env, spec)

    def reset(self, key: int) -> RenderedStep:
        observation = self.env.reset(int(as_keys([key], 1)[0]))
        check_finite(self.spec.name, observation[None], "reset")
        return RenderedStep(observation.copy(), self._image())

    def step(self, action: int) -> RenderedStep:
        observation, reward, ended, cut = self.env.step(action)
        check_finite(self.spec.name, observation[None], "step")
        return RenderedStep(observation.copy(), self._image(), float(reward), ended, cut)

    def close(self) -> None:
        self.env.close()

    def _image(self) -> Frame | None:
        return None if self.problem else _checked_image(self.env.render())


def _gymnasium_env(env_id: str) -> tuple[gymnasium.Env[Any, Any], str]:
    """The environment without its time limit, and why it cannot be rendered: tried once, since some fail late."""
    options: dict[str, Any] = {"max_episode_steps": UNLIMITED, "disable_env_checker": True}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            env: Any = gymnasium.make(split_bins(env_id).env_id, render_mode="rgb_array", **options)
            env.reset(seed=0)
            if _checked_image(env.render()) is not None:
                return env, ""
            env.close()
            problem = NO_IMAGE
        except RAISED as error:  # pygame, Box2D or a display is missing, for example
            takes_none = isinstance(error, TypeError) and "render_mode" in str(error)
            problem = "its constructor takes no render_mode" if takes_none else first_line(error)
    return make_one(env_id, UNLIMITED), problem


def _checked_image(rendered: Any) -> Frame | None:
    image = np.asarray(rendered)
    return image if image.ndim == 3 and image.shape[-1] == 3 and image.dtype == np.uint8 else None
