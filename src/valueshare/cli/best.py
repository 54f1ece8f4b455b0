"""The command `best`: the settings that win."""

from typing import Literal

from valueshare.cli.arguments import MaxResultSize, RunFolders, persistent_location


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
        runs: Run folders or addresses, or other results that `valueshare report` reads; several are combined, or
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
        notes = [copies.named(note) for note in results.notes]
    winners = winning_settings(with_runs_apart(with_k(results.table), results.about), metric, resamples=resamples)
    notes += check_halves(winners)
    print("\n".join(winner_lines(winners, metric)))
    for note in notes:
        print(f"note: {note}")
