"""The report on results: figures, tables, and notes on what they leave out.

figures/NAME.png .svg .pdf      figures that the results allow
tables/scores.tex .md .csv      final scores, the best in bold
tables/beside-published.md .csv Atari scores beside the published ones
tables/evaluations.parquet      a row per agent and evaluation; of a tabular study, tables/norms.parquet
report.html                     all of it as one page that stands alone, with curves to explore
report.json                     captions, notes, numbers behind figures, where the results came from
"""

from collections.abc import Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from valueshare.analysis.csv_text import csv_text
from valueshare.analysis.importers.results import read_results
from valueshare.analysis.importers.sources import find_sources
from valueshare.analysis.run_values import uneven_evaluations
from valueshare.analysis.statistics import RESAMPLES
from valueshare.errors import InvalidInput
from valueshare.report import tables
from valueshare.report.data import ReportData, report_data
from valueshare.report.figure_registry import draw_figures, unmet_needs
from valueshare.report.findings import compare_all, pairs
from valueshare.report.folder import Report, check_output_folder, errors_name, write_files
from valueshare.report.notes import merged_notes, short_names, shortened
from valueshare.report.numbers import evaluations, numbers
from valueshare.report.page.about import deviations
from valueshare.report.page.results import data_page, verdict_sentences
from valueshare.report.swept_settings import find_tuned
from valueshare.report.tabular import tabular_report
from valueshare.report.tabular_files import find_tabular
from valueshare.result_files import SizeLimit
from valueshare.runs.storage.copies import reading_copies
from valueshare.runs.storage.locations import Location, Url
from valueshare.text import pluralize

SYNTHETIC = "these are synthetic records: no agent was trained"


class ReportResult(NamedTuple):
    """A report that was written, with its notes and verdict."""

    folder: Path
    figures: tuple[str, ...]
    notes: tuple[str, ...]  # on these results; how to read figures is in the page alone
    verdict: tuple[str, ...]  # in sentences
    scores: bool  # whether there are tables of final scores


def write_report(
    locations: Sequence[Location],
    out: Path | None = None,
    names: Sequence[str] = (),
    *,
    compare: Sequence[str] = (),
    resamples: int = RESAMPLES,
    max_result_size: int | str | None = None,
    trusted: bool = False,
) -> ReportResult:
    """Draw the figures that results allow; write their tables and the page.

    The results are in folders, files or at URLs. `compare` names comparisons for the page's verdict, as
    "ib-dqn:4,dqn"; without, it chooses. Results of more than `max_result_size` in memory (None: 2 GB) are refused, and
    so are tabular studies that need a module imported or a long computation, unless they are `trusted`.
    """
    if not locations:
        raise InvalidInput("no results are given: name run folders or files")
    if out is None and any(isinstance(location, Url) for location in locations):
        out = Path("report")
    with reading_copies(locations) as copies:
        tabular = find_tabular(copies.folders)
        if tabular and compare:
            raise InvalidInput(f"{tabular[0].folder} is a tabular study: it has no verdict for `compare`")
        folder = _checked_folder(copies.folders, out)
        if tabular:
            make = partial(tabular_report, tabular, names, SizeLimit(max_result_size), trusted=trusted)
        else:
            if out is None:
                _refuse_far_results(copies.folders)
            results = read_results(copies.folders, max_result_size=max_result_size, repeated=True)
            data = report_data(results, resamples)
            pairs(data, compare)  # refuses what is not there before anything is drawn
            make = partial(_report, data, names, compare)
        report = make()
        write_files(folder, report)
        notes = () if tabular else tuple(copies.replace_paths(note) for note in report.notes)
    figures = tuple(figure.name for figure in report.figures)
    return ReportResult(folder, figures, notes, report.verdict, bool(report.texts))


def _report(data: ReportData, names: Sequence[str], compare: Sequence[str]) -> Report:
    results, drawn = data.results, draw_figures(data, names)
    texts, table_notes = score_files(data)
    verdict = compare_all(data, compare)
    warning = [SYNTHETIC] if data.is_synthetic else []
    all_notes = (
        warning,
        results.notes,
        uneven_evaluations(data.main),
        table_notes,
        *(one.notes for one in drawn),
        verdict.failed_comparisons,
        *(one.notes for one in verdict.comparisons),
    )
    every = chain.from_iterable(all_notes)
    notes = tuple(merged_notes(every, data.variants, one_seed=verdict.has_one_seed and not find_tuned(data)))
    # Folders by their short names, as in the page: full paths are private.
    short = short_names(results.paths)
    return Report(
        drawn,
        lambda pictures: data_page(data, verdict, pictures),
        (*warning, *verdict_sentences(data, verdict)),
        notes,
        {} if names else unmet_needs(data),
        {
            "notes": shortened(notes, short),
            "sources": [source._asdict() | {"path": short[source.path]} for source in results.sources],
            "deviations": deviations(results),
            "numbers": numbers(data),
        },
        {"tables/evaluations.parquet": evaluations(results.table)},
        texts,
    )


def _checked_folder(paths: Sequence[Path], out: Path | None) -> Path:
    """The report's folder, once it is known to be writable: `out`, or one inside a single run's."""
    one = len(paths) == 1 and paths[0].is_dir()
    folder = out or (paths[0] / "report" if one else Path("report"))
    # The folder of results may be untrusted: a link in it is not its user's choice.
    within = paths[0] if out is None and one else None
    with errors_name(folder):
        check_output_folder(folder, within)
    return folder


def _refuse_far_results(paths: Sequence[Path]) -> None:
    """Refuse to write a report into a folder whose results are neither in it nor in a folder directly in it."""
    if len(paths) > 1 or not paths[0].is_dir():
        return
    sources = find_sources(paths[0])
    runs = [source if source.is_dir() else source.parent for source in sources]
    unsharded = [run.parent if run.name.startswith("shard-") else run for run in runs]
    if paths[0] not in runs and not any(paths[0] in (run, run.parent) for run in unsharded):
        count = pluralize(len(sources), "result")
        raise InvalidInput(
            f"{paths[0]} is neither a run nor a folder of runs, and has {count} further below: write the folder of the "
            "report as `out`"
        )


def score_files(data: ReportData) -> tuple[dict[str, str], Sequence[str]]:
    """The final scores of all algorithms, Atari games beside published scores; and notes."""
    means, notes = tables.mean_scores(data.main)
    table = tables.score_table(means, data.label_actions)
    texts = {
        "tables/scores.tex": tables.to_latex(table),
        "tables/scores.md": tables.to_markdown(table),
        "tables/scores.csv": tables.to_csv(table),
    }
    if data.is_atari:
        beside = tables.beside_published(means, data.label_actions)
        texts["tables/beside-published.md"] = tables.frame_to_markdown(beside)
        texts["tables/beside-published.csv"] = csv_text(beside)
    return texts, notes
