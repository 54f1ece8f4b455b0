"""The commands `report`, `best`, `watch` and `paper-table`: figures, tables and pages of results."""

import signal
import sys
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from valueshare.cli.arguments import MaxResultSize, RunFolders, persistent_location
from valueshare.cli.run_and_report import set_passive_omp_wait
from valueshare.errors import OTHER_OUT, InvalidInput
from valueshare.printing import print_line
from valueshare.runs.storage.locations import Location, Url
from valueshare.signals import PAGE_THREAD
from valueshare.text import FINAL_SCORE

if TYPE_CHECKING:
    import polars as pl

    from valueshare.report.write import ReportResult


def report(
    runs: RunFolders,
    /,
    *,
    out: Annotated[str | Path | None, Parameter(metavar="PATH")] = None,
    figures: tuple[str, ...] = (),
    compare: tuple[str, ...] = (),
    resamples: int = 50_000,
    max_result_size: MaxResultSize = "2GB",
) -> None:
    """Write figures, tables and a page of results, with confidence intervals and notes on missing results.

    Results of other programs are tidy CSV or Parquet (environment, algorithm, seed, step, score),
    PFRL's scores.txt, Stable-Baselines3's evaluations.npz, or folders of them.

    Args:
        runs: Run folders, URLs like s3://bucket/run, or results of other programs; several are combined, or compared
            if they have the same agents.
        out: Folder to write to; default: RUN/report, or ./report for several runs or a URL.
        figures: iqm, performance-profile, auc-change, overestimation-reduction, action-gap-increase, sensitivity,
            settings-map, overestimation-against-k, action-gap-against-k, iqm-rmsprop, gain-against-actions,
            learning-curves, overestimation-curves, geometry; default: all for which there are results.
        compare: Pairs of algorithms to compare, like ib-dqn:4,dqn (the number is k); default: each with its baseline.
        resamples: Bootstrap resamples; fewer are faster but less precise.
    """
    from valueshare.report.write import write_report

    folder = None if out is None else persistent_location(out)
    if isinstance(folder, Url):
        raise InvalidInput(f"{folder} is not a folder: {OTHER_OUT}")
    written = write_report(
        [persistent_location(run) for run in runs],
        folder,
        figures,
        compare=compare,
        resamples=resamples,
        max_result_size=max_result_size,
    )
    print_written(written, written.folder)


def print_written(written: "ReportResult", folder: Location) -> None:
    """Verdict, files and notes of a report; `folder` is where its user finds it."""
    for sentence in written.verdict:
        print_line(sentence)
    print_line(f"{folder / 'figures'}: {', '.join(written.figures)}")
    if written.scores:
        final = f"final scores ({FINAL_SCORE}) as LaTeX, Markdown and CSV"
        print_line(f"{folder / 'tables'}: {final}; every evaluation as Parquet")
    print_line(f"{folder / 'report.html'}: all of it as one page, with notes on how to read it")
    for note in written.notes:
        if note not in written.verdict:
            print_line(f"note: {note}")


def best(
    runs: RunFolders,
    /,
    *,
    metric: Literal["auc", "final"] = "auc",
    resamples: int = 50_000,
    max_result_size: MaxResultSize = "2GB",
) -> None:
    """Print which settings win: chosen on half of the seeds, and scored on the other half.

    The best of many settings is partly luck: on the seeds that chose it, its score is too high.

    Args:
        runs: Run folders or URLs, or other results that `valueshare report` reads; several are combined, or
            compared if they have the same agents.
        metric: Score of an agent: auc, the mean over all its evaluations; final, the mean of the last three.
        resamples: Bootstrap resamples; fewer are faster but less precise.
    """
    from valueshare.analysis.held_out import check_halves, winning_settings
    from valueshare.analysis.importers.results import read_results
    from valueshare.analysis.resampling import check_resamples
    from valueshare.report.data import with_runs_apart
    from valueshare.report.figures.series import with_k
    from valueshare.report.winners_text import winner_lines
    from valueshare.runs.storage.copies import reading_copies

    check_resamples(resamples)
    with reading_copies([persistent_location(run) for run in runs]) as copies:
        results = read_results(copies.folders, max_result_size=max_result_size, repeated=True)
        notes = [copies.replace_paths(note) for note in results.notes]
    winners = winning_settings(with_runs_apart(with_k(results.table), results.sources), metric, resamples=resamples)
    notes += check_halves(winners)
    print_line(*winner_lines(winners, metric))
    for note in notes:
        print_line(f"note: {note}")


def watch(
    runs: RunFolders, /, *, port: int = 8_011, no_clips: bool = False, max_result_size: MaxResultSize = "2GB"
) -> None:
    """Show runs in a browser while they train; the page is updated after each checkpoint.

    The page is the one that `valueshare report` writes, with a clip of the best agent. It is served on this machine
    only, until Ctrl-C. The runs are not affected.

    Args:
        runs: Run folders or URLs, or other results that `valueshare report` reads; several are combined.
        port: Port on 127.0.0.1; 0: any free port.
        no_clips: Do not render a few seconds of the best agent after each evaluation.
    """
    set_passive_omp_wait()
    from valueshare.report.page.clips import Clips
    from valueshare.report.page.live import PageUpdater
    from valueshare.report.page.server import server
    from valueshare.runs.storage.copies import reading_copies
    from valueshare.runs.storage.remote import PROGRESS_SECONDS

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that temporary files are removed
    stop, places = Event(), [persistent_location(run) for run in runs]
    with ExitStack() as stack:
        copies = stack.enter_context(reading_copies(places))
        fetch = partial(copies.fetch, PROGRESS_SECONDS)  # a store is not asked every second
        rendered = None if no_clips else stack.enter_context(closing(Clips(copies.replace_paths)))
        follower = PageUpdater(
            copies.folders, fetch=fetch, replace_paths=copies.replace_paths, limit=max_result_size, clips=rendered
        )
        serving = stack.enter_context(server(lambda: follower.view, port))
        host, bound_port = serving.socket.getsockname()
        follower_thread = Thread(target=follower.follow, name=PAGE_THREAD, args=(stop,), daemon=True)
        follower_thread.start()
        more = f" and {len(places) - 1} more" if len(places) > 1 else ""
        print_line(f"http://{host}:{bound_port}/ shows {places[0]}{more}; Ctrl-C ends it")
        try:
            serving.serve_forever(poll_interval=0.2)
        except KeyboardInterrupt:
            stop.set()
            follower_thread.join(timeout=2)
            print_line("stopped", error=True)
        finally:
            stop.set()


def paper_table(
    *,
    human_normalized: bool = False,
    format: Literal["text", "csv"] = "text",  # noqa: A002 (the name of the option)
) -> None:
    """The paper's Atari scores: 57 games, 7 agents, and the IQM of their human-normalized scores.

    Args:
        human_normalized: Every score as (score - random) / (human - random).
        format: Aligned text, or CSV of the scores alone.
    """
    from valueshare.analysis import scales, scores
    from valueshare.analysis.csv_text import csv_text

    long = scales.human_normalized(scores.paper_scores())
    shown = "human_normalized" if human_normalized else "score"
    wide = long.pivot(on="algorithm", index="game", values=shown)
    if format == "csv":
        print_line(*csv_text(wide).splitlines())
        return
    print_line(*_paper_table_lines(long, wide, decimals=2 if human_normalized else 1))
    print_line("")
    kind = "Human-normalized scores" if human_normalized else "Scores"
    print_line(f"{kind}: means over the last three of 200 evaluations and over five seeds, as published.")
    print_line("IQM: interquartile mean, over the 57 games, of human-normalized scores.")
    print_line(scores.BASELINES)


def _paper_table_lines(long: "pl.DataFrame", wide: "pl.DataFrame", *, decimals: int) -> list[str]:
    """The table as aligned text: one line per game, then the IQM of each agent."""
    from valueshare.analysis.statistics import iqm
    from valueshare.text import align_columns

    agents = wide.columns[1:]
    rows = [["game", *agents]]
    rows += [[game, *(f"{score:,.{decimals}f}" for score in scores)] for game, *scores in wide.iter_rows()]
    normalized = long.partition_by("algorithm", as_dict=True)
    levels = [iqm(normalized[(agent,)]["human_normalized"].to_numpy()) for agent in agents]
    rows.append(["IQM", *(f"{level:.2f}" for level in levels)])
    lines = align_columns(rows, right=True)
    rule = "-" * len(lines[0])
    return [lines[0], rule, *lines[1:-1], rule, lines[-1]]
