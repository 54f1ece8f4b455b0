"""The display of a run: live in a terminal, plain lines otherwise."""

import logging
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from types import MappingProxyType

import polars as pl
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from valueshare.errors import printable
from valueshare.integers import round_up
from valueshare.runs.plan import Plan
from valueshare.runs.variants import label, shown_k, shown_score, variant_scores, variant_settings
from valueshare.text import pluralize

_log = logging.getLogger(__name__)

NOTE = "note: "  # the beginning of a line on what limits a result
REFRESH_SECONDS = 0.25  # between frames of the live display
LINE_SECONDS = 60.0  # between plain lines within a phase
VARIANTS_SHOWN = 24  # rows of the live table
RIGHT_COLUMNS = ("k", "agents", "evaluated at", "score", "diverged")  # aligned to the right
COMPILING = "compiling, which takes a minute or two"


class Display:
    """The progress of a whole run: one population after the other, or several at once.

    A step is a step of every agent; an agent-step is a step of one agent: a step of 10 agents is 10 agent-steps. Rates
    and the remaining time count agent-steps, of all populations since the first callback. A compiled population has
    neither until it is past its first update, when all of its functions are compiled; they are counted from there.
    """

    def __init__(
        self,
        plan: Plan,
        records: pl.DataFrame,
        console: Console,
        clock: Callable[[], float] = time.monotonic,
        saved: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        """`saved`: each population's step of its last checkpoint, if the run is resumed; `records` go that far."""
        self._specs, self._agents, self._records = plan.populations, plan.agents, records
        self._console, self._clock = console, clock
        self._saved = {**dict.fromkeys(self._specs, 0), **saved}
        self._steps = dict(self._saved)  # steps of each agent, by population
        self._created = clock()
        self._running: set[str] = set()
        self._began: tuple[float, int] | None = None  # the time and agent-steps from which the rate is counted
        # The step after which nothing of a population is compiled any more, until it is past it.
        self._compiling = {name: self._last_compiled(name) for name in self._specs} if plan.compiled else {}
        self._part = "part" if plan.chunks else "population"  # a population that is split has parts
        self._refreshed = clock()

    def watch(self) -> AbstractContextManager[object]:
        """Show the run while the context lasts; in a terminal it is redrawn continuously."""
        if not self._console.is_terminal or self._console.quiet:
            return nullcontext()
        rate = 1 / REFRESH_SECONDS
        return Live(get_renderable=self.render, console=self._console, refresh_per_second=rate)

    def end(self, name: str, *, finished: bool) -> None:
        """A population has ended; if it did not finish, its steps since the last checkpoint count as not done."""
        self._steps[name] = self._specs[name].settings.steps if finished else self._saved[name]
        self._running.discard(name)
        self._compiling.pop(name, None)

    def is_due(self) -> bool:
        """Whether `on_step` should be called."""
        wait = REFRESH_SECONDS if self._console.is_terminal else LINE_SECONDS
        return not self._running or self._clock() - self._refreshed >= wait

    def on_step(self, name: str, step: int) -> None:
        is_shown = name not in self._running or self.is_due()
        self._note_step(name, step)
        if is_shown:
            if not self._console.is_terminal:
                print_lines(self._console, self.line(name))
            self._refreshed = self._clock()

    def on_phase(self, name: str, step: int, records: pl.DataFrame) -> None:
        # The next phase may have begun before the checkpoint of this one was written.
        self._note_step(name, max(step, self._steps[name]))
        self._saved[name], self._refreshed = step, self._clock()
        self._records = self._specs[name].add_phase(self._records, step, records)
        if not self._console.is_terminal:
            print_lines(self._console, self.line(name) + (self.scores(name) if records.height else ""))

    def _note_step(self, name: str, step: int) -> None:
        self._running.add(name)
        if step < self._steps[name]:  # its last checkpoint is damaged: it resumed from the one before
            self._records = self._specs[name].drop_later(self._records, step)
        self._steps[name] = step
        if step > self._compiling.get(name, step):
            del self._compiling[name]
            self._began = None
        if self._began is None:
            self._began = self._clock(), self._done()

    def _last_compiled(self, name: str) -> int:
        """The step of the first update after the last checkpoint, which compiles the last function."""
        settings, saved = self._specs[name].settings, self._saved[name]
        update = max(settings.first_update, round_up(saved, settings.update_interval))
        return saved if update >= settings.steps else update  # no update is left, and acting compiles alone

    def agent_steps_per_second(self) -> float | None:
        """The rate of the run; None if nothing runs or a population compiles, and before the second callback."""
        is_stopped = not self._running and self._done() < self._total()
        if self._began is None or is_stopped or self._compiling.keys() & self._running:
            return None
        began, done = self._began
        seconds, steps = self._clock() - began, self._done() - done
        return steps / seconds if seconds > 0 and steps > 0 else None

    def least_advanced(self) -> str:
        """The population that runs and has done the smallest share of its steps; else the first unfinished one."""
        unfinished = [name for name, spec in self._specs.items() if self._steps[name] < spec.settings.steps]
        names = [name for name in self._specs if name in self._running] or unfinished[:1] or list(self._specs)[-1:]
        return min(names, key=lambda name: self._steps[name] / self._specs[name].settings.steps)

    def line(self, name: str) -> str:
        """One line: a population, and the share of the run that is done where several run at once."""
        spec, step = self._specs[name], self._steps[name]
        number = list(self._specs).index(name) + 1
        agents = pluralize(spec.agents.height, "agent")
        parts = [
            spec.label,
            f"{self._part} {number} of {len(self._specs)}",
            f"{agents} at step {step:,} of {spec.settings.steps:,}",
        ]
        if len(self._running) > 1:
            share = 100 * self._done() / self._total()
            parts.append(f"run {share:.1f} % done")
        if name in self._compiling:
            parts.append(COMPILING)
        elif self._began is None:
            parts.append(f"starting, {self._clock() - self._created:.0f} s")
        if rate := self.agent_steps_per_second():
            parts.append(f"{rate:,.0f} agent-steps/s")
            if left := self._total() - self._done():
                parts.append(f"{timedelta(seconds=round(left / rate))} left")
        return " | ".join(parts)

    def scores(self, name: str) -> str:
        """Scores of the variants of a population, for the end of a line."""
        agents = self._specs[name].agents
        several = agents["env"].n_unique() > 1
        rows = variant_scores(agents, self._records).to_dicts()
        names = [f"{row['env']} {label(row)}" if several else label(row) for row in rows]
        return " | score " + ", ".join(
            f"{name} {shown_score(row['score'])}" for name, row in zip(names, rows, strict=True)
        )

    def render(self) -> RenderableType:
        """The live display: a progress bar, the line of the least advanced population, and a table of the variants."""
        table = Table("environment", "algorithm", *RIGHT_COLUMNS, box=None, pad_edge=False)
        for column in table.columns[2:]:
            column.justify = "right"
        rows = variant_scores(self._agents, self._records).to_dicts()
        for row in rows[:VARIANTS_SHOWN]:
            table.add_row(
                Text(printable(row["env"])),
                Text(printable(" ".join([row["algorithm"], *variant_settings(row)]))),
                shown_k(row),
                f"{row['agents']:,}",
                "-" if row["step"] is None else f"{row['step']:,}",
                shown_score(row["score"]),
                f"{row['diverged']:,}" if row["diverged"] else "",
            )
        hidden = len(rows) - VARIANTS_SHOWN
        bar = Table.grid(expand=True)  # a bar alone does not end its line
        bar.add_row(ProgressBar(total=self._total(), completed=self._done()))
        line = Text(printable(self.line(self.least_advanced())))
        return Group(bar, line, table, Text(f"and {hidden} more" if hidden > 0 else ""))

    def _total(self) -> int:
        return sum(spec.agent_steps for spec in self._specs.values())

    def _done(self) -> int:
        return sum(self._steps[name] * spec.agents.height for name, spec in self._specs.items())


def print_lines(console: Console, *lines: str) -> None:
    """Print lines without wrapping at the terminal's width; of a quiet console, notes are logged as warnings."""
    for line in lines:
        if console.quiet and line.startswith(NOTE):
            _log.warning("%s", printable(line.removeprefix(NOTE)))
        console.print(printable(line), highlight=False, markup=False, soft_wrap=True)
