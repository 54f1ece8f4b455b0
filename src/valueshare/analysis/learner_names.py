"""Names of learners: an algorithm, then settings and the run if they tell learners apart.

In results, `ib-dqn step_size=0.001 run=first` is a value of the column `algorithm`: learners are grouped by it.
"""

import re
from collections.abc import Callable
from typing import NamedTuple

import polars as pl

from valueshare.algorithm_info import ALGORITHM_INFO, algorithm_label, unread_settings, without_layer
from valueshare.analysis.tidy import AGENT_SETTINGS

RUN = "run"  # which of several runs of the same agents
_SETTINGS = re.compile(rf"((?: (?:{'|'.join((*AGENT_SETTINGS, 'optimizer'))})=\S+)*)(?: {RUN}=(\S+))?$")


class LearnerName(NamedTuple):
    """The parts of a learner's name; a name from other programs, like Rainbow DQN, is its `algorithm`."""

    algorithm: str
    settings: tuple[str, ...] = ()  # step_size=0.001
    run: str = ""

    @classmethod
    def parse(cls, text: str) -> "LearnerName":
        match = _SETTINGS.search(text)
        assert match is not None  # it matches the end of any text
        return cls(text[: match.start()], tuple(match[1].split()), match[2] or "")

    def __str__(self) -> str:
        return " ".join([self.algorithm, *self.settings, *([f"{RUN}={self.run}"] if self.run else [])])

    @property
    def without_layer(self) -> "LearnerName":
        return self._replace(algorithm=without_layer(self.algorithm))

    @property
    def without_settings(self) -> "LearnerName":
        """The name without settings; the run is kept."""
        return self._replace(settings=())

    @property
    def without_run(self) -> "LearnerName":
        return self._replace(run="")

    def is_like(self, other: "LearnerName") -> bool:
        """Whether the run and the settings that both algorithms read are the same."""
        unread = unread_settings(self.algorithm) | unread_settings(other.algorithm)
        mine, theirs = ([s for s in name.settings if s.partition("=")[0] not in unread] for name in (self, other))
        return mine == theirs and self.run == other.run

    @property
    def is_quantile(self) -> bool:
        """Whether it has a quantile network; these are compared only with each other."""
        return self.algorithm in ALGORITHM_INFO and ALGORITHM_INFO[self.algorithm].is_quantile

    @property
    def details(self) -> list[str]:
        """The settings and the run in words: step size 0.1 and beta 0.5; run first."""
        settings = " and ".join(self.settings).replace("_", " ").replace("=", " ")
        return [*([settings] if settings else []), *([f"run {self.run}"] if self.run else [])]

    def label(self, k: float | None = 0.0, n: int | None = None) -> str:
        """IB-DQN(4) with step size 0.1, run first."""
        return algorithm_label(self.algorithm, k, n) + self.label_end

    @property
    def label_end(self) -> str:
        """The end of the label: settings and run."""
        return ((" with " if self.settings else ", ") + ", ".join(self.details)) if self.details else ""


def rename_learners(table: pl.DataFrame, change: Callable[[LearnerName], LearnerName]) -> pl.Series:
    """The column `algorithm` of a table, with every name changed."""
    names = {name: str(change(LearnerName.parse(name))) for name in table["algorithm"].unique()}
    return table["algorithm"].replace_strict(names, return_dtype=pl.String)


def add_to_names(table: pl.DataFrame, columns: list[str]) -> pl.DataFrame:
    """The table with the values of these columns in the names, those that are known; RUN is the last of them."""
    parts = (pl.format(f" {name}={{}}", pl.col(name).cast(pl.String)).fill_null("") for name in columns)
    return table.with_columns(pl.concat_str("algorithm", *parts).alias("algorithm"))
