"""Scales on which scores of different games can be averaged: two known scores of each game are 0 and 1."""

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

    def normalise(self, table: pl.DataFrame, column: str = "score") -> pl.DataFrame:
        """The table with a column `normalised`: (score - zero) / (one - zero)."""
        require(table, "env", column)
        env = pl.col("env").cast(pl.String)
        zero, one = (env.replace_strict(bound, return_dtype=pl.Float64) for bound in (self.zero, self.one))
        score = pl.col(column).cast(pl.Float64)
        return table.with_columns(((score - zero) / (one - zero)).alias(NORMALISED))


def human_scale(envs: Sequence[str]) -> ScoreScale:
    """0 is random play, 1 a human's score; of Atari games."""
    known = {game: (random, human) for game, random, human in atari_baselines().iter_rows()}
    bounds = {env: known[game_name(env)] for env in envs}
    zero, one = ({env: both[i] for env, both in bounds.items()} for i in (0, 1))
    return ScoreScale("human-normalised", BASELINES, zero, one)


def dqn_scale(table: pl.DataFrame) -> ScoreScale | None:
    """0 is the mean score before training, 1 DQN's final score; None where a game lacks one, or DQN learned nothing.

    The first is over all runs, the second over DQN's, which is also IB-DQN with k = 0.
    """
    without_layer = (pl.col("algorithm") == "dqn") | ((pl.col("algorithm") == "ib-dqn") & (pl.col("k") == 0))
    first = finite(table.filter(pl.col("step") == 0), "score")
    last = final_scores(table.filter(without_layer)).table
    zero, one = (
        dict(rows.drop_nulls("score").group_by("env").agg(pl.col("score").mean()).iter_rows()) for rows in (first, last)
    )
    envs = table["env"].unique().to_list()
    if not all(env in zero and env in one and one[env] > zero[env] for env in envs):
        return None
    note = "DQN-normalised scores: 0 is the mean score before training, 1 the mean final score of DQN in these results."
    return ScoreScale("DQN-normalised", note, zero, one)
