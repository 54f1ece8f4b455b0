"""The report of a sweep of k and the step size: the map, and each k at its best step size."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from valueshare.analysis.aggregate import mean_intervals
from valueshare.analysis.statistics import RESAMPLES
from valueshare.errors import InvalidInput
from valueshare.report import tuned_text
from valueshare.report.figures import curves
from valueshare.report.figures.heat_map import settings_maps
from valueshare.report.folder import Drawn
from valueshare.report.page.tables import tuned_tables
from valueshare.report.study import read_study, run_deviations, score_rows, write_study
from valueshare.report.swept_settings import CAPTION, HeldOutChoice, find_tuned, settings_map
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
    run = read_study(run_folder, resamples)
    found = [one for one in find_tuned(run.data) if one.grid.settings == ("k", "step_size")]
    if not found:
        raise InvalidInput(f"{run_folder} is no sweep of k and the step size alone: there is no map to draw")
    drawn = [Drawn("settings-map", settings_maps([settings_map(one.grid) for one in found]), CAPTION)]
    if len(found) == 1:
        table = found[0].table
        if table["mean"].is_not_null().any():
            drawn.append(Drawn("auc", curves.against_k(table, "score"), HELD_OUT))
        best = table.select("k", step_size="best").drop_nulls()
        at_best = run.table.join(best, on=["k", "step_size"], how="semi")
        lines = mean_intervals(at_best, ["k", "step"], "score", resamples=resamples)
        ks = lines["k"].unique().sort().to_list()
        drawn.append(Drawn("learning-curves", curves.learning_curves(lines, ks), AT_BEST))
    deviations = run_deviations(run)
    agents = sum(one.grid.runs.height for one in found)
    return write_study(
        run,
        out,
        summarise(found, deviations),
        drawn,
        title=f"{' and '.join(one.grid.title for one in found)}: k with its step size",
        lead=f"{how_many(agents, 'agent')}, {how_many(run.last_step, 'step')} each.",
        sections=tuned_tables(found, explained=False),
        deviations=deviations,
        tables={"scores.parquet": score_rows(run.table, "step_size")},
    )


def summarise(found: Sequence[HeldOutChoice], deviations: Sequence[str] = ()) -> dict[str, Any]:
    """The numbers and the verdict, as plain JSON; `deviations` are those from the paper."""
    names = {"best": "best_step_size", "failed": "failed_step_size_values"}
    maps = [
        {
            "env": one.grid.env,
            "algorithm": one.grid.algorithm,
            "settings": [*one.grid.settings],
            "score": one.grid.score,
            "cells": settings_map(one.grid).cells.to_dicts(),
            "chosen": one.table.rename(names).to_dicts(),
            "chosen_together": None if one.pair is None else one.pair._asdict(),
        }
        for one in found
    ]
    verdict, notes = tuned_text.verdict(found), [AUC, *tuned_text.reading(found[0])]
    return {"verdict": verdict, "maps": maps, "deviations": [*deviations], "notes": notes}
