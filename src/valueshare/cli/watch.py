"""The command `watch`: the page of runs that are under way, in a browser."""

import sys
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from threading import Event, Thread

from valueshare.cli.arguments import MaxResultSize, RunFolders, lasting
from valueshare.cli.training import let_threads_sleep

PORT = 8_011


def watch(runs: RunFolders, /, *, port: int = PORT, max_result_size: MaxResultSize = "2GB") -> None:
    """Show runs in a browser while they train, again whenever a phase has ended.

    The page is the one that `valueshare report` writes. It is served to this machine alone, until
    Ctrl-C; the runs do not notice.

    Args:
        runs: Run folders, addresses, or what else `valueshare report` reads; shown as one.
        port: Port of 127.0.0.1; 0: any free one.
    """
    let_threads_sleep()
    from valueshare.report.page.live import Follower
    from valueshare.report.page.server import server
    from valueshare.runs.storage.copies import reading_copies
    from valueshare.runs.storage.remote import PROGRESS_SECONDS

    stop, places = Event(), [lasting(run) for run in runs]
    with ExitStack() as stack:
        copies = stack.enter_context(reading_copies(places))
        fetch = partial(copies.fetch, PROGRESS_SECONDS)  # a store is not asked every second
        follower = Follower(copies.folders, fetch=fetch, named=copies.named, limit=max_result_size)
        serving = stack.enter_context(server(lambda: follower.view, port))
        host, own_port = serving.socket.getsockname()
        looking = Thread(target=follower.follow, args=(stop,), daemon=True)
        looking.start()
        print(f"http://{host}:{own_port}/ shows {_named(places)}; Ctrl-C ends it", flush=True)
        try:
            serving.serve_forever(poll_interval=0.2)
        except KeyboardInterrupt:
            stop.set()
            looking.join(timeout=2)
            print("no longer shown", file=sys.stderr)
        finally:
            stop.set()


def _named(places: Sequence[object]) -> str:
    more = f" and {len(places) - 1} more" if len(places) > 1 else ""
    return f"{places[0]}{more}"
