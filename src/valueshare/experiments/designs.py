"""The studies of deep Q-learners as data: environments, agents, seeds and settings at each scale.

`study.py` makes their plans. The tabular studies are in `tabular_designs.py`.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from valueshare.envs import atari57, atari_game
from valueshare.envs.minatar import MINATAR_GAMES
from valueshare.errors import InvalidInput
from valueshare.expansion import Coefficient
from valueshare.population.presets import Preset, atari, atari_rmsprop, lunarlander_paper, minatar
from valueshare.schema import Backend

NOTHING: Mapping[str, Any] = MappingProxyType({})


class Sweep(NamedTuple):
    """Every combination of an algorithm with these values; without values, those of the preset."""

    algorithm: str
    k: tuple[Coefficient, ...] = ()  # n: the number of actions
    step_size: tuple[float, ...] = ()
    beta: tuple[float, ...] = ()


class StudyDesign(NamedTuple):
    """A study at one scale."""

    envs: tuple[str, ...]
    agents: tuple[Sweep, ...]
    seeds: int
    changes: Mapping[str, Any] = NOTHING  # of the preset's settings


class StudyKind(NamedTuple):
    """A study at all its scales, and its deviations from what is published, one sentence each."""

    designs: Mapping[str, StudyDesign]  # by scale
    preset: Callable[[str], Preset]  # the published settings, by algorithm
    backend: Backend
    notes: tuple[str, ...]  # {actions}: the numbers of actions of the environments
    paper: StudyDesign | None = None  # of the paper; None: the study is ours
    guesses: Mapping[str, str] = NOTHING  # our "games" or "beta", which the paper leaves open
    # Settings that no publication states.
    unstated: tuple[str, ...] = ("checkpoint_interval", "eval_envs", "replay_device")
    env: Callable[[str], str] = str  # an environment by a name that its user gives
    population_agents: int = 0  # the most of a population, in a run per network and settings; 0: one run, not split
    by_agent: bool = False  # agents in the order of the design and no others, each in all environments


_TRUNCATION = "an episode under way ends as truncated at the end of a phase, which makes a run resumable"
_OVERLAP = "the next action is chosen before the update of a step, because learning overlaps the environments"
_REPLACEMENT = "batches are drawn with replacement"

# LunarLander. Small: 5 x 8 agents x 50,000 steps, with a smaller network, half the batch and a quarter of the updates.
# Agents learn not to crash at once, most of them not yet to land (mean scores near -75 at the end): it shows how large
# k fail, and is too short to tell small k from 0.
LUNARLANDER, CONTINUOUS = ("LunarLander-v3",), "LunarLanderContinuous-v3"
_LUNARLANDER_SMALL = {
    "steps": 50_000,
    "checkpoint_interval": 5_000,
    "eval_interval": 5_000,
    "eval_episodes": 5,
    "hidden": (128, 128),
    "batch_size": 64,
    "update_interval": 4,
}
_LUNARLANDER_SMOKE = {
    "steps": 300,
    "checkpoint_interval": 100,
    "eval_interval": 100,
    "eval_episodes": 2,
    "eval_episode_limit": 200,
    "hidden": (16, 16),
    "batch_size": 16,
    "learning_starts": 50,
    "target_update_interval": 20,
    "update_interval": 4,
}
_PAPER_K = (0.0, *(2.0**i for i in range(16)))  # 0, 1, 2, 4, ..., 32768
_LUNARLANDER_PAPER = StudyDesign(LUNARLANDER, (Sweep("ib-dqn", _PAPER_K),), 120)


def _lunarlander(designs: Mapping[str, StudyDesign], *notes: str) -> StudyKind:
    notes = (*notes, _TRUNCATION, _OVERLAP, _REPLACEMENT)
    return StudyKind(designs, lambda _: lunarlander_paper(), "numba", notes, _LUNARLANDER_PAPER)


def _of_actions(bins: tuple[int, ...], step_size: tuple[float, ...], seeds: int, **changes: Any) -> StudyDesign:
    """LunarLander's two continuous engines in bins: the task stays the same and the number of actions grows.

    The k are those that do not depend on n, and n. IB-DQN(n) with n = 225 moves the mean of the action-values about 226
    times as far as DQN with the same step size of Adam: so step sizes go further down than for four actions.
    """
    agents = (
        Sweep("dqn", (), step_size),
        Sweep("ib-dqn", (1.0, "n"), step_size),
        Sweep("dueling-dqn", (), step_size),
    )
    return StudyDesign(tuple(f"{CONTINUOUS}-bins{n}x{n}" for n in bins), agents, seeds, changes)


def _of_step_sizes(k: tuple[float, ...], step_size: tuple[float, ...], seeds: int, **changes: Any) -> StudyDesign:
    """A factor of about 3 between neighbouring step sizes.

    With Adam the size of a step does not grow with the gradient, so an update moves the mean of the action-values about
    k + 1 times as far: larger k should want smaller step sizes.
    """
    return StudyDesign(LUNARLANDER, (Sweep("ib-dqn", k, step_size),), seeds, changes)


# MinAtar: the agents of the paper's Atari study and Double DQN. Each step size was chosen on seeds 1,000 and 1,001
# (docs/reproduction/minatar.md). One run holds all agents; those that share a network and a loss are one population of
# all games.
MINATAR_AGENTS = (
    Sweep("dqn", (), (5e-4,)),
    Sweep("double-dqn", (), (5e-4,)),
    Sweep("dueling-dqn", (), (2.5e-4,)),
    Sweep("ib-dqn", (1.0,), (5e-4,)),
    Sweep("ib-dqn", ("n",), (5e-4,)),
    Sweep("rdq", (), (5e-4,)),
    Sweep("iqn", (), (5e-4,)),
    Sweep("ib-iqn", ("n",), (5e-4,)),
)
_MINATAR_SMOKE = {
    "steps": 120,
    "checkpoint_interval": 60,
    "eval_interval": 60,
    "eval_episodes": 2,
    "eval_episode_limit": 50,
    "hidden": (16,),
    "batch_size": 8,
    "replay_capacity": 200,
    "learning_starts": 20,
    "target_update_interval": 20,
    "quantiles": 4,
    "target_quantiles": 4,
    "acting_quantiles": 4,
    "epsilon_steps": 60,
}


def _minatar_game(name: str) -> str:
    """Breakout-MinAtar of breakout, Breakout or Breakout-MinAtar."""
    key = name.removesuffix("-MinAtar").lower()
    known = {game.lower(): f"{game}-MinAtar" for game in MINATAR_GAMES}
    if key not in known:
        raise InvalidInput(f"there is no MinAtar game {name!r}: write one of {', '.join(MINATAR_GAMES)}")
    return known[key]


# Atari. An evaluation is longer than an episode can be, so that one always finishes.
_ATARI_SMALL = {
    "steps": 1_000_000,
    "checkpoint_interval": 100_000,
    "eval_interval": 100_000,
    "eval_timesteps": 30_000,
    "replay_capacity": 200_000,
    "learning_starts": 20_000,
    "epsilon_steps": 250_000,
}
_ATARI_SMOKE = {
    "steps": 300,
    "checkpoint_interval": 150,
    "eval_interval": 150,
    "eval_timesteps": 200,
    "eval_episode_limit": 100,
    "hidden": (32,),
    "batch_size": 8,
    "replay_capacity": 250,
    "learning_starts": 100,
    "target_update_interval": 50,
    "quantiles": 8,
    "target_quantiles": 8,
    "acting_quantiles": 8,
    "epsilon_steps": 200,
}
_SENSITIVITY_K = (0.0, 1.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1_024.0)
# The paper has 55 games and does not say which two are missing: these are a guess.
RMSPROP_WITHOUT = ("Defender", "Surround")
# Aitchison et al. (2023): the games of Atari-5-Val.
_VALIDATION_GAMES = ("Assault", "BankHeist", "MsPacman", "VideoPinball", "YarsRevenge")
# The paper tested five values and names one, 0.001: the others are ours, around it.
_BETAS = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1)
_PAIR = (Sweep("dqn"), Sweep("ib-dqn", ("n",)))
_PAPER_AGENTS = (
    Sweep("dqn"),
    Sweep("dueling-dqn"),
    Sweep("ib-dqn", (1.0, "n")),
    Sweep("rdq"),
    Sweep("iqn"),
    Sweep("ib-iqn", ("n",)),
)


def _atari(
    smoke: StudyDesign,
    small: StudyDesign,
    paper: StudyDesign,
    preset: Callable[[str], Preset] = atari,
    guesses: Mapping[str, str] = NOTHING,
) -> StudyKind:
    """Sixteen agents of a population fit one GPU with a replay of a million frames each."""
    notes = (
        _TRUNCATION,
        _OVERLAP,
        _REPLACEMENT,
        "frames are converted to grayscale before the maximum of two is taken, not after",
        "action gaps are measured on one batch instead of four",
        "there is an evaluation before the first step too",
    )
    designs = {
        "smoke": smoke._replace(changes=_ATARI_SMOKE),
        "small": small._replace(changes=_ATARI_SMALL),
        "paper": paper._replace(envs=tuple(map(_atari_id, paper.envs))),
    }
    return StudyKind(designs, preset, "ale", notes, designs["paper"], guesses, env=_atari_id, population_agents=16)


def _atari_id(game: str) -> str:
    return atari_game(game).env_id


STUDIES = {
    "lunarlander": _lunarlander(
        {
            "smoke": StudyDesign(LUNARLANDER, (Sweep("ib-dqn", (0.0, 16.0, 32_768.0)),), 2, _LUNARLANDER_SMOKE),
            "small": StudyDesign(
                LUNARLANDER, (Sweep("ib-dqn", (0.0, 4.0, 32.0, 1_024.0, 32_768.0)),), 8, _LUNARLANDER_SMALL
            ),
            "paper": _LUNARLANDER_PAPER,
        }
    ),
    "lunarlander-step-size": _lunarlander(
        {
            "smoke": _of_step_sizes((0.0, 4.0, 128.0), (1e-4, 1e-3), 4, **_LUNARLANDER_SMOKE),
            "small": _of_step_sizes(
                (0.0, 1.0, 4.0, 16.0, 64.0),
                (3e-5, 1e-4, 3e-4, 1e-3, 3e-3),
                6,
                **{**_LUNARLANDER_SMALL, "steps": 100_000},
            ),
            "full": _of_step_sizes(_PAPER_K[:9], (3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2), 30),
        }
    ),
    "lunarlander-actions": _lunarlander(
        {
            "smoke": _of_actions((3, 7), (1e-4, 1e-3), 2, **_LUNARLANDER_SMOKE),
            "small": _of_actions((3, 7, 15), (1e-4, 3e-4, 1e-3), 4, **_LUNARLANDER_SMALL),
            "full": _of_actions((3, 7, 15), (1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3), 30),
        },
        "LunarLander's two continuous engines in bins, {actions} actions, instead of its 4 actions",
    ),
    "minatar": StudyKind(
        {
            "smoke": StudyDesign(
                ("Breakout-MinAtar", "SpaceInvaders-MinAtar"), MINATAR_AGENTS, 2, _MINATAR_SMOKE
            ),
            "small": StudyDesign(tuple(map(_minatar_game, MINATAR_GAMES)), MINATAR_AGENTS, 10),  # 1,000,000 steps
            "full": StudyDesign(
                tuple(map(_minatar_game, MINATAR_GAMES)),
                MINATAR_AGENTS,
                30,
                {"steps": 5_000_000, "checkpoint_interval": 250_000, "eval_interval": 250_000},
            ),
        },
        lambda _: minatar(),
        "numba",
        (
            "the network and the Huber loss are those of Young and Tian (2019)",
            "the end of Freeway, after 2,501 steps, is truncation, and a terminal state in MinAtar",
            "the target network is copied before the update of the same step",
            "an episode is truncated after 10,000 steps, and at the end of a phase, which makes a run resumable",
            _OVERLAP,
            _REPLACEMENT,
        ),
        unstated=(
            "steps", "checkpoint_interval", "eval_interval", "eval_episodes", "eval_envs", "eval_episode_limit",
        ),
        env=_minatar_game,
        by_agent=True,
    ),
    "atari57": _atari(
        StudyDesign(("Pong",), _PAIR, 2),
        StudyDesign(("Pong", "Breakout"), _PAIR, 4),
        StudyDesign(tuple(atari57()), _PAPER_AGENTS, 5),
    ),
    "atari-sensitivity": _atari(
        StudyDesign(("Pong",), (Sweep("ib-dqn", (0.0, 32.0, 1_024.0)),), 2),
        StudyDesign(("NameThisGame",), (Sweep("ib-dqn", (0.0, 1.0, 32.0, 1_024.0)),), 4),
        StudyDesign(("NameThisGame", "DemonAttack", "StarGunner"), (Sweep("ib-dqn", _SENSITIVITY_K),), 5),
    ),
    "atari-rmsprop": _atari(
        StudyDesign(("Pong",), _PAIR, 2),
        StudyDesign(("Pong", "Breakout"), _PAIR, 4),
        StudyDesign(tuple(game for game in atari57() if game not in RMSPROP_WITHOUT), _PAIR, 3),
        lambda _: atari_rmsprop(),
        {
            "games": "the paper does not say which 55 games it has: that all but "
            f"{' and '.join(RMSPROP_WITHOUT)} are meant is a guess"
        },
    ),
    "atari-rdq-beta": _atari(
        StudyDesign(_VALIDATION_GAMES[:1], (Sweep("rdq", beta=(1e-3, 1e-1)),), 2),
        StudyDesign(_VALIDATION_GAMES[:1], (Sweep("rdq", beta=_BETAS),), 3),
        StudyDesign(_VALIDATION_GAMES, (Sweep("rdq", beta=_BETAS),), 5),
        guesses={
            "beta": "of its five values of beta the paper names 0.001 alone, and no number of seeds: the others, and "
            "5 seeds, are a guess"
        },
    ),
}  # fmt: skip
