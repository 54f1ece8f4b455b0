"""How a run shows itself: one live display in a terminal, plain lines elsewhere."""

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta

import polars as pl
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from valueshare.runs.groups import group_scores, label, own_values, shown_score
from valueshare.runs.plan import Part
from valueshare.text import how_many

REFRESH_SECONDS = 0.25  # of the live display
LINE_SECONDS = 60.0  # plain lines between those of finished phases
GROUPS_SHOWN = 24  # rows of the live table


class Display:
    """The whole run: one population after the other, or several at once.

    A step is one of each agent, as in the settings; an agent-step is one of one agent: a step of 10
    agents is 10 of them. Rates and the time that is left count agent-steps.
    """

    def __init__(
        self,
        parts: Sequence[Part],
        agents: pl.DataFrame,
        records: pl.DataFrame,
        console: Console,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._parts = {part.name: part for part in parts}
        self._agents, self._records = agents, records
        self._console, self._clock = console, clock
        self._steps = dict.fromkeys(self._parts, 0)  # of each agent
        # When and at which step this process first heard of a population that runs.
        self._began: dict[str, tuple[float, int]] = {}
        self._shown = next(iter(self._parts))  # the one that was heard of last
        self._refreshed = clock()

    def watch(self) -> AbstractContextManager[object]:
        """Show the run while the context lasts; in a terminal it is redrawn all the time."""
        if not self._console.is_terminal or self._console.quiet:
            return nullcontext()
        rate = 1 / REFRESH_SECONDS
        return Live(get_renderable=self.render, console=self._console, refresh_per_second=rate)

    def end(self, part: str, *, finished: bool) -> None:
        """A population runs no longer; where it did not finish, its steps are to be done again."""
        self._steps[part] = self._parts[part].settings.total_steps if finished else 0
        self._began.pop(part, None)

    def is_due(self) -> bool:
        """Whether a step is worth telling."""
        wait = REFRESH_SECONDS if self._console.is_terminal else LINE_SECONDS
        return not self._began or self._clock() - self._refreshed >= wait

    def on_step(self, part: str, step: int) -> None:
        now = self._clock()
        if part in self._began and not self.is_due():
            self._steps[part] = step
            return
        self._shown, self._steps[part] = part, step
        if part not in self._began:
            self._began[part] = now, step
        elif not self._console.is_terminal:
            self._say(self.line())
        self._refreshed = now

    def on_phase(self, part: str, step: int, records: pl.DataFrame) -> None:
        self._shown, self._steps[part], self._refreshed = part, step, self._clock()
        self._records = pl.concat([self._records, records])
        if not self._console.is_terminal:
            self._say(self.line() + (self.scores() if records.height else ""))

    def agent_steps_per_second(self) -> float | None:
        """Of the populations that run, since this process took them up; None before there is one.

        One that was lost and is back at an earlier step has no rate until it is past it.
        """
        now, rate = self._clock(), 0.0
        for name, (began, first) in self._began.items():
            seconds, steps = now - began, self._steps[name] - first
            if seconds > 0 and steps > 0:
                rate += steps * self._parts[name].agents.height / seconds
        return rate or None

    def seconds_left(self) -> float | None:
        """Of the whole run, if it goes on as fast as the populations that run now."""
        rate = self.agent_steps_per_second()
        if rate is None:
            return None
        return (self._total() - self._done()) / rate

    def line(self) -> str:
        """Where the run is, in one line: the population heard of last, and how many run besides."""
        part, step = self._parts[self._shown], self._steps[self._shown]
        number = list(self._parts).index(self._shown) + 1
        agents = how_many(part.agents.height, "agent")
        words = [
            part.label,
            f"population {number} of {len(self._parts)}",
            f"{agents} at step {step:,} of {part.settings.total_steps:,}",
        ]
        if len(self._began) > 1:
            share = 100 * self._done() / self._total()
            words.append(f"{len(self._began)} at once, {share:.1f} % done")
        if (rate := self.agent_steps_per_second()) is not None:
            words.append(f"{rate:,.0f} agent-steps/s")
        if (left := self.seconds_left()) is not None:
            words.append(f"{timedelta(seconds=round(left))} left")
        return " | ".join(words)

    def scores(self) -> str:
        """The groups of the population heard of last, for the end of a line."""
        rows = group_scores(self._parts[self._shown].agents, self._records).to_dicts()
        return " | score " + ", ".join(f"{label(row)} {shown_score(row['score'])}" for row in rows)

    def render(self) -> RenderableType:
        """The live display: a bar, where the run is, and a table of the groups."""
        table = Table("environment", "algorithm", *_RIGHT, box=None, pad_edge=False)
        for column in table.columns[2:]:
            column.justify = "right"
        rows = group_scores(self._agents, self._records).to_dicts()
        for row in rows[:GROUPS_SHOWN]:
            table.add_row(
                row["env"],
                " ".join([row["algorithm"], *own_values(row)]),
                f"{row['k']:g}",
                f"{row['agents']:,}",
                "-" if row["step"] is None else f"{row['step']:,}",
                shown_score(row["score"]),
                f"{row['diverged']:,}" if row["diverged"] else "",
            )
        hidden = len(rows) - GROUPS_SHOWN
        bar = Table.grid(expand=True)  # a bar by itself does not end its line
        bar.add_row(ProgressBar(total=self._total(), completed=self._done()))
        return Group(
            bar,
            Text(self.line()),
            table,
            Text(f"and {hidden} groups more" if hidden > 0 else ""),
        )

    def _total(self) -> int:
        return sum(part.agent_steps for part in self._parts.values())

    def _done(self) -> int:
        return sum(self._steps[name] * part.agents.height for name, part in self._parts.items())

    def _say(self, line: str) -> None:
        self._console.print(line, highlight=False, soft_wrap=True)


_RIGHT = ("k", "agents", "evaluated at", "score", "diverged")
