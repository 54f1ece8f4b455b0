"""Names, colours and choices of the panel's curves: of algorithms, and of algorithms in single runs.

An entry of the panel is a curve, a choice, or both. One without `of` is a choice, shown as a checkbox; a curve with
`of` is shown if that choice is on. A curve with `run` is shown if that run is ticked too; one without, if no run is.
"""

from collections.abc import Sequence
from typing import Any

import polars as pl

from valueshare.algorithm_info import K_IS_N, algorithm_label, k_text
from valueshare.analysis.learner_names import RUN, LearnerName, rename_learners
from valueshare.analysis.tidy import VARIANT
from valueshare.report.data import ReportData
from valueshare.report.figures.curves import curves_shown
from valueshare.report.figures.style import SeriesStyle, distinct
from valueshare.report.figures.variants import Variant, find_variants

Key = tuple[str, float] | tuple[str, float, str]  # algorithm and k, of all runs together or of one run
MAX_SHOWN = 9  # lines at first; the others are a click away
MAX_RUNS = 24  # that can be compared one by one


def single_runs(data: ReportData, rows: pl.DataFrame) -> list[str]:
    """The runs of one environment that have curves of their own beside those of all runs together."""
    if not data.runs or data.runs_apart or len(data.runs) > MAX_RUNS:
        return []
    names = rows[RUN].unique().sort().to_list()
    return names if len(names) > 1 else []


def curve_names(data: ReportData, first: Sequence[Variant]) -> tuple[list[Key], list[dict[str, Any]]]:
    """The keys of the curves, and the entries of the panel: those of the curves, in their order, come first.

    The page shows the curves of the `first` ones before the reader chooses; without any, all or the paper's.
    """
    keys: list[Key] = [(variant.algorithm, variant.k) for variant in data.variants]
    if not data.runs or (len(data.runs) > MAX_RUNS and not data.runs_apart):
        return keys, _choices(data, data.variants, first)
    of_run = set(data.main.select(*VARIANT, RUN).unique().iter_rows())
    if data.runs_apart:
        names = rename_learners(data.main, lambda name: name.without_run)
        bases = find_variants(data.main.with_columns(algorithm=names), data.n)
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
            "chip": f"k = {k_text(K_IS_N if variant.k == data.n else variant.k)}"
            if variant.k
            else algorithm_label(variant.name.algorithm),
            "on": variant in first if first else not crowded or (variant.algorithm == swept and variant.k in chosen),
        }
        for variant in variants
    ]
