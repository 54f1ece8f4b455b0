"""Running a plan into a run folder, population by population, by the engine that was chosen."""

import time
from pathlib import Path

import polars as pl
from rich.console import Console

from valueshare.runs import run_folder
from valueshare.runs.display import Display
from valueshare.runs.events import Events
from valueshare.runs.execution import Ending, Engine, Execution, Listener
from valueshare.runs.plan import Plan, parts
from valueshare.runs.run_folder import Run


def launch(plan: Plan, folder: Path, how: Execution, console: Console, runs: Engine) -> Run:
    """Run, or go on with, the plan of a run folder; not finished where `should_stop` ended it.

    The caller holds the folder.
    """
    began = time.monotonic()
    records = run_folder.read_records(folder, skip_damaged=True)  # those are made again
    display = Display(parts(plan), plan.agents, records, console)
    events = Events(folder, plan.agents, records) if how.tensorboard else None
    endings: dict[str, Ending] = {}

    def on_phase(part: str, step: int, new: pl.DataFrame) -> None:
        display.on_phase(part, step, new)
        if events is not None:
            events.on_phase(new)

    def report(part: str, ending: Ending) -> None:
        endings[part] = ending
        display.end(part, finished=ending.finished)
        if ending.reason is not None:
            say(console, f"{part} failed: {ending.reason}")

    listener = Listener(
        on_step=display.on_step,
        on_phase=on_phase,
        on_note=lambda line: say(console, line),
        due=display.is_due,
        should_stop=how.should_stop,
    )
    try:
        with display.watch():
            runs.run(plan, folder, how, listener, report)
    finally:
        if events is not None:
            events.close()
    if (line := runs.took(plan, folder, time.monotonic() - began)) is not None:
        say(console, line)
    finished = all(part.name in endings and endings[part.name].finished for part in parts(plan))
    failures = {name: end.reason for name, end in endings.items() if end.reason is not None}
    return Run(folder, plan.agents, run_folder.read_records(folder), finished, failures)


def say(console: Console, *lines: str) -> None:
    """Lines as they are, whatever the width of the terminal."""
    for line in lines:
        console.print(line, highlight=False, markup=False, soft_wrap=True)
