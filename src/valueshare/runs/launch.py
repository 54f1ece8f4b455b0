"""Running a plan here, in this process: population after population, into a run folder."""

from collections.abc import Callable
from pathlib import Path

import torch
from rich.console import Console

from valueshare.envs import environment_spec
from valueshare.errors import InvalidInput
from valueshare.population.evaluate import check_evaluation
from valueshare.population.state import NetworkFactory
from valueshare.population.train import PhaseReport, checked_device, train_population
from valueshare.runs import memory, run_folder
from valueshare.runs.display import Display
from valueshare.runs.events import Events
from valueshare.runs.plan import Part, Plan, parts
from valueshare.runs.run_folder import Run


def check(plan: Plan, network: NetworkFactory | None = None, threads: int | None = None) -> str:
    """Everything that can be found wrong before a run; one line of the memory it needs.

    Populations run one after the other, so the largest one decides.
    """
    if threads is not None and threads < 1:
        raise InvalidInput(f"threads = {threads}: write at least 1, or leave it out")
    device = checked_device(plan.device)
    needs = []
    for part in parts(plan):
        limit = part.settings.eval_episode_limit
        own_limit = environment_spec(part.env, part.backend).episode_limit
        check_evaluation(part.settings, own_limit if limit is None else limit)
        needs.append(memory.need(part, network))
    lines = [memory.check(need, device) for need in sorted(needs, key=lambda n: n.total(device))]
    return lines[-1]


def launch(
    plan: Plan,
    folder: Path,
    *,
    network: NetworkFactory | None = None,
    threads: int | None = None,
    tensorboard: bool = False,
    console: Console,
    should_stop: Callable[[], bool] | None = None,
) -> Run:
    """Run, or go on with, the plan of a run folder; not finished where `should_stop` ended it."""
    with run_folder.held(folder):
        records = run_folder.read_records(folder, skip_damaged=True)  # those are made again
        display = Display(parts(plan), plan.agents, records, console)
        events = Events(folder, plan.agents, records) if tensorboard else None

        def on_phase(report: PhaseReport) -> None:
            display.on_phase(report)
            if events is not None:
                events.on_phase(report)

        def run(part: Part) -> bool:
            return train_population(
                part.agents,
                part.settings,
                network=network,
                directory=folder,
                name=part.name,
                device=plan.device,
                compiled=plan.compiled,
                backend=part.backend,
                threads=threads,
                on_phase=on_phase,
                should_stop=should_stop,
                on_tick=display.on_tick,
            ).finished

        finished = True
        try:
            with display.watch():
                for number, part in enumerate(parts(plan)):
                    display.begin(number)
                    if not run_folder.is_part_finished(folder, part) and not run(part):
                        finished = False
                        break
        except torch.OutOfMemoryError as error:
            raise InvalidInput(
                "the device ran out of memory; all finished phases are safe: free some of it, then "
                f"valueshare resume {folder}"
            ) from error
        finally:
            if events is not None:
                events.close()
        return Run(folder, plan.agents, run_folder.read_records(folder), finished)
