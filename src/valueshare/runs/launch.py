"""Running a plan here, in this process: population after population, into a run folder."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

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
from valueshare.runs.networks import check_network
from valueshare.runs.plan import Part, Plan, parts
from valueshare.runs.run_folder import Run


class Execution(NamedTuple):
    """How a plan is run here; nothing of it changes a number."""

    network: NetworkFactory | None = None  # the one that the plan names
    threads: int | None = None  # of the environments; None: one a core
    tensorboard: bool = False
    progress: bool = True  # whether the run shows itself
    should_stop: Callable[[], bool] | None = None  # asked at every step


def check(plan: Plan, network: NetworkFactory | None = None, threads: int | None = None) -> str:
    """Everything that can be found wrong before a run; one line of the memory it needs.

    Populations run one after the other, so the largest one decides.
    """
    if threads is not None and threads < 1:
        raise InvalidInput(f"threads = {threads}: write at least 1, or leave it out")
    device = checked_device(plan.device)
    needs = []
    for part in parts(plan):
        settings = part.settings
        spec = environment_spec(part.env, part.backend, settings.atari_protocol)
        limit = settings.eval_episode_limit
        check_evaluation(settings, spec.episode_limit if limit is None else limit)
        if network is not None:
            check_network(part, spec, network)
        needs.append(memory.need(part, network))
    lines = [memory.check(need, device) for need in sorted(needs, key=lambda n: n.total(device))]
    return lines[-1]


def launch(plan: Plan, folder: Path, how: Execution, console: Console) -> Run:
    """Run, or go on with, the plan of a run folder; not finished where `should_stop` ended it.

    The caller holds the folder.
    """
    records = run_folder.read_records(folder, skip_damaged=True)  # those are made again
    display = Display(parts(plan), plan.agents, records, console)
    events = Events(folder, plan.agents, records) if how.tensorboard else None

    def on_phase(report: PhaseReport) -> None:
        display.on_phase(report)
        if events is not None:
            events.on_phase(report)

    def run(part: Part) -> bool:
        return train_population(
            part.agents,
            part.settings,
            network=how.network,
            directory=folder,
            name=part.name,
            device=plan.device,
            compiled=plan.compiled,
            backend=part.backend,
            threads=how.threads,
            on_phase=on_phase,
            should_stop=how.should_stop,
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
