"""The command `watch`: the page of runs that are under way, in a browser."""

import sys
from pathlib import Path
from threading import Event, Thread

from tyro.conf import Positional

from valueshare.commands.training import let_threads_sleep

PORT = 8_011


def watch(runs: Positional[tuple[Path, ...]], port: int = PORT) -> None:
    """Show runs in a browser while they train, again whenever a phase has ended.

    The page is the one that `valueshare report` writes. It is served to this machine alone, until
    Ctrl-C; the runs do not notice.

    Args:
        runs: Run folders; several are shown as one. What `valueshare report` reads will do too.
        port: Of 127.0.0.1; 0 is any free one.
    """
    let_threads_sleep()
    from valueshare.report.page_live import Follower
    from valueshare.report.page_server import server

    follower = Follower(runs)
    stop = Event()
    with server(lambda: follower.view, port) as serving:
        host, own_port = serving.socket.getsockname()
        looking = Thread(target=follower.follow, args=(stop,), daemon=True)
        looking.start()
        print(f"http://{host}:{own_port}/ shows {_named(runs)}; Ctrl-C ends it", flush=True)
        try:
            serving.serve_forever(poll_interval=0.2)
        except KeyboardInterrupt:
            stop.set()
            looking.join(timeout=2)
            print("no longer shown", file=sys.stderr)
        finally:
            stop.set()


def _named(runs: tuple[Path, ...]) -> str:
    more = f" and {len(runs) - 1} more" if len(runs) > 1 else ""
    return f"{runs[0]}{more}"
