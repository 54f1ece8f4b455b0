"""Scales on which scores of different games can be averaged: two known scores of each game are 0 and 1."""

from collections.abc import Sequence
from typing import NamedTuple

import polars as pl

from valueshare.analysis.run_values import final_scores
from valueshare.analysis.scores import BASELINES, atari_baselines, game_name
from valueshare.analysis.tidy import finite, require

NORMALIZED = "normalized"  # the column of scores on a scale


class ScoreScale(NamedTuple):
    """The scores of each environment that count as 0 and as 1."""

    word: str  # human-normalized
    note: str  # shown beside the numbers
    zero: dict[str, float]
    one: dict[str, float]

    def normalize(
        self, table: pl.DataFrame, column: str = "score", *, env: str = "env", to: str = NORMALIZED
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
    zero, one = ({env: known[game_name(env)][i] for env in envs} for i in (0, 1))
    return ScoreScale("human-normalized", BASELINES, zero, one)


def human_normalized(table: pl.DataFrame, column: str = "score") -> pl.DataFrame:
    """The table with a column `human_normalized`: 0 is random play, 1 a human's score.

    (score - random) / (human - random). The game is in `env` or `game`, as Pong, ALE/Pong-v5 or PongNoFrameskip-v4. Say
    `BASELINES` beside the numbers.
    """
    env = "env" if "env" in table.columns else "game"
    require(table, env, column)
    scale = human_scale([str(name) for name in table[env].unique()])
    return scale.normalize(table, column, env=env, to="human_normalized")


def dqn_scale(table: pl.DataFrame, dqn: pl.DataFrame) -> ScoreScale | None:
    """0 is the mean score before training, of all runs, and 1 DQN's mean final score; `dqn` are the rows of its runs.

    Of several DQNs, with different step sizes for example, the best in each game. None where DQN did not clearly learn
    a game, by two standard errors: a scale of noise would make this game count more than all others.
    """
    first = finite(table.filter(pl.col("step") == 0), "score").drop_nulls("score")
    last = final_scores(dqn).table.drop_nulls("score") if not dqn.is_empty() else first.clear()
    envs, score = table.select("env").unique(), pl.col("score")
    error = (score.std() / score.count().sqrt()).fill_null(0.0)  # of the mean; of one score nothing is known
    begins = first.group_by("env").agg(zero=score.mean(), zero_error=error)
    ends = last.group_by("env", "algorithm").agg(one=score.mean(), one_error=error)
    best = ends.sort("one").group_by("env").last()
    known = envs.join(begins, on="env").join(best, on="env")
    learned = (pl.col("one") - pl.col("zero")) ** 2 > 4 * (pl.col("zero_error") ** 2 + pl.col("one_error") ** 2)
    known = known.filter(pl.col("one") > pl.col("zero"), learned)
    if known.height < envs.height:
        return None
    zero, one = (dict(known.select("env", name).iter_rows()) for name in ("zero", "one"))
    note = (
        "DQN-normalized scores: 0 is the mean score before training, 1 the mean final score of DQN in these results, "
        "at its best setting where it has several. Intervals take this scale as known."
    )
    return ScoreScale("DQN-normalized", note, zero, one)
