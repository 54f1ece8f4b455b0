"""The report of a study that is one run, finished or not: its files and its page.

The run folder has `agents.parquet` and `records/*.parquet`, with checkpoints or without. `config.json` and
`provenance.json` are used where they are there.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from valueshare.analysis.importers.formats import Imported, read_agents, read_run_folder
from valueshare.analysis.importers.results import Results, Source
from valueshare.analysis.statistics import RESAMPLES
from valueshare.experiments.lunarlander import ENV, deviations
from valueshare.population.settings import TrainingSettings
from valueshare.report.data import ReportData, report_data
from valueshare.report.folder import Drawn, write_files
from valueshare.report.page.about import made_section
from valueshare.report.page.curve_data import curve_data
from valueshare.report.page.elements import Picture, bullets, figure, page, paragraph, section
from valueshare.report.page.results import PANEL, SCRIPTS
from valueshare.result_files import OWN_LIMIT, SizeLimit

LINKS = {"result": "The result", "curves": "Curves", "made": "How it was made"}
AUC = "AUC is the mean of an agent's evaluation scores over training, the one before training too."


class StudyRun(NamedTuple):
    """The run of a study: all its agents, and what they have recorded."""

    folder: Path
    agents: pl.DataFrame
    imported: Imported
    data: ReportData

    @property
    def table(self) -> pl.DataFrame:
        return self.imported.table

    @property
    def last_step(self) -> int:
        return int(self.table["step"].to_numpy().max())


def read_study(folder: Path, resamples: int = RESAMPLES) -> StudyRun:
    """The run of a study in a folder."""
    agents = read_agents(folder, SizeLimit(OWN_LIMIT))
    run = read_run_folder(folder, SizeLimit(OWN_LIMIT))
    return StudyRun(folder, agents, run, report_data(as_results(run), resamples))


def as_results(run: Imported) -> Results:
    """One run as a report takes it."""
    return Results(run.table, (), (Source("", run.kind, 0, run.config, run.provenance),))


def run_deviations(run: StudyRun) -> list[str]:
    """Where a run of LunarLander departs from the paper, and whether it is unfinished."""
    stored = (run.imported.config or {}).get("settings", {})
    if ENV not in stored:
        return []
    settings = TrainingSettings.from_json(stored[ENV])
    unfinished = [f"the records end at step {run.last_step:,} of {settings.steps:,}"]
    return (unfinished if run.last_step < settings.steps else []) + [*deviations(run.agents, settings)]


def score_rows(evaluations: pl.DataFrame, *settings: str) -> pl.DataFrame:
    """A row per agent and evaluation, as `scores.parquet` has it; `settings` are columns beside k."""
    return evaluations.sort("agent", "step").select(
        *("env", "algorithm"),
        pl.col("agent", "seed", "step", "episodes").cast(pl.Int32),
        *settings,
        pl.col("k", "score", "overestimation", "relative_action_gap").cast(pl.Float32),
        pl.col("diverged_at").cast(pl.Int32),
    )


def write_study(
    run: StudyRun,
    out: Path | None,
    summary: dict[str, Any],
    drawn: Sequence[Drawn],
    *,
    title: str,
    lead: str,
    sections: Sequence[str],
    deviations: Sequence[str],
    tables: Mapping[str, pl.DataFrame] = {},
) -> dict[str, Any]:
    """Write figures/, summary.json, report.html and tables; returns the summary, which has a verdict and notes.

    `sections` are tables in HTML. Figures without a caption are not on the page.
    """
    origin = run.imported.provenance or {}
    settings: dict[str, Any] = next(iter((run.imported.config or {}).get("settings", {}).values()), {})

    def html(pictures: list[Picture]) -> str:
        parts = [
            section("The result", bullets(summary["verdict"]), name="result"),
            section(*PANEL, name="curves"),
            *(figure(picture.svg, picture.caption) for picture in pictures if picture.caption),
            section("How to read it", bullets(summary["notes"])),
            *sections,
            made_section(
                str(origin.get("command", "unknown")),
                settings,
                origin,
                paragraph("Deviations from the paper:"),
                bullets(deviations or ["unknown: the folder has no config.json"]),
                name="made",
            ),
        ]
        return page(title, lead, parts, scripts=SCRIPTS, data={"curve-data": curve_data(run.data).data}, links=LINKS)

    write_files(run.folder if out is None else out, drawn, {"summary.json": summary}, html, tables=tables)
    return summary
