"""The curves of the interactive panel, packed: a few bytes per number, everything in the page.

A number is 16 bits between the lowest and the highest of its own curve, so that an outlying seed costs the others
nothing. Rounding is at most 1/131,068 of a curve's range; 65,535 is "none".

An entry of the panel is a curve, a choice, or both. One without `of` is a choice, shown as a checkbox; a curve with
`of` is shown if that choice is on. A curve with `run` is shown if that run is ticked too; one without, if no run is.
"""

import base64
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from valueshare.algorithm_info import K_IS_N, algorithm_label, k_text
from valueshare.analysis.importers.columns import METRICS
from valueshare.analysis.intervals import mean_intervals
from valueshare.analysis.learner_names import RUN, LearnerName, rename_learners
from valueshare.analysis.scales import ScoreScale
from valueshare.analysis.tidy import CI95, VARIANT
from valueshare.report.data import ReportData
from valueshare.report.figures.curves import curves_shown
from valueshare.report.figures.series import game
from valueshare.report.figures.style import SeriesStyle, distinct
from valueshare.report.figures.variants import Variant, find_variants
from valueshare.text import pluralize

Floats = NDArray[np.float64]
Key = tuple[str, float] | tuple[str, float, str]  # algorithm and k, of all runs together or of one run
Agents = dict[Key, Floats]  # of one metric and environment: [agents, steps]

NONE = 65_535
LEVELS = 65_534
MAX_VALUE = 1e300  # beyond it, and its negative, a number is left out: sums and ranges would overflow
BAND_RESAMPLES = 2_000  # of one environment's bands, of which there are tens of thousands
MAX_NUMBERS = 2_400_000  # numbers in a page: about 6.4 MB; seeds beyond it are left out, and noted
CLOCK = "seconds"  # the column of the time that training took until then, where a table has it
MAX_SHOWN = 9  # lines at first; the others are a click away
MAX_RUNS = 24  # that can be compared one by one
LABELS = {"score": "evaluation score", "train_score": "score while training"}


class _Pack:
    """Rows of numbers, one after the other, each with its own scale."""

    def __init__(self, keys: Sequence[Key]) -> None:
        self.numbers = {key: number for number, key in enumerate(keys)}
        self.values: list[NDArray[np.uint16]] = []
        self.scales: list[tuple[float, float]] = []
        self.grids: list[list[int]] = []
        self.size = 0

    def add(self, key: Key, rows: Floats, count: str, seeds: int = 0) -> list[Any]:
        """Add a curve, NaN where there is nothing: mean, low, high, and then its seeds.

        Returns the panel's entry: [variant, first row, its offset, "5 seeds", rows of seeds].
        """
        curve = [self.numbers[key], len(self.scales), self.size, count, seeds]
        for row in rows:
            codes, low, unit = quantised(row)
            self.values.append(codes)
            self.scales.append((low, unit))
            self.size += len(codes)
        return curve

    def grid(self, steps: list[int]) -> int:
        """The number of a grid of steps."""
        if steps not in self.grids:
            self.grids.append(steps)
        return self.grids.index(steps)

    def packed(self) -> dict[str, str]:
        values = np.concatenate(self.values) if self.values else np.zeros(0)
        arrays = {"values": values.astype("<u2"), "scales": np.array(self.scales, "<f8")}
        return {name: base64.b64encode(array.tobytes()).decode() for name, array in arrays.items()}


def curve_data(data: ReportData, first: Sequence[Variant] = ()) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Means with 95 % intervals, and the seeds themselves, of every environment and metric; and notes.

    The page shows the curves of the `first` ones before the reader chooses.
    """
    metrics = {name: LABELS.get(name, name.replace("_", " ")) for name in METRICS if data.has(name)}
    of_env = {env: data.main.filter(pl.col("env") == env) for env in data.envs}
    runs = {env: single_runs(data, rows) for env, rows in of_env.items()}
    keys, variants = curve_names(data, first)
    pack = _Pack(keys)
    notes, views = list[str](), list[dict[str, Any]]()
    if data.scale is not None and len(data.envs) > 1:
        views.append(_all_games(data, data.scale, pack))
        notes.append(data.scale.note)
    numbers = sum(
        rows.select("algorithm", "k", "seed").n_unique() * rows["step"].n_unique() * (2 if runs[env] else 1)
        for env, rows in of_env.items()
    )
    # Metrics are in their order of interest: seeds of the first ones, as long as there is room.
    with_seeds = list(metrics)[: max(0, MAX_NUMBERS - pack.size) // max(1, numbers)]
    for env, rows in of_env.items():
        steps = rows["step"].unique().sort().to_list()
        curves = {m: _env_curves(_agents(rows, m, steps, runs[env]), m in with_seeds, pack) for m in metrics}
        kept = {metric: env_curves for metric, env_curves in curves.items() if env_curves}
        views.append({"label": game(env), "env": env, "grid": pack.grid(steps), "curves": kept})
        if CLOCK in rows.columns and (clock := _clock(_agents(rows, CLOCK, steps, runs[env]), pack)):
            views[-1]["clock"] = clock
    if len(data.runs) > MAX_RUNS and not data.names_include_run:
        notes.append(f"Curves of single runs are not in the page: there are {len(data.runs)}, and room for {MAX_RUNS}.")
    _number_equal_labels(views)
    if left := [label for name, label in metrics.items() if name not in with_seeds]:
        notes.append(f"The seeds of {', '.join(left)} are not in the page: they would make it large.")
    notes.append(
        f"Lines are means over seeds and bands 95 % bootstrap intervals of them ({BAND_RESAMPLES:,} resamples)."
    )
    packed = {
        "variants": variants,
        "runs": [{"label": f"run {name}", "chip": name, "on": data.names_include_run} for name in data.runs],
        "metrics": [{"name": name, "label": label} for name, label in metrics.items()],
        "grids": pack.grids,
        "views": views,
        **pack.packed(),
    }
    return packed, tuple(notes)


def quantised(row: Floats) -> tuple[NDArray[np.uint16], float, float]:
    """Codes, and the scale to turn them back: value = low + unit * code. Shapes: [T] -> [T].

    [0, 1, nan, 2] -> [0, 32767, 65535, 65534], low 0, unit 2 / 65534.
    """
    known = np.abs(row) <= MAX_VALUE
    codes = np.full(len(row), NONE, np.uint16)
    if not known.any():
        return codes, 0.0, 0.0
    low, high = float(row[known].min()), float(row[known].max())
    unit = (high - low) / LEVELS
    codes[known] = np.rint((row[known] - low) / unit) if unit > 0 else 0
    return codes, low, unit


def _agents(rows: pl.DataFrame, metric: str, steps: Sequence[int], runs: Sequence[str] = ()) -> Agents:
    """The agents of one environment by algorithm and k, NaN for nothing; and once more by run, for some runs."""
    agent_columns = ["algorithm", "k", "seed"]
    value = pl.col(metric).cast(pl.Float64)
    known = rows.select(*agent_columns, "step", pl.when(value.abs() <= MAX_VALUE).then(value).alias(metric))
    wide = known.pivot("step", index=agent_columns, values=metric, aggregate_function="last").sort(agent_columns)
    missing = (pl.lit(None, pl.Float64).alias(str(step)) for step in steps if str(step) not in wide.columns)
    groups = wide.with_columns(missing).partition_by(VARIANT, as_dict=True).items()
    agents: Agents = {(algorithm, k): group.select(map(str, steps)).to_numpy() for (algorithm, k), group in groups}
    for run in runs:
        of_run = _agents(rows.filter(pl.col(RUN) == run), metric, steps)
        agents |= {(*key[:2], run): values for key, values in of_run.items()}
    return agents


def _env_curves(agents: Agents, with_seeds: bool, pack: _Pack) -> list[list[Any]]:
    """The curves of one metric, by variant."""
    groups = {key: runs for key, runs in agents.items() if np.isfinite(runs).any()}
    if not groups:
        return []
    curves = []
    for (key, runs), band in zip(groups.items(), _bands(list(groups.values())), strict=True):
        seeds = runs if with_seeds else runs[:0]
        curves.append(pack.add(key, np.concatenate([band, seeds]), pluralize(len(runs), "seed"), len(seeds)))
    return sorted(curves)


def _clock(agents: Agents, pack: _Pack) -> list[list[Any]]:
    """The wall clock of each variant at each step, in seconds: the mean over the runs that have it."""
    curves = []
    for key, runs in agents.items():
        known = np.ma.masked_invalid(runs)
        if known.count():
            curves.append(pack.add(key, known.mean(axis=0, keepdims=True).filled(np.nan), ""))
    return curves


def _bands(groups: Sequence[Floats]) -> list[Floats]:
    """Mean, low and high over the runs that have a value. Shapes: [runs, T] each -> [3, T] each."""
    tables = []
    for number, runs in enumerate(groups):
        _, step = np.indices(runs.shape)
        tables.append(pl.DataFrame({"group": number, "step": step.ravel(), "value": runs.ravel()}))
    means = mean_intervals(pl.concat(tables), ["group", "step"], resamples=BAND_RESAMPLES)
    bands = means.select("group", pl.col("mean", *CI95).cast(pl.Float64)).partition_by("group", include_key=False)
    return [band.to_numpy().T for band in bands]  # NaN for null


def _all_games(data: ReportData, scale: ScoreScale, pack: _Pack) -> dict[str, Any]:
    """The interquartile mean over all games, on their scale."""
    table = data.curves.table
    steps = table["step"].unique().sort().to_list()
    curves = []
    for variant in data.variants:
        curve = variant.rows(table)
        on_grid = pl.DataFrame({"step": steps}).join(curve, on="step", how="left", maintain_order="left")
        rows = on_grid.select(pl.col("value", *CI95).cast(pl.Float64)).to_numpy().T  # NaN for null
        runs = pluralize(int(curve["runs"].to_numpy().max()), "run")
        curves.append(pack.add((variant.algorithm, variant.k), rows, runs))
    return {
        "label": f"All {len(data.envs)} games",
        "what": f"IQM of the {scale.word} score",
        "grid": pack.grid(steps),
        "curves": {"score": curves},
    }


def _number_equal_labels(views: list[dict[str, Any]]) -> None:
    """Pong-v4 and Pong-v5 are both Pong: number the later ones."""
    counts = Counter[str]()
    for view in views:
        label = view["label"]
        counts[label] += 1
        if counts[label] > 1:
            view["label"] = f"{label} ({counts[label]})"


def single_runs(data: ReportData, rows: pl.DataFrame) -> list[str]:
    """The runs of one environment that have curves of their own beside those of all runs together."""
    if not data.runs or data.names_include_run or len(data.runs) > MAX_RUNS:
        return []
    names = rows[RUN].unique().sort().to_list()
    return names if len(names) > 1 else []


def curve_names(data: ReportData, first: Sequence[Variant]) -> tuple[list[Key], list[dict[str, Any]]]:
    """The keys of the curves, and the entries of the panel: those of the curves, in their order, come first.

    The page shows the curves of the `first` ones before the reader chooses; without any, all or the paper's.
    """
    keys: list[Key] = [(variant.algorithm, variant.k) for variant in data.variants]
    if not data.runs or (len(data.runs) > MAX_RUNS and not data.names_include_run):
        return keys, _choices(data, data.variants, first)
    of_run = set(data.main.select(*VARIANT, RUN).unique().iter_rows())
    if data.names_include_run:
        names = rename_learners(data.main, lambda name: name.without_run)
        bases = find_variants(data.main.with_columns(algorithm=names), data.label_actions)
        positions = {(v.algorithm, v.k): len(keys) + number for number, v in enumerate(bases)}
        run = {(algorithm, k): data.runs.index(name) for algorithm, k, name in of_run}
        curves = [
            {**_line(v.style), "of": positions[str(v.name.without_run), v.k], "run": run[v.algorithm, v.k]}
            for v in data.variants
        ]
        first_bases = {(str(variant.name.without_run), variant.k) for variant in first}
        shown = [v for v in bases if (v.algorithm, v.k) in first_bases]
        # Every run has its own colours: those of choices would be none of them.
        choices = [choice | {"colour": ""} for choice in _choices(data, bases, shown)]
        return keys, [*curves, *choices]
    singles, styles = list[dict[str, Any]](), list[SeriesStyle]()
    for number, name in enumerate(data.runs):
        for place, variant in enumerate(data.variants):
            if (variant.algorithm, variant.k, name) in of_run:
                run_style = variant.style._replace(label=f"{variant.style.label}, run {name}")
                styles.append(distinct(run_style, str(variant.name._replace(run=name)), styles))
                keys.append((variant.algorithm, variant.k, name))
                singles.append({**_line(styles[-1]), "of": place, "run": number})
    return keys, [*_choices(data, data.variants, first), *singles]


def _line(style: SeriesStyle) -> dict[str, Any]:
    return {"label": style.label, "colour": style.colour, "dash": style.pattern}


def _choices(data: ReportData, variants: Sequence[Variant], first: Sequence[Variant]) -> list[dict[str, Any]]:
    crowded = len(variants) > MAX_SHOWN
    swept, chosen = str(LearnerName.parse(data.swept).without_run), curves_shown(data.sweep)[:MAX_SHOWN]
    return [
        {
            **_line(variant.style),
            "group": variant.name.label(None),
            "chip": f"k = {k_text(K_IS_N if variant.k == data.label_actions else variant.k)}"
            if variant.k
            else algorithm_label(variant.name.algorithm),
            "on": variant in first if first else not crowded or (variant.algorithm == swept and variant.k in chosen),
        }
        for variant in variants
    ]
