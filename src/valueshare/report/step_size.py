"""The report of a sweep of k and the step size: the map, and each k at its best step size.

Made of a run folder, finished or not, like `report.sensitivity`.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl

from valueshare.analysis.aggregate import mean_intervals
from valueshare.analysis.importers.formats import Imported, read_agents, read_run_folder
from valueshare.analysis.importers.results import Results
from valueshare.analysis.statistics import RESAMPLES
from valueshare.errors import InvalidInput
from valueshare.report import tuned_text
from valueshare.report.data import ReportData, report_data
from valueshare.report.figures import curves
from valueshare.report.figures.heat_map import settings_maps
from valueshare.report.folder import Drawn, Report, write_files
from valueshare.report.page.elements import Picture
from valueshare.report.page.study import study_page
from valueshare.report.page.tuned import tuned_tables
from valueshare.report.sensitivity import run_deviations, score_rows
from valueshare.report.settings_map import CAPTION
from valueshare.report.swept_settings import HeldOutChoice, find_grids, settings_map, tuned
from valueshare.result_files import OWN_LIMIT, SizeLimit
from valueshare.text import how_many

AUC = "The score of an agent is its AUC: the mean of its evaluation scores over training, the one before training too."
HELD_OUT = (
    "AUC of each k at its best step size, chosen on the other half of the seeds. Shaded: 95 % intervals over seeds."
)
AT_BEST = (
    "Learning curves, each k at the step size with the highest mean over all of these seeds. Because these seeds chose "
    "it, the mean is too high for every k. Shaded: 95 % intervals over seeds."
)


def write_step_size_report(run_folder: Path, out: Path | None = None, *, resamples: int = RESAMPLES) -> dict[str, Any]:
    """Write figures/, summary.json, scores.parquet and report.html; returns the summary."""
    agents = read_agents(run_folder, SizeLimit(OWN_LIMIT))
    run = read_run_folder(run_folder, SizeLimit(OWN_LIMIT))
    data = report_data(Results(run.table, (), ()), resamples)
    grids = [grid for grid in find_grids(data) if grid.settings == ("k", "step_size")]
    if not grids:
        raise InvalidInput(f"{run_folder} is no sweep of k and the step size alone: there is no map to draw")
    found = [tuned(grid, resamples) for grid in grids]
    summary = summarise(found, run_deviations(agents, run))
    drawn = [Drawn("settings-map", settings_maps([settings_map(grid) for grid in grids]), CAPTION)]
    if len(found) == 1 and found[0].table["mean"].is_not_null().any():
        drawn.append(Drawn("auc", curves.auc_against_k(found[0].table), HELD_OUT))
    if len(found) == 1:
        lines = mean_intervals(_at_best(run.table, found[0]), ["k", "step"], "score", resamples=resamples)
        drawn.append(
            Drawn("learning-curves", curves.learning_curves(lines, lines["k"].unique().sort().to_list()), AT_BEST)
        )
    report = Report(
        drawn,
        {"summary.json": summary},
        lambda pictures: _page(run, data, found, summary, pictures),
        tables={"scores.parquet": score_rows(run.table, "step_size")},
    )
    write_files(report, run_folder if out is None else out)
    return summary


def summarise(found: Sequence[HeldOutChoice], departures: Sequence[str] = ()) -> dict[str, Any]:
    """The numbers and the verdict, as plain JSON; `departures` are deviations from the paper."""
    return {
        "verdict": tuned_text.verdict(found),
        "maps": [_map_summary(one) for one in found],
        "deviations": [*departures],
        "notes": [AUC, *tuned_text.reading(found[0])],
    }


def _map_summary(found: HeldOutChoice) -> dict[str, Any]:
    first, second = found.grid.settings
    names = {"k": first, "best_step_size": f"best_{second}", "failed_step_sizes": f"failed_{second}_values"}
    pair = found.pair
    return {
        "env": found.grid.env,
        "algorithm": found.grid.algorithm,
        "settings": [first, second],
        "score": found.grid.score,
        "cells": settings_map(found.grid).cells.to_dicts(),
        "chosen": found.table.rename(names).to_dicts(),
        "chosen_together": None if pair is None else pair._asdict(),
    }


def _at_best(rows: pl.DataFrame, found: HeldOutChoice) -> pl.DataFrame:
    """The evaluations of each k at its best step size over all seeds."""
    first, second = found.grid.settings
    best = found.table.select(pl.col("k").alias(first), pl.col("best_step_size").alias(second)).drop_nulls()
    return rows.join(best, on=[first, second], how="semi")


def _page(
    run: Imported,
    data: ReportData,
    found: Sequence[HeldOutChoice],
    summary: dict[str, Any],
    pictures: Sequence[Picture],
) -> str:
    first, second = (name.replace("_", " ") for name in found[0].grid.settings)
    agents, steps = sum(one.grid.runs.height for one in found), int(run.table["step"].to_numpy().max())
    return study_page(
        run,
        data,
        f"{' and '.join(one.grid.title for one in found)}: {first} with its {second}",
        f"{how_many(agents, 'agent')}, {how_many(steps, 'step')} each.",
        verdict=summary["verdict"],
        pictures=pictures,
        notes=summary["notes"],
        tables=tuned_tables(found, explained=False),
        deviations=summary["deviations"],
    )
