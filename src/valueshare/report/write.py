"""The report on results: figures, tables, and notes on what they leave out.

figures/NAME.png .svg .pdf      figures that the results allow
tables/scores.tex .md .csv      final scores, the best in bold
tables/beside-published.md .csv Atari scores beside the published ones
tables/evaluations.parquet      a row per agent and evaluation
report.html                     all of it as one page that stands alone, with curves to explore
report.json                     captions, notes, numbers behind figures, where the results came from
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from valueshare.analysis.csv_text import csv_text
from valueshare.analysis.importers.results import Results, read_results
from valueshare.analysis.statistics import RESAMPLES
from valueshare.errors import InvalidInput
from valueshare.experiments.studies import KIND as TABULAR
from valueshare.experiments.studies import results_config
from valueshare.report import action_sets
from valueshare.report.data import ReportData, is_synthetic, report_data
from valueshare.report.figure_registry import drawn_from, not_allowed
from valueshare.report.findings import Verdict, asked_pairs, find_verdict
from valueshare.report.folder import Drawn, check_out, filled_whole, named_in_errors, write_files
from valueshare.report.notes import one_per_kind, short_names, shortened
from valueshare.report.numbers import evaluations, numbers
from valueshare.report.page.about import deviations
from valueshare.report.page.results import results_page
from valueshare.report.swept_settings import find_tuned
from valueshare.report.tables import (
    beside_published,
    frame_to_markdown,
    mean_scores,
    score_table,
    to_csv,
    to_latex,
    to_markdown,
)
from valueshare.report.tabular import notes, redrawn, write_results
from valueshare.report.tabular_files import StoredShard, find_shards, merged
from valueshare.report.tuned_text import verdict as tuned_verdict
from valueshare.result_files import SizeLimit
from valueshare.runs.directory import results_folder
from valueshare.runs.storage.copies import reading_copies
from valueshare.runs.storage.locations import Location, Url
from valueshare.schema import read_config, read_object

SYNTHETIC = "these are synthetic records: no agent was trained"


class Written(NamedTuple):
    """A report that was written, with its notes and verdict."""

    folder: Path
    figures: tuple[str, ...]
    left_out: dict[str, str]  # figures that the results do not allow, and what they need
    notes: tuple[str, ...]
    verdict: tuple[str, ...] = ()  # in sentences


def write_report(
    locations: Sequence[Location],
    out: Path | None = None,
    names: Sequence[str] = (),
    *,
    compare: Sequence[str] = (),
    resamples: int = RESAMPLES,
    max_result_size: int | str | None = None,
) -> Written:
    """Draw the figures that results allow; write their tables and the page.

    The results are in folders, files or at addresses. `compare` names comparisons for the page's verdict, as
    "ib-dqn:4,dqn"; without, it chooses. Results of more than `max_result_size` in memory (None: 2 GB) are refused.
    """
    if not locations:
        raise InvalidInput("no results are given: name run folders or files")
    if out is None and any(isinstance(location, Url) for location in locations):
        out = Path("report")
    with reading_copies(locations) as copies:
        written = _write(copies.folders, out, names, compare, resamples, max_result_size)
        return written._replace(notes=tuple(copies.named(note) for note in written.notes))


def _write(
    paths: Sequence[Path],
    out: Path | None,
    names: Sequence[str],
    compare: Sequence[str],
    resamples: int,
    max_result_size: int | str | None,
) -> Written:
    limit = SizeLimit(max_result_size)
    if shards := find_shards(paths):
        if names or compare:
            raise InvalidInput(
                "the shards of a tabular study are put together with all their figures: leave out "
                "--figures and --compare"
            )
        return _write_shards(shards, _checked_folder(paths, out), limit)
    tabular = [path for path in paths if (read_config(path, skip_damaged=True) or {}).get("kind") == TABULAR]
    if tabular and len(paths) > 1:
        raise InvalidInput(f"{tabular[0]} is a tabular study: report it alone")
    if tabular and compare:
        raise InvalidInput(f"{tabular[0]} is a tabular study: it has no verdict for --compare")
    folder = _checked_folder(paths, out)
    if tabular:
        drawn, how_to_read = redrawn(tabular[0], names, limit)
        written = Written(folder, tuple(one.name for one in drawn), {}, tuple(how_to_read))
        sources = [{"path": str(tabular[0]), "kind": TABULAR}]
        with filled_whole(folder) as filling:
            write_files(filling, drawn, {"report.json": _about(written, drawn, sources)})
        return written
    results = read_results(paths, max_result_size=max_result_size, repeated=True)
    data = report_data(results, resamples)
    asked_pairs(data, compare)  # refuses what is not there before anything is drawn
    with filled_whole(folder) as filling:  # refuses before the work begins
        drawn = drawn_from(results, names, data=data)
        texts, table_notes = score_tables(data)
        verdict = find_verdict(data, compare)
        chosen = find_tuned(data)
        written = Written(
            folder,
            tuple(one.name for one in drawn),
            {} if names else not_allowed(data),
            tuple(one_per_kind(_notes(results, table_notes, drawn, verdict), data.variants)),
            (*_warning(results), *action_sets.verdict(data), *tuned_verdict(chosen), *verdict.sentences),
        )
        # Folders by their short names, as in the page: full paths are private.
        short = short_names([source.path for source in results.about])
        sources = [source._asdict() | {"path": short[source.path]} for source in results.about]
        named = written._replace(notes=tuple(shortened(written.notes, short)))
        write_files(
            filling,
            drawn,
            {"report.json": _about(named, drawn, sources, deviations(results)) | {"numbers": numbers(data, chosen)}},
            lambda pictures: results_page(results, pictures, data=data, verdict=verdict, chosen=chosen),
            tables={"tables/evaluations.parquet": evaluations(results.table)},
            texts=texts,
        )
    return written


def _checked_folder(paths: Sequence[Path], out: Path | None) -> Path:
    """The report's folder, once it is known to be writable: `out`, or one inside a single run's."""
    if out is not None:
        check_out(out)
        return out
    one = len(paths) == 1 and paths[0].is_dir()
    folder = paths[0] / "report" if one else Path("report")
    # The folder of results may be untrusted: a link in it is not its user's choice.
    check_out(folder, within=paths[0] if folder.parent == paths[0] else None)
    return folder


def score_tables(data: ReportData) -> tuple[dict[str, str], Sequence[str]]:
    """The final scores of all algorithms, Atari games beside published scores; and notes."""
    means, notes = mean_scores(data.main)
    table = score_table(means, data.n)
    texts = {
        "tables/scores.tex": to_latex(table),
        "tables/scores.md": to_markdown(table),
        "tables/scores.csv": to_csv(table),
    }
    if data.atari:
        beside = beside_published(means, data.n)
        texts["tables/beside-published.md"] = frame_to_markdown(beside)
        texts["tables/beside-published.csv"] = csv_text(beside)
    return texts, notes


def _warning(results: Results) -> tuple[str, ...]:
    return (SYNTHETIC,) if is_synthetic(results) else ()


def _notes(results: Results, of_tables: Sequence[str], drawn: Sequence[Drawn], verdict: Verdict) -> tuple[str, ...]:
    of_figures = (note for one in drawn for note in one.notes)
    of_findings = (*verdict.missing, *(note for one in verdict.found for note in one.notes))
    notes = (*_warning(results), *results.notes, *of_tables, *of_figures, *of_findings)
    return tuple(dict.fromkeys(notes))


def _about(
    written: Written, drawn: Sequence[Drawn], sources: Sequence[Any], departures: Sequence[str] = ()
) -> dict[str, Any]:
    return {
        "verdict": written.verdict,
        "figures": {one.name: {"caption": one.caption, "notes": one.notes} for one in drawn},
        "not_drawn": written.left_out,
        "notes": written.notes,
        "sources": sources,
        "deviations": departures,
    }


def _write_shards(shards: Sequence[StoredShard], out: Path, limit: SizeLimit) -> Written:
    """All shards of a tabular study as the study: records, summary, figures and page."""
    with named_in_errors(out, only_below=out):
        result = merged(shards, limit)
        origins = [read_object(each.folder / "provenance.json") for each in shards]
        # The command without shards; machine and commit are those of this process.
        command = re.sub(r" --shard \S+$", "", str(origins[0].get("command", "")))
        with results_folder(out, results_config(result.studies), overwrite=True) as folder:
            write_results(result, folder, command=command, shards=origins)
    drawn = sorted(path.stem for path in (out / "figures").glob("*.png"))
    return Written(out, tuple(drawn), {}, tuple(notes(result)))
