"""Running a plan into a run folder with a launcher, with a display and logs."""

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import polars as pl

from valueshare.records import read_progress
from valueshare.runs import run_folder
from valueshare.runs.callbacks import call_all
from valueshare.runs.display import NOTE, Display, print_lines
from valueshare.runs.launchers import ExecutionOptions, Launcher, Outcome, ProgressHooks
from valueshare.runs.logs import TensorBoardLog, WandbLog
from valueshare.runs.plan import Plan
from valueshare.runs.run import Run


def run_plan(plan: Plan, folder: Path, execution: ExecutionOptions, launcher: Launcher) -> Run:
    """Run the plan of a run folder, whose lock the caller holds, from its last checkpoints until its end or a stop."""
    began, console = time.monotonic(), execution.console
    location = execution.url or folder  # a folder may be a copy
    records = run_folder.read_records(folder, skip_damaged=True)  # damaged phases run again
    phases = {name: read_progress(folder, name).phases for name in plan.populations}
    saved = {name: plan.populations[name].settings.phase_end(count - 1) for name, count in phases.items() if count}
    stored = _drop_ends_before_extension(plan, records)
    records = _drop_later(plan, stored, saved)
    display = Display(plan, records, console, saved=saved)
    outcomes: dict[str, Outcome] = {}
    callbacks = execution.resolved_callbacks

    def on_phase(name: str, step: int, new: pl.DataFrame) -> None:
        display.on_phase(name, step, new)
        for log in logs:
            log.write(new)
        if new.height and callbacks:
            nonlocal records
            records = plan.populations[name].add_phase(records, step, new).sort("agent", "step")
            call_all(callbacks, new, Run(location, plan.agents, records, finished=False))

    def on_end(name: str, outcome: Outcome) -> None:
        outcomes[name] = outcome
        display.end(name, finished=outcome.finished)
        if outcome.reason is not None:
            print_lines(console, f"{NOTE if console.quiet else ''}{name} failed: {outcome.reason}")

    hooks = ProgressHooks(
        on_step=display.on_step,
        on_phase=on_phase,
        on_end=on_end,
        on_note=lambda line: print_lines(console, line),
        is_due=display.is_due,
        should_stop=execution.poll_stop,
    )
    with _open_logs(plan, folder, records, stored, execution) as logs, display.watch():
        launcher.run(plan, folder, execution, hooks)
        for name in plan.populations.keys() - outcomes.keys():  # stopped, or not begun
            display.end(name, finished=False)
    if (line := launcher.time_taken(plan, folder, time.monotonic() - began)) is not None:
        print_lines(console, line)
    finished = all(name in outcomes and outcomes[name].finished for name in plan.populations)
    failures = {name: end.reason for name, end in outcomes.items() if end.reason is not None}
    return Run(location, plan.agents, run_folder.read_records(folder), finished, failures)


@contextmanager
def _open_logs(
    plan: Plan, folder: Path, records: pl.DataFrame, stored: pl.DataFrame, execution: ExecutionOptions
) -> Iterator[list[TensorBoardLog | WandbLog]]:
    """The logs that were asked for; all that were opened are closed, also if the next one cannot be."""
    with ExitStack() as opened:
        logs: list[TensorBoardLog | WandbLog] = []
        if "tensorboard" in execution.log:
            logs.append(opened.enter_context(closing(TensorBoardLog(folder, plan.agents, records))))
        if "wandb" in execution.log:
            log = WandbLog(folder, plan, records, stored, lambda line: print_lines(execution.console, line))
            logs.append(opened.enter_context(closing(log)))
        yield logs


def _drop_later(plan: Plan, records: pl.DataFrame, saved: Mapping[str, int]) -> pl.DataFrame:
    """Drop what each population makes again: all after the step of its last checkpoint, or all without one."""
    for name, spec in plan.populations.items():
        records = spec.drop_later(records, saved.get(name, -1))
    return records


def _drop_ends_before_extension(plan: Plan, records: pl.DataFrame) -> pl.DataFrame:
    """Drop the last evaluation of a run that was extended since, where the longer run has none."""
    for spec in plan.populations.values():
        ends = [step for step in spec.extended_from if step % spec.settings.eval_interval]
        of_population = pl.col("agent").is_in(spec.agents["agent"].to_list())
        records = records.filter(~(of_population & pl.col("step").is_in(ends)))
    return records
