"""Running a plan in this process."""

from pathlib import Path

from valueshare.errors import InvalidInput, first_line
from valueshare.host_memory import is_out_of_memory
from valueshare.population import memory
from valueshare.population.network_check import check_network
from valueshare.population.train import checked_device
from valueshare.runs.execution import Callbacks, ExecutionOptions, Launcher, Outcome, checked_needs
from valueshare.runs.launcher_options import LauncherOptions
from valueshare.runs.plan import Plan, split
from valueshare.runs.workers.tasks import Task, run_population


class LocalLauncher(Launcher):
    """Runs populations in this process, one after the other."""

    def __init__(self, options: LauncherOptions = LauncherOptions()) -> None:  # noqa: B008 (frozen)
        self._most_agents = options.population_agents
        self._memory = ""  # the line that `check` returned

    def check(self, plan: Plan, execution: ExecutionOptions) -> str:
        device = checked_device(plan.device)
        needs = checked_needs(plan, execution)
        largest_first = sorted(needs.values(), key=lambda need: -need.total(device))
        self._memory, *_ = [memory.check(need, device) for need in largest_first]
        if execution.network is not None:
            for spec in plan.populations.values():
                check_network(spec, execution.network)
        return self._memory

    def split(self, plan: Plan) -> Plan:
        return split(plan, self._most_agents) if self._most_agents else plan

    def run(self, plan: Plan, folder: Path, execution: ExecutionOptions, callbacks: Callbacks) -> None:
        threads, groups, url = execution.threads, execution.groups, execution.url
        for name in plan.populations:
            task = Task(str(folder), name, plan.device, threads, groups, url)
            try:
                finished = run_population(task, callbacks, execution.network, plan)
            except (MemoryError, RuntimeError) as error:  # PyTorch raises the latter
                if not is_out_of_memory(error):
                    raise
                planned = f" (planned: {self._memory})" if self._memory else ""
                raise InvalidInput(
                    f"memory ran out{planned}: {first_line(error)}; all finished phases are safe: "
                    f"free some, then valueshare resume {folder}"
                ) from error
            callbacks.on_end(name, Outcome(finished))
            if not finished:
                return
