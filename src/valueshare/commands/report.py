"""The command `report`: figures and tables of any results."""

from pathlib import Path

from tyro.conf import Positional

from valueshare.commands.arguments import OutFolder


def report(
    runs: Positional[tuple[Path, ...]],
    out: OutFolder = None,
    figures: tuple[str, ...] = (),
    resamples: int = 50_000,
) -> None:
    """Figures and tables of results, with intervals and notes on what is missing.

    Args:
        runs: Run folders, or results of other programs: a tidy CSV or Parquet (environment,
            algorithm, seed, step, score), PFRL's scores.txt, Stable-Baselines3's evaluations.npz,
            or folders of them. Several are read as one.
        out: Folder for figures and tables; left out: RUN/report, or report for several.
        figures: Names of figures; left out: all that the results allow.
        resamples: Of the bootstrap; fewer are faster and less exact.
    """
    from valueshare.report.write import write_report

    written = write_report(runs, out, figures, resamples=resamples)
    print(f"{written.folder / 'figures'}: {', '.join(written.figures)}")
    if (written.folder / "tables").is_dir():
        print(f"{written.folder / 'tables'}: final scores as LaTeX, Markdown and CSV")
    for name, reason in written.left_out.items():
        print(f"not drawn: {name}, which needs {reason}")
    for note in written.notes:
        print(f"note: {note}")
