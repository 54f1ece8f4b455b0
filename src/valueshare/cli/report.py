"""The commands `report`, figures and tables of any results, and `watch`, the page of runs that are under way."""

import signal
import sys
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING

from valueshare.cli.arguments import MaxResultSize, RunFolders, persistent_location
from valueshare.cli.training import let_threads_sleep
from valueshare.errors import InvalidInput
from valueshare.runs.storage.locations import Location, Url
from valueshare.text import FINAL_SCORE

if TYPE_CHECKING:
    from valueshare.report.write import Written


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
    """Write figures, tables and a page of results, with confidence intervals and notes on missing results.

    Results of other programs are tidy CSV or Parquet (environment, algorithm, seed, step, score),
    PFRL's scores.txt, Stable-Baselines3's evaluations.npz, or folders of them.

    Args:
        runs: Run folders or addresses, or results of other programs; several are combined, or compared if they have the
            same agents.
        out: Folder for figures and tables; left out: RUN/report, or ./report for several runs or an address.
        figures: Names of figures; left out: all for which there are results.
        compare: Pairs of algorithms to compare, like ib-dqn:4,dqn (the number is k); left out: each with its baseline.
        resamples: Bootstrap resamples; fewer are faster but less precise.
    """
    from valueshare.report.write import write_report

    folder = None if out is None else persistent_location(out)
    if isinstance(folder, Url):
        raise InvalidInput(f"{folder} is not a folder: choose another --out")
    written = write_report(
        [persistent_location(run) for run in runs],
        folder,
        figures,
        compare=compare,
        resamples=resamples,
        max_result_size=max_result_size,
    )
    print_written(written, written.folder)


def print_written(written: "Written", folder: Location) -> None:
    """Verdict, files and notes of a report; `folder` is where its user finds it."""
    for sentence in written.verdict:
        print(sentence)
    print(f"{folder / 'figures'}: {', '.join(written.figures)}")
    if written.scores:
        final = f"final scores ({FINAL_SCORE}) as LaTeX, Markdown and CSV"
        print(f"{folder / 'tables'}: {final}; every evaluation as Parquet")
    print(f"{folder / 'report.html'}: all of it as one page, with notes on how to read it")
    for note in written.notes:
        if note not in written.verdict:
            print(f"note: {note}")
    if written.left_out:
        print(f"not drawn: {', '.join(written.left_out)}; --figures NAME says what that one needs")


def watch(
    runs: RunFolders, /, *, port: int = 8_011, no_clips: bool = False, max_result_size: MaxResultSize = "2GB"
) -> None:
    """Show runs in a browser while they train; the page is updated after each phase.

    The page is the one that `valueshare report` writes, with a clip of the best agent. It is served on this machine
    only, until Ctrl-C. The runs are not affected.

    Args:
        runs: Run folders, addresses, or other results that `valueshare report` reads; several are combined.
        port: Port on 127.0.0.1; 0: any free port.
        no_clips: Do not render a few seconds of the best agent after each evaluation.
    """
    let_threads_sleep()
    from valueshare.report.page.clips import Clips
    from valueshare.report.page.live import Follower
    from valueshare.report.page.server import server
    from valueshare.runs.storage.copies import reading_copies
    from valueshare.runs.storage.remote import PROGRESS_SECONDS

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # removes what is temporary
    stop, places = Event(), [persistent_location(run) for run in runs]
    with ExitStack() as stack:
        copies = stack.enter_context(reading_copies(places))
        fetch = partial(copies.fetch, PROGRESS_SECONDS)  # a store is not asked every second
        rendered = None if no_clips else stack.enter_context(closing(Clips(copies.named)))
        follower = Follower(copies.folders, fetch=fetch, named=copies.named, limit=max_result_size, clips=rendered)
        serving = stack.enter_context(server(lambda: follower.view, port))
        host, own_port = serving.socket.getsockname()
        looking = Thread(target=follower.follow, args=(stop,), daemon=True)
        looking.start()
        more = f" and {len(places) - 1} more" if len(places) > 1 else ""
        print(f"http://{host}:{own_port}/ shows {places[0]}{more}; Ctrl-C ends it", flush=True)
        try:
            serving.serve_forever(poll_interval=0.2)
        except KeyboardInterrupt:
            stop.set()
            looking.join(timeout=2)
            print("stopped", file=sys.stderr)
        finally:
            stop.set()
