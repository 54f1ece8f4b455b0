"""Atari scores on the human scale, and the published ones.

The human and random scores are those of DQN Zoo. They were not measured with sticky actions, which make games harder;
every human-normalized number says so with `BASELINES`.
"""

from importlib.resources import files

import polars as pl

from valueshare.data.games import benchmark_games, game_key_of_id
from valueshare.errors import InvalidInput
from valueshare.text import suggestion

BASELINES = (
    "The human and random scores behind human-normalized scores are not from sticky-action runs; the agents' are."
)
PAPER_FILE = "atari57_paper_scores.csv"

# The published agents by the paper's names, each with this package's algorithm and k. n is 18, the full action set.
PAPER_AGENTS = {
    "DQN": ("dqn", 0.0),
    "Dueling DQN": ("dueling-dqn", 0.0),
    "IB-DQN(1)": ("ib-dqn", 1.0),
    "IB-DQN(n)": ("ib-dqn", 18.0),
    "RDQ": ("rdq", 0.0),
    "IQN": ("iqn", 0.0),
    "IB-IQN(n)": ("ib-iqn", 18.0),
}
_COLUMNS = ("dqn", "dueling_dqn", "ib_dqn_k1", "ib_dqn_kn", "rdq_beta0.001", "iqn", "ib_iqn_kn")


def atari_baselines() -> pl.DataFrame:
    """The 57 games: `game, random, human`."""
    rows = [(game.name, game.random, game.human) for game in benchmark_games().values()]
    return pl.DataFrame(rows, ["game", "random", "human"], orient="row")


def paper_scores() -> pl.DataFrame:
    """The published scores, a row per game and agent: `game, algorithm, score`.

    A score is the mean over the last three of 200 evaluations and over five seeds.
    """
    published = pl.read_csv((files("valueshare.data") / PAPER_FILE).read_bytes())
    wide = published.rename(dict(zip(_COLUMNS, PAPER_AGENTS, strict=True)))
    return wide.unpivot(index="game", variable_name="algorithm", value_name="score").with_columns(
        pl.col("score").cast(pl.Float64)
    )


def has_human_score(env: str) -> bool:
    """Whether there are human and random scores of an environment."""
    return game_key_of_id(env) in benchmark_games()


def game_name(env: str) -> str:
    """The game of an environment: ALE/MsPacman-v5 and ms_pacman are MsPacman."""
    known, key = benchmark_games(), game_key_of_id(env)
    if key not in known:
        hint = suggestion(key, {name: game.name for name, game in known.items()}) or "write one of the 57 Atari games"
        raise InvalidInput(f"there is no human score of {env!r}: {hint}")
    return known[key].name
