"""The progress of a computation: a bar in a terminal, a line every ten seconds in a file or pipe."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

from valueshare.printing import print_line

LINE_SECONDS = 10.0  # between lines where there is no terminal; most sweeps are done sooner

Advance = Callable[[int], None]  # reports how many more timesteps, or other units, are done


@contextmanager
def shown_progress(total: int, shown: bool, *, doing: str = "learning", unit: str = "timesteps") -> Iterator[Advance]:
    """Show how many of the timesteps, or of other units, are done, as reported to the context's function."""
    if not shown or not sys.stdout:
        yield lambda _: None
    elif not sys.stdout.isatty():
        yield lines(total, print_line, time.monotonic, unit)
    else:
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TimeRemainingColumn

        columns = (doing, BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
        with Progress(*columns, transient=True) as bar:
            task = bar.add_task("", total=total)
            yield lambda amount: bar.advance(task, amount)


def lines(total: int, say: Callable[[str], None], clock: Callable[[], float], unit: str = "timesteps") -> Advance:
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
        left = f"{timedelta(seconds=round((total - done) / rate))} left" if done else f"none in {now - began:.0f} s"
        say(f"{done:,} of {total:,} {unit} | {rate:,.0f} {unit}/s | {left}")

    return advance
