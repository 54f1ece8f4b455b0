"""Scales on which scores of different games can be averaged: two known scores of each game are 0 and 1."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import polars as pl

from valueshare.analysis.run_values import final_scores
from valueshare.analysis.scores import BASELINES, atari_baselines, game_name
from valueshare.analysis.tidy import finite, require

NORMALISED = "normalised"  # the column of scores on a scale


class ScoreScale(NamedTuple):
    """The scores of each environment that count as 0 and as 1."""

    word: str  # human-normalised
    note: str  # what to say beside the numbers
    zero: dict[str, float]
    one: dict[str, float]

    def normalise(
        self, table: pl.DataFrame, column: str = "score", *, env: str = "env", to: str = NORMALISED
    ) -> pl.DataFrame:
        """The table with a column `to`: (score - zero) / (one - zero), by the environment in the column `env`."""
        require(table, env, column)
        envs = pl.col(env).cast(pl.String)
        zero, one = (envs.replace_strict(bound).cast(pl.Float64) for bound in (self.zero, self.one))
        score = pl.col(column).cast(pl.Float64)
        return table.with_columns(((score - zero) / (one - zero)).alias(to))


def human_scale(envs: Sequence[str]) -> ScoreScale:
    """0 is random play, 1 a human's score; of Atari games."""
    known = {game: (random, human) for game, random, human in atari_baselines().iter_rows()}
    bounds = {env: known[game_name(env)] for env in envs}
    zero, one = ({env: both[i] for env, both in bounds.items()} for i in (0, 1))
    return ScoreScale("human-normalised", BASELINES, zero, one)


def human_normalized(table: pl.DataFrame, column: str = "score") -> pl.DataFrame:
    """The table with a column `human_normalized`: 0 is random play, 1 a human's score.

    (score - random) / (human - random). The game is in `env` or `game`, as Pong, ALE/Pong-v5 or PongNoFrameskip-v4. Say
    `BASELINES` beside the numbers.
    """
    env = "env" if "env" in table.columns else "game"
    require(table, env, column)
    scale = human_scale([str(name) for name in table[env].unique()])
    return scale.normalise(table, column, env=env, to="human_normalized")


def dqn_scale(table: pl.DataFrame, dqn: pl.DataFrame) -> ScoreScale | None:
    """0 is the mean score before training, of all runs, and 1 DQN's mean final score; `dqn` are the rows of its runs.

    Of several DQNs, with different step sizes for example, the best in each game. None where DQN did not clearly learn
    a game, by two standard errors: a scale of noise would make this game count more than all others.
    """
    first = finite(table.filter(pl.col("step") == 0), "score").drop_nulls("score")
    last = final_scores(dqn).table.drop_nulls("score") if not dqn.is_empty() else first.clear()
    zero, one = dict[str, float](), dict[str, float]()
    for env in table["env"].unique():
        before = first.filter(pl.col("env") == env)["score"]
        after = last.filter(pl.col("env") == env).partition_by("algorithm")
        if before.is_empty() or not after:
            return None
        best = max((rows["score"] for rows in after), key=_mean)
        if _mean(best) - _mean(before) <= 2 * math.hypot(_standard_error(before), _standard_error(best)):
            return None
        zero[env], one[env] = _mean(before), _mean(best)
    note = (
        "DQN-normalised scores: 0 is the mean score before training, 1 the mean final score of DQN in these results, "
        "at its best setting where it has several. Intervals take this scale as known."
    )
    return ScoreScale("DQN-normalised", note, zero, one)


def _mean(scores: pl.Series) -> float:
    return float(scores.to_numpy().mean())


def _standard_error(scores: pl.Series) -> float:
    """Of the mean; 0 for one score, of which nothing is known."""
    values = scores.to_numpy()
    return float(values.std(ddof=1) / math.sqrt(len(values))) if len(values) > 1 else 0.0
