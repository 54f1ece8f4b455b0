"""The designs of the Atari studies: games, algorithms, k and seeds at each scale."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from valueshare.envs import atari57
from valueshare.expansion import Coefficient
from valueshare.experiments.atari_options import AtariScale
from valueshare.population.presets import Preset, atari, atari_rmsprop

N: Literal["n"] = "n"  # as a k: the number of actions

PAPER_ALGORITHMS = ("dqn", "dueling-dqn", "ib-dqn", "rdq", "iqn", "ib-iqn")
PAPER_K: dict[str, tuple[Coefficient, ...]] = {"ib-dqn": (1.0, N), "ib-iqn": (N,)}
SENSITIVITY_GAMES = ("NameThisGame", "DemonAttack", "StarGunner")
SENSITIVITY_K = (0.0, 1.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1_024.0)
# The paper has 55 games and does not say which two are missing: these are a guess.
RMSPROP_WITHOUT = ("Defender", "Surround")
# Aitchison et al. (2023): the games of Atari-5-Val.
VALIDATION_GAMES = ("Assault", "BankHeist", "MsPacman", "VideoPinball", "YarsRevenge")
# The paper tested five values and names one, 0.001: the others are ours, around it.
BETAS = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1)


class StudyDesign(NamedTuple):
    """The games, algorithms and seeds of a study at one scale."""

    games: tuple[str, ...]
    algorithms: tuple[str, ...]
    seeds: int
    k: dict[str, tuple[Coefficient, ...]] = PAPER_K
    beta: tuple[float, ...] = ()  # none: the preset's


class StudyKind(NamedTuple):
    """Designs by scale, the paper's settings of an algorithm, and a sentence per field that the paper leaves open."""

    designs: dict[AtariScale, StudyDesign]
    preset: Callable[[str], Preset]
    guesses: Mapping[str, str] = MappingProxyType({})


_N_ONLY: dict[str, tuple[Coefficient, ...]] = {"ib-dqn": (N,)}
_PAIR = ("dqn", "ib-dqn")

KINDS: dict[str, StudyKind] = {
    "atari57": StudyKind(
        {
            "smoke": StudyDesign(("Pong",), _PAIR, 2, _N_ONLY),
            "small": StudyDesign(("Pong", "Breakout"), _PAIR, 4, _N_ONLY),
            "paper": StudyDesign(tuple(atari57()), PAPER_ALGORITHMS, 5),
        },
        atari,
    ),
    "atari-sensitivity": StudyKind(
        {
            "smoke": StudyDesign(("Pong",), ("ib-dqn",), 2, {"ib-dqn": (0.0, 32.0, 1_024.0)}),
            "small": StudyDesign(SENSITIVITY_GAMES[:1], ("ib-dqn",), 4, {"ib-dqn": (0.0, 1.0, 32.0, 1_024.0)}),
            "paper": StudyDesign(SENSITIVITY_GAMES, ("ib-dqn",), 5, {"ib-dqn": SENSITIVITY_K}),
        },
        atari,
    ),
    "atari-rmsprop": StudyKind(
        {
            "smoke": StudyDesign(("Pong",), _PAIR, 2, _N_ONLY),
            "small": StudyDesign(("Pong", "Breakout"), _PAIR, 4, _N_ONLY),
            "paper": StudyDesign(tuple(game for game in atari57() if game not in RMSPROP_WITHOUT), _PAIR, 3, _N_ONLY),
        },
        lambda algorithm: atari_rmsprop(),
        {
            "games": "the paper does not say which 55 games it has: that all but "
            f"{' and '.join(RMSPROP_WITHOUT)} are meant is a guess"
        },
    ),
    "atari-rdq-beta": StudyKind(
        {
            "smoke": StudyDesign(VALIDATION_GAMES[:1], ("rdq",), 2, beta=(1e-3, 1e-1)),
            "small": StudyDesign(VALIDATION_GAMES[:1], ("rdq",), 3, beta=BETAS),
            "paper": StudyDesign(VALIDATION_GAMES, ("rdq",), 5, beta=BETAS),
        },
        atari,
        {
            "beta": "of its five values of beta the paper names 0.001 alone, and no number of seeds: the others, and "
            "5 seeds, are a guess"
        },
    ),
}

CHANGES: dict[AtariScale, dict[str, Any]] = {
    "paper": {},
    # An evaluation is longer than an episode can be, so that one always finishes.
    "small": {
        "steps": 1_000_000,
        "checkpoint_interval": 100_000,
        "eval_interval": 100_000,
        "eval_timesteps": 30_000,
        "replay_capacity": 200_000,
        "learning_starts": 20_000,
    },
    "smoke": {
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
    },
}
EPSILON_STEPS: dict[AtariScale, int] = {"small": 250_000, "smoke": 200}
