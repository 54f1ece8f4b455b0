"""The progress of a sweep: a bar in a terminal, a line every ten seconds elsewhere."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

LINE_SECONDS = 10.0  # between lines where there is no terminal; most sweeps are done sooner

Advance = Callable[[int], None]  # reports how many more timesteps are done


@contextmanager
def shown_progress(timesteps: int, shown: bool) -> Iterator[Advance]:
    """Show how many of the timesteps are done, as reported to the context's function."""
    if not shown or not sys.stdout:
        yield lambda _: None
    elif not sys.stdout.isatty():
        yield lines(timesteps, lambda line: print(line, flush=True), time.monotonic)
    else:
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TimeRemainingColumn

        columns = ("learning", BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
        with Progress(*columns, transient=True) as bar:
            task = bar.add_task("", total=timesteps)
            yield lambda amount: bar.advance(task, amount)


def lines(total: int, say: Callable[[str], None], clock: Callable[[], float]) -> Advance:
    """Print a line when `LINE_SECONDS` have passed since the last one, or since the start."""
    began = said = clock()
    done = 0

    def advance(amount: int) -> None:
        nonlocal said, done
        done += amount
        now = clock()
        if now - said < LINE_SECONDS or done == total:
            return
        said, rate = now, done / (now - began)
        left = timedelta(seconds=round((total - done) / rate))
        say(f"{done:,} of {total:,} timesteps | {rate:,.0f} timesteps/s | {left} left")

    return advance
