"""Results as a report needs them: the algorithms, their scale, and the pairs to compare."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, wraps
from itertools import chain, count, product
from pathlib import Path
from typing import Any, TypeVar

import polars as pl

from valueshare.algorithm_info import K_IS_N, unread_settings
from valueshare.analysis.comparison import game_differences, shared_evaluations
from valueshare.analysis.importers.results import Results, Source, mixes_settings, repeats, settings_groups
from valueshare.analysis.intervals import iqm_curves, mean_intervals, over_all_games
from valueshare.analysis.learner_names import RUN, LearnerName, add_to_names, rename_learners
from valueshare.analysis.resampling import check_resamples
from valueshare.analysis.run_values import run_auc
from valueshare.analysis.scales import NORMALIZED, ScoreScale, dqn_scale, human_scale
from valueshare.analysis.scores import has_human_score
from valueshare.analysis.statistics import RESAMPLES
from valueshare.analysis.tidy import AGENT_SETTINGS, VARIANT, Estimate
from valueshare.envs.minatar import MINATAR_ACTIONS, is_minatar
from valueshare.envs.protocols import atari_protocol, atari_protocols
from valueshare.errors import printable
from valueshare.report.figures.series import with_k
from valueshare.report.figures.style import ATARI_ACTIONS
from valueshare.report.figures.variants import Variant, baseline_variant, find_variants
from valueshare.report.notes import short_names

Result = TypeVar("Result")
RMSPROP = "rmsprop"
OTHERS = "other results"
SYNTHETIC = "synthetic"  # of made-up records: their source, and a mark in provenance.json


@dataclass(frozen=True, eq=False)
class ReportData:
    """Tidy results; tables that several figures share are computed once."""

    results: Results  # as they were read
    table: pl.DataFrame  # tidy, with k, and `k_number`, k as a number; `optimizer` and `run` where they are known
    resamples: int = RESAMPLES
    full_actions: bool = True  # Atari games have all 18 actions, unless a protocol has fewer
    runs: tuple[str, ...] = ()  # names of run folders and tables, if there are several
    names_include_run: bool = False  # runs must not be pooled: names of algorithms include the run
    config_actions: int | None = None  # of every environment, where the runs say that it is one number
    full_data: "ReportData | None" = None  # the results that these are a part of: they have one scale
    computed: dict[Callable[..., Any], Any] = field(default_factory=dict, init=False, repr=False)

    @cached_property
    def main(self) -> pl.DataFrame:
        """All runs; on Atari games without RMSprop runs, unless there are no others."""
        others = self.table.filter(pl.col("optimizer").ne_missing(RMSPROP))
        return others if self.is_atari and not others.is_empty() else self.table

    @property
    def is_synthetic(self) -> bool:
        """Whether any of the results are made up."""
        table, sources = self.results.table, self.results.sources
        marked = any((source.provenance or {}).get(SYNTHETIC) for source in sources)
        return marked or ("source" in table.columns and bool((table["source"] == SYNTHETIC).any()))

    @cached_property
    def envs(self) -> list[str]:
        return self.main["env"].unique().sort().to_list()

    @cached_property
    def is_atari(self) -> bool:
        return all(has_human_score(env) for env in self.table["env"].unique())

    @cached_property
    def is_minatar(self) -> bool:
        return all(is_minatar(env) for env in self.table["env"].unique())

    @cached_property
    def scale(self) -> ScoreScale | None:
        """The scale on which environments are averaged; None where they have none in common."""
        if self.full_data is not None:
            return self.full_data.scale
        if self.is_atari:
            return human_scale(self.table["env"].unique().to_list())
        if not self.is_minatar:
            return None
        algorithms = rename_learners(self.main, lambda name: LearnerName(name.algorithm))
        is_dqn = (algorithms == "dqn") | ((algorithms == "ib-dqn") & (self.main["k"] == 0))
        return dqn_scale(self.main, self.main.filter(is_dqn))

    @property
    def label_actions(self) -> int | None:
        """The number of actions, where all environments have the same known one."""
        if self.is_minatar:
            return MINATAR_ACTIONS
        return ATARI_ACTIONS if self.is_atari and self.full_actions else None

    @property
    def actions(self) -> int | None:
        """The number of actions that k = n means, where all environments have the same; labels read `label_actions`."""
        return self.label_actions or self.config_actions

    @cached_property
    def variants(self) -> list[Variant]:
        return find_variants(self.main, self.label_actions)

    @cached_property
    def ks(self) -> list[float]:
        """The k of the sweep."""
        return self.sweep["k"].unique().sort().to_list()

    @cached_property
    def sweep(self) -> pl.DataFrame:
        """The runs of the algorithm with the most k; the same without the layer is its k = 0."""
        runs = self.main.filter(pl.col("algorithm") == self.swept, pl.col("k") != K_IS_N)
        if (runs["k"] == 0).any():
            return runs
        without_layer = str(LearnerName.parse(self.swept).without_layer)
        return pl.concat([self.main.filter(pl.col("algorithm") == without_layer, pl.col("k") == 0), runs])

    @cached_property
    def swept(self) -> str:
        """The algorithm that was run with the most k; the first of equals."""
        names = [v.algorithm for v in self.variants]
        return max(dict.fromkeys(names), key=names.count)

    @cached_property
    def pair(self) -> tuple[Variant, Variant] | None:
        """The pair that is compared game by game: without the layer and with it.

        Of several k, n where it was run, as in the paper; else the smallest. DQN comes before others.
        """
        pairs = [(reference, v) for v in self.variants if (reference := baseline_variant(v, self.variants)) is not None]
        wanted = [pair for pair in pairs if pair[1].k in (self.label_actions, K_IS_N)] or pairs
        return wanted[0] if wanted else None

    def has(self, column: str) -> bool:
        """Whether any run has a number in a column."""
        return column in self.main.columns and bool(self.main[column].is_not_null().any())

    @property
    def auc_name(self) -> str:
        """The name of the statistic that runs are compared by."""
        return "AUC" if self.scale is None else f"{self.scale.word} AUC"

    @cached_property
    def normalized(self) -> pl.DataFrame:
        return self.normalize(self.main)

    def normalize(self, rows: pl.DataFrame) -> pl.DataFrame:
        assert self.scale is not None  # or the figure was refused
        return self.scale.normalize(rows)

    @cached_property
    def curves(self) -> Estimate:
        """IQM curves of the normalized score."""
        return self.iqm(self.main)

    def iqm(self, rows: pl.DataFrame) -> Estimate:
        """IQM curves as far as they are over all games that an algorithm has."""
        assert self.scale is not None
        curves = iqm_curves(self.normalize(rows), column=NORMALIZED, resamples=self.resamples)
        complete = over_all_games(curves.table)
        return Estimate(complete.table, (self.scale.note, *curves.notes, *complete.notes))

    def by_k(self, column: str) -> Estimate:
        """Means over training of the sweep for every k, with intervals over seeds.

        A score before training belongs to the curve; other metrics mean nothing before training.
        """
        rows = self.sweep if column == "score" else self.sweep.filter(pl.col("step") > 0)
        means, notes = run_auc(rows, column)
        return Estimate(mean_intervals(means, ["k"], column, resamples=self.resamples), notes)

    def differences(self, column: str) -> Estimate:
        """Means over training of the pair, and their difference in every environment.

        Over the evaluations that both have; those before training count for normalized scores only.
        """
        assert self.pair is not None  # or the figure was refused
        reference, layered = self.pair
        rows = self.normalized if column == NORMALIZED else self.main.filter(pl.col("step") > 0)
        sides = layered.selection(), reference.selection()
        shared, cut = shared_evaluations(rows, *sides, column)
        means, notes = run_auc(shared, column)
        result = game_differences(means, *sides, column=column, resamples=self.resamples)
        return Estimate(result.table, (*cut, *notes, *result.notes))


def cached_with_data(compute: Callable[[ReportData], Result]) -> Callable[[ReportData], Result]:
    """A function of the data that is computed once, and kept as long as the data."""

    @wraps(compute)
    def cached(data: ReportData) -> Result:
        if compute not in data.computed:
            data.computed[compute] = compute(data)
        result: Result = data.computed[compute]
        return result

    return cached


def report_data(results: Results, resamples: int = RESAMPLES) -> ReportData:
    """Results with k in every row, known optimisers, and settings that differ in the names."""
    check_resamples(resamples)
    actions = {env: n for source in results.sources for env, n in source.actions.items()}
    table = _with_shared_n(with_k(results.table), actions)
    known_optimizer = pl.col("optimizer") if "optimizer" in table.columns else pl.lit(None, pl.String)
    table = table.with_columns(known_optimizer.str.to_lowercase().alias("optimizer"))
    runs, apart = _run_groups(table, results.sources)
    if runs:
        table = table.with_columns(_run_of(runs))
    table = _name_settings(table, [RUN] if apart else [])
    protocols = [settings.get("atari_protocol") for source in results.sources for settings in source.settings.values()]
    full_actions = all(atari_protocol(name).full_actions for name in atari_protocols() if name in protocols)
    counts = {actions.get(env) for env in table["env"].unique()}
    config_actions = counts.pop() if len(counts) == 1 else None
    names = tuple(dict.fromkeys(runs.values()))
    return ReportData(results, table, resamples, full_actions, names, apart, config_actions)


def run_names(about: Sequence[Source]) -> dict[str, str]:
    """The run of each source by a short name; none where there is one run.

    Shards are the one run that they are of. Other programs write a file per seed: all of them are one run here.
    """
    folders = {source.path: source.path if source.kind in ("run", "table") else OTHERS for source in about}
    folders |= {s.path: str(Path(s.path).parent) for s in about if (s.config or {}).get("shard")}
    names = short_names(list(dict.fromkeys(folders.values())))
    if len(names) == 1:
        return {}
    # A space would end the name of a run within that of an algorithm, and a comma that of one to --compare.
    unique: dict[str, str] = {}
    for folder, name in names.items():
        short = re.sub(r"[\s,]+", "_", printable(name, 200))
        unique[folder] = next(
            other for other in chain([short], (f"{short}-{i}" for i in count(2))) if other not in unique.values()
        )
    return {path: unique[folder] for path, folder in folders.items()}


def with_runs_apart(table: pl.DataFrame, about: Sequence[Source]) -> pl.DataFrame:
    """The table with the run in the names of algorithms, where runs must not be pooled: `ib-dqn run=first`."""
    runs, apart = _run_groups(table, about)
    if not apart:
        return table
    return table.with_columns(add_to_names(table.with_columns(_run_of(runs)), [RUN])["algorithm"])


def _run_groups(table: pl.DataFrame, about: Sequence[Source]) -> tuple[dict[str, str], bool]:
    """The run of each source by its name, and whether runs must not be pooled.

    They must not if the same agents are in several, or if an algorithm learned with different settings; runs of equal
    settings then have one name.
    """
    runs = run_names(about)
    if not runs or not repeats(table).is_empty():
        return runs, bool(runs)
    if not mixes_settings(table, about):
        return runs, False
    return _join_equal_settings(runs, settings_groups(about)), True


def _join_equal_settings(runs: Mapping[str, str], groups: Mapping[str, int]) -> dict[str, str]:
    """The names of runs, with one name for those that learned with the same settings: `first+second`."""
    members: dict[int | str, list[str]] = {}
    for path, name in runs.items():
        members.setdefault(groups.get(path, name), []).append(name)
    joined = {}
    for group, found in members.items():
        names = list(dict.fromkeys(found))
        joined[group] = "+".join(names if len(names) <= 3 else [names[0], f"{len(names) - 1}-more"])
    return {path: joined[groups.get(path, name)] for path, name in runs.items()}


def _run_of(runs: Mapping[str, str]) -> pl.Expr:
    """The column `run` of a table, from `run_names`."""
    return pl.col("source").replace_strict(runs, return_dtype=pl.String).alias(RUN)


def _with_shared_n(table: pl.DataFrame, actions: Mapping[str, int]) -> pl.DataFrame:
    """The table with K_IS_N for k where an algorithm's k is the number of actions of each environment.

    So IB-DQN(n) is one algorithm on environments that differ in n. The numbers stay if an environment lacks k = n, or
    was run with the n of another one. `k_number` always has the numbers.
    """
    n, k = pl.col("env").replace_strict(actions, default=None, return_dtype=pl.Float64), pl.col("k")
    pairs = table.with_columns(n=n).select("algorithm", "env", "k", "n").unique()
    shared = []
    for (algorithm,), group in pairs.partition_by("algorithm", as_dict=True).items():
        counts = group["n"].unique()
        in_all_envs = group.filter(k == pl.col("n"))["env"].n_unique() == group["env"].n_unique()
        if len(counts) > 1 and in_all_envs and group.filter(k.is_in(counts.to_list()), k != pl.col("n")).is_empty():
            shared.append(algorithm)
    is_n = pl.col("algorithm").is_in(shared) & (k == n)
    return table.with_columns(k_number=k, k=pl.when(is_n).then(pl.lit(K_IS_N)).otherwise(k))


def _name_settings(table: pl.DataFrame, more: Sequence[str]) -> pl.DataFrame:
    """The table with settings in the algorithm's name if runs with equal k differ in them.

    ib-dqn with two step sizes becomes `ib-dqn step_size=0.001` and `ib-dqn step_size=0.01`: they are different
    learners, never averaged together. An algorithm is not named after a setting that it does not read, which becomes
    null, unless it alone tells runs apart. The same holds for optimisers, except RMSprop on Atari games, which `main`
    separates already; runs with an unknown optimiser are not separated. `more` columns are always in the names.
    """
    apart = all(has_human_score(env) for env in table["env"].unique())
    kept = pl.col("optimizer").ne_missing(RMSPROP) if apart else pl.lit(True)
    optimizers = pl.col("optimizer").filter(kept).drop_nulls().n_unique()
    columns = [name for name in AGENT_SETTINGS if name in table.columns]
    by = ("env", *VARIANT)
    counts = table.group_by(*by, "optimizer").agg(pl.col(name).n_unique() for name in columns)
    varied = [name for name in columns if (counts[name] > 1).any()]
    if (table.group_by(by).agg(optimizers)["optimizer"] > 1).any():
        varied.append("optimizer")
    for algorithm, name in product(table["algorithm"].unique(), varied):
        rows = table.filter(pl.col("algorithm") == algorithm)
        if name in unread_settings(algorithm) and repeats(rows.drop(name)).height == repeats(rows).height:
            table = table.with_columns(pl.when(pl.col("algorithm") != algorithm).then(name).alias(name))
    return add_to_names(table, [*varied, *more])
