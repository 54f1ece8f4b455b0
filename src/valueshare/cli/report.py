"""The command `report`: figures and tables of any results."""

from pathlib import Path

from valueshare.cli.arguments import MaxResultSize, RunFolders, lasting
from valueshare.errors import InvalidInput
from valueshare.runs.storage.locations import Url


def report(
    runs: RunFolders,
    /,
    *,
    out: str | Path | None = None,
    figures: tuple[str, ...] = (),
    compare: tuple[str, ...] = (),
    resamples: int = 50_000,
    max_result_size: MaxResultSize = "2GB",
) -> None:
    """Figures, tables and a page of results, with intervals and notes on what is missing.

    Results of other programs are tidy CSV or Parquet (environment, algorithm, seed, step, score),
    PFRL's scores.txt, Stable-Baselines3's evaluations.npz, or folders of them.

    Args:
        runs: Run folders or addresses, or results of other programs; several are read as one.
        out: Folder for figures and tables; left out: RUN/report, for several or addresses report.
        figures: Names of figures; left out: all that the results allow.
        compare: Pairs for the verdict, as ib-dqn:4,dqn (the number is k); left out: the usual ones.
        resamples: Resamples of the bootstrap; fewer are faster and less exact.
    """
    from valueshare.report.write import write_report

    folder = None if out is None else lasting(out)
    if isinstance(folder, Url):
        raise InvalidInput(f"{folder} is no folder: choose another --out")
    written = write_report(
        [lasting(run) for run in runs],
        folder,
        figures,
        compare=compare,
        resamples=resamples,
        max_result_size=max_result_size,
    )
    for note in written.notes:
        print(f"note: {note}")
    for sentence in written.verdict:  # after all that may be long: it is what was asked
        print(sentence)
    print(f"{written.folder / 'figures'}: {', '.join(written.figures)}")
    if (written.folder / "tables").is_dir():
        print(f"{written.folder / 'tables'}: final scores as LaTeX, Markdown and CSV")
    if (written.folder / "report.html").is_file():
        print(f"{written.folder / 'report.html'}: all of it as one page")
    if written.left_out:
        print(f"not drawn: {', '.join(written.left_out)}; --figures NAME says what one needs")
