"""What `valueshare report` leaves in its folder: figures, tables, and what they leave out.

figures/NAME.png .svg .pdf      what the results allow
tables/scores.tex .md .csv      final scores, the best in bold
tables/beside-published.md .csv Atari scores beside the published ones
report.html                     all of it as one page that stands alone, with curves to explore
report.json                     captions, notes, where the results came from
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from valueshare.analysis.csv_text import csv_text
from valueshare.analysis.importers.results import Results, read_results
from valueshare.analysis.statistics import RESAMPLES
from valueshare.errors import InvalidInput
from valueshare.files import write_json, write_whole
from valueshare.report.data import Study, study_of
from valueshare.report.figure_registry import FIGURES, Drawn, drawn_from, not_allowed
from valueshare.report.figures import tabular as figures
from valueshare.report.figures.style import save
from valueshare.report.findings import asked_pairs, verdict
from valueshare.report.folder import check_out, filled_whole, told_by_name
from valueshare.report.page.about import deviations, short_names, shortened
from valueshare.report.page.results import Picture, results_page
from valueshare.report.synthetic import is_synthetic
from valueshare.report.tables import (
    beside_published,
    frame_to_markdown,
    mean_scores,
    score_table,
    to_csv,
    to_latex,
    to_markdown,
)
from valueshare.report.tabular import summary
from valueshare.report.tabular_shards import StoredShard, tabular_shards, write_merged
from valueshare.report.tabular_summary import read_norms, read_summary
from valueshare.result_files import SizeLimit
from valueshare.runs.directory import read_config

TABULAR = ("gridworld", "norms")
MADE_UP = "these are synthetic records: no agent was trained"


class Written(NamedTuple):
    """What was written, and what there is to say about it."""

    folder: Path
    figures: tuple[str, ...]
    left_out: dict[str, str]  # figures that the results do not allow, and what they need
    notes: tuple[str, ...]
    verdict: tuple[str, ...] = ()  # in sentences


def write_report(
    paths: Sequence[Path],
    out: Path | None = None,
    names: Sequence[str] = (),
    *,
    compare: Sequence[str] = (),
    resamples: int = RESAMPLES,
    max_result_size: int | str | None = None,
) -> Written:
    """Draw what the results in these folders and files allow; write their tables and the page.

    `compare` names comparisons for the page's verdict, as "ib-dqn:4,dqn"; without, it chooses.
    Results of more than `max_result_size` in memory (None: 2 GB) are refused.
    """
    if not paths:
        raise InvalidInput("no results are given: name run folders or files")
    limit = SizeLimit(max_result_size)
    shards = tabular_shards(paths)
    if shards:
        return _write_tabular_shards(shards, paths, out, names, compare, limit)
    tabular = [path for path in paths if _is_tabular(path)]
    if tabular and len(paths) > 1:
        raise InvalidInput(f"{tabular[0]} is a tabular study: report it alone")
    if tabular and compare:
        raise InvalidInput(f"{tabular[0]} is a tabular study: it has no verdict for --compare")
    folder = _checked_folder(paths, out)
    if tabular:
        return _write_tabular(tabular[0], folder, names, limit)
    results = read_results(paths, max_result_size=max_result_size)
    study = study_of(results, resamples)
    asked_pairs(study, compare)  # refuses what is not there before anything is drawn
    with filled_whole(folder) as filling:  # refuses before the work begins
        written = _write_all(results, study, filling, names, compare)
    return written._replace(folder=folder)


def _write_all(
    results: Results, study: Study, folder: Path, names: Sequence[str], compare: Sequence[str]
) -> Written:
    """Figures, tables, the page and what is told about them."""
    made_up = (MADE_UP,) if is_synthetic(results) else ()
    drawn = drawn_from(results, names, study=study)
    notes = _write_tables(study, folder / "tables")
    for one in drawn:
        save(one.figure, folder / "figures", one.name)
    pictures = [
        Picture(one.name, folder / "figures" / f"{one.name}.svg", one.caption, one.notes)
        for one in drawn
    ]
    answer = verdict(study, compare)
    text = results_page(results, pictures, study=study, answer=answer)
    write_whole(folder / "report.html", [text.encode()])
    written = Written(
        folder,
        tuple(one.name for one in drawn),
        {} if names else not_allowed(study),
        tuple(
            dict.fromkeys(
                [
                    *(*made_up, *results.notes, *notes),
                    *(note for one in drawn for note in one.notes),
                    *(*answer.missing, *(note for one in answer.found for note in one.notes)),
                ]
            )
        ),
        (*made_up, *answer.sentences),
    )
    # Folders by their short names, as in the page: where they were is no one else's business.
    names_of = short_names([source.path for source in results.about])
    sources = [source._asdict() | {"path": names_of[source.path]} for source in results.about]
    said = written._replace(notes=tuple(shortened(written.notes, names_of)))
    _write_about(said, drawn, sources, deviations(results))
    return written


def _checked_folder(paths: Sequence[Path], out: Path | None) -> Path:
    """Where the report goes, once that is found to be a place for it."""
    if out is not None:
        check_out(out)
        return out
    folder = default_folder(paths)
    # The folder of results may come from anybody: a link in it is not its user's choice.
    check_out(folder, within=paths[0] if folder.parent == paths[0] else None)
    return folder


def default_folder(paths: Sequence[Path]) -> Path:
    """In the run's own folder, where there is one; else beside where one works."""
    return paths[0] / "report" if len(paths) == 1 and paths[0].is_dir() else Path("report")


def _write_tables(study: Study, folder: Path) -> tuple[str, ...]:
    """The final scores of all algorithms, and Atari games beside what was published."""
    means, notes = mean_scores(study.main)
    folder.mkdir(parents=True, exist_ok=True)
    table = score_table(means, study.n)
    texts = {
        "scores.tex": to_latex(table),
        "scores.md": to_markdown(table),
        "scores.csv": to_csv(table),
    }
    if study.atari:
        beside = beside_published(means, study.n)
        texts["beside-published.md"] = frame_to_markdown(beside)
        texts["beside-published.csv"] = csv_text(beside)
    for name, text in texts.items():
        write_whole(folder / name, [text.encode()])
    return notes


def _write_about(
    written: Written,
    drawn: Sequence[Drawn],
    sources: Sequence[Any],
    departures: Sequence[str],
) -> None:
    about = {
        "verdict": written.verdict,
        "figures": {one.name: {"caption": one.caption, "notes": one.notes} for one in drawn},
        "not_drawn": written.left_out,
        "notes": written.notes,
        "sources": sources,
        "deviations": departures,
    }
    write_json(written.folder / "report.json", about)


def _is_tabular(path: Path) -> bool:
    return (read_config(path) or {}).get("kind") == "tabular"


def _write_tabular_shards(
    shards: Sequence[StoredShard],
    paths: Sequence[Path],
    out: Path | None,
    names: Sequence[str],
    compare: Sequence[str],
    limit: SizeLimit,
) -> Written:
    """All shards of a tabular study as the study: records, summary, figures and page."""
    if names or compare:
        raise InvalidInput(
            "the shards of a tabular study are put together with all their figures: leave out "
            "--figures and --compare"
        )
    folder = _checked_folder(paths, out)
    with told_by_name(folder):
        result = write_merged(shards, folder, limit)
    drawn = sorted(path.stem for path in (folder / "figures").glob("*.png"))
    return Written(folder, tuple(drawn), {}, tuple(summary(result)["notes"]))


def _write_tabular(path: Path, folder: Path, names: Sequence[str], limit: SizeLimit) -> Written:
    """The figures of a tabular study again, from its summary and its records."""
    for name in names:
        if name not in TABULAR:
            known = "unknown" if name not in FIGURES else "of other results"
            raise InvalidInput(
                f"the figure {name!r} is {known}: a tabular study has {', '.join(TABULAR)}"
            )
    summary, norms = read_summary(path), read_norms(path, limit)
    columns = (
        ("step sizes chosen on all seeds", summary.same_seeds),
        ("chosen on the other half", summary.other_seeds),
    )
    about = {
        "gridworld": "Increase over the smallest k, each k at its best step size.",
        "norms": "Norms of q, u and z along learning, and at the end against k.",
    }
    chosen = tuple(dict.fromkeys(names or TABULAR))
    drawn = [
        Drawn(
            name,
            figures.tuned_increase(columns, measure=summary.measure)
            if name == "gridworld"
            else figures.norm_reduction(norms),
            about[name],
        )
        for name in chosen
    ]
    with filled_whole(folder) as filling:
        for one in drawn:
            save(one.figure, filling / "figures", one.name)
        written = Written(filling, chosen, {}, summary.notes)
        _write_about(written, drawn, [{"path": str(path), "kind": "tabular"}], ())
    return written._replace(folder=folder)
