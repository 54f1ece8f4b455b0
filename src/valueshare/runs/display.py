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

from valueshare.population.state import State
from valueshare.population.train import PhaseReport
from valueshare.runs.groups import group_scores, label, own_values, shown_score
from valueshare.runs.plan import Part

REFRESH_SECONDS = 0.25  # of the live display
LINE_SECONDS = 60.0  # plain lines between those of finished phases
GROUPS_SHOWN = 24  # rows of the live table


class Display:
    """The whole run, population after population.

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
        self._parts, self._agents, self._records = parts, agents, records
        self._console, self._clock = console, clock
        self._number = 0  # of the population that runs
        self._step = 0  # of each of its agents
        # When and at which step this process took it up.
        self._began: tuple[float, int] | None = None
        self._refreshed = clock()

    def watch(self) -> AbstractContextManager[object]:
        """Show the run while the context lasts; in a terminal it is redrawn all the time."""
        if not self._console.is_terminal or self._console.quiet:
            return nullcontext()
        rate = 1 / REFRESH_SECONDS
        return Live(get_renderable=self.render, console=self._console, refresh_per_second=rate)

    def begin(self, number: int) -> None:
        """The population of this number runs from now on."""
        self._number, self._step, self._began = number, 0, None

    def on_tick(self, state: State) -> None:
        now = self._clock()
        wait = REFRESH_SECONDS if self._console.is_terminal else LINE_SECONDS
        if self._began is not None and now - self._refreshed < wait:
            return
        self._step = int(state.step)
        if self._began is None:
            self._began = now, self._step
        elif not self._console.is_terminal:
            self._console.print(self.line(), highlight=False, soft_wrap=True)
        self._refreshed = now

    def on_phase(self, report: PhaseReport) -> None:
        self._step, self._refreshed = report.step, self._clock()
        self._records = pl.concat([self._records, report.records])
        if not self._console.is_terminal:
            scores = self.scores() if report.records.height else ""
            self._console.print(self.line() + scores, highlight=False, soft_wrap=True)

    def agent_steps_per_second(self) -> float | None:
        """Of the running population since this process took it up; None before there is one."""
        if self._began is None:
            return None
        seconds, steps = self._clock() - self._began[0], self._step - self._began[1]
        return steps * self._part.agents.height / seconds if seconds > 0 and steps > 0 else None

    def seconds_left(self) -> float | None:
        """Of the whole run, if later populations are as fast as this one."""
        rate = self.agent_steps_per_second()
        if rate is None:
            return None
        here = (self._part.settings.total_steps - self._step) * self._part.agents.height
        later = sum(part.agent_steps for part in self._parts[self._number + 1 :])
        return (here + later) / rate

    def line(self) -> str:
        """Where the run is, in one line."""
        agents, steps = self._part.agents.height, self._part.settings.total_steps
        words = [
            self._part.label,
            f"population {self._number + 1} of {len(self._parts)}",
            f"{agents:,} agents at step {self._step:,} of {steps:,}",
        ]
        if (rate := self.agent_steps_per_second()) is not None:
            words.append(f"{rate:,.0f} agent-steps/s")
        if (left := self.seconds_left()) is not None:
            words.append(f"{timedelta(seconds=round(left))} left")
        return " | ".join(words)

    def scores(self) -> str:
        """The groups of the running population, for the end of a line."""
        rows = group_scores(self._part.agents, self._records).to_dicts()
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
        done = sum(part.agent_steps for part in self._parts[: self._number])
        done += self._step * self._part.agents.height
        total = sum(part.agent_steps for part in self._parts)
        hidden = len(rows) - GROUPS_SHOWN
        bar = Table.grid(expand=True)  # a bar by itself does not end its line
        bar.add_row(ProgressBar(total=total, completed=done))
        return Group(
            bar,
            Text(self.line()),
            table,
            Text(f"and {hidden} groups more" if hidden > 0 else ""),
        )

    @property
    def _part(self) -> Part:
        return self._parts[self._number]


_RIGHT = ("k", "agents", "evaluated at", "score", "diverged")
