"""What a figure needs of a study: each function answers what is missing, in words, or nothing."""

from valueshare.analysis.run_values import final_scores
from valueshare.report.data import RMSPROP, Study

MOST_GAMES = 10  # with a line each in one panel


def atari(study: Study) -> str:
    return "" if study.atari else "Atari games only, for human-normalised scores"


def several_envs(study: Study) -> str:
    return "" if len(study.envs) > 1 else "several environments"


def one_env(study: Study) -> str:
    return "" if len(study.envs) == 1 else "one environment"


def several_k(study: Study) -> str:
    return "" if len(study.ks) > 2 else "an algorithm with at least three k"


def few_games(study: Study) -> str:
    return "" if len(study.envs) <= MOST_GAMES else f"at most {MOST_GAMES} games in one panel"


def both(study: Study) -> str:
    return "" if study.pair else "an algorithm with the layer and the same without"


def ended(study: Study) -> str:
    finals = final_scores(study.main).table["score"]
    return "" if finals.is_not_null().any() else "runs that have their last evaluations"


def column(study: Study, column: str) -> str:
    return "" if study.has(column) else f"the column {column}"


def with_rmsprop(study: Study) -> str:
    used = set(study.table["optimizer"].unique())
    return "" if {RMSPROP} < used else "runs with RMSprop beside others"


def no_need(study: Study) -> str:
    return ""
