"""Conditions on results under which figures can be drawn, with their texts."""

from collections.abc import Callable
from typing import NamedTuple

from valueshare.analysis.run_values import final_scores
from valueshare.report import action_sets, swept_settings
from valueshare.report.data import RMSPROP, ReportData

MAX_GAMES = 10  # with a line each in one panel


class Requirement(NamedTuple):
    """A condition on results, with its text."""

    text: str
    met: Callable[[ReportData], bool]


def has_column(column: str) -> Requirement:
    return Requirement(f"the column {column}", lambda data: data.has(column))


ATARI = Requirement("human-normalized scores (Atari games only)", lambda data: data.atari)
SCALE = Requirement(
    "normalized scores (Atari games only, or MinAtar games that DQN learned)", lambda data: data.scale is not None
)
ONE_ENV = Requirement("one environment", lambda data: len(data.envs) == 1)
SEVERAL_ENVS = Requirement("several environments", lambda data: len(data.envs) > 1)
SEVERAL_K = Requirement("an algorithm with at least three k", lambda data: len(data.ks) > 2)
PAIR = Requirement("an algorithm with the layer and the same without", lambda data: data.pair is not None)
FINAL = Requirement(
    "runs that have their last evaluations", lambda data: final_scores(data.main).table["score"].is_not_null().any()
)
WITH_RMSPROP = Requirement(
    "runs with RMSprop beside others", lambda data: {RMSPROP} < set(data.table["optimizer"].unique())
)
ACTION_SETS = Requirement(
    "DQN, step sizes, and only the bins of their actions that differ", action_sets.has_action_sets
)
ONE_PANEL = Requirement(f"at most {MAX_GAMES} games in one panel", lambda data: len(data.envs) <= MAX_GAMES)
SCALE_OR_ONE_ENV = Requirement(f"{SCALE.text}, or one environment", lambda data: SCALE.met(data) or ONE_ENV.met(data))
TWO_SETTINGS = Requirement(
    "an algorithm with exactly two swept settings, like k and the step size", swept_settings.has_scores
)
