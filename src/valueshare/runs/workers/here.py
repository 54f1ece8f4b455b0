"""Running a plan in this process."""

from pathlib import Path

from valueshare.errors import InvalidInput, first_line
from valueshare.host_memory import is_out_of_memory
from valueshare.population.train import checked_device
from valueshare.runs import memory
from valueshare.runs.engines import EngineOptions
from valueshare.runs.execution import (
    Ending,
    Engine,
    Execution,
    Listener,
    Report,
    checked_needs,
    try_networks,
)
from valueshare.runs.plan import Plan, parts
from valueshare.runs.shards import cut
from valueshare.runs.workers.tasks import Task, run_part


class Local(Engine):
    """In this process, one population after the other."""

    def __init__(self, options: EngineOptions = EngineOptions()) -> None:  # noqa: B008 (frozen)
        self._most = options.population_agents
        self._said = ""  # of memory, when it was checked

    def check(self, plan: Plan, how: Execution) -> str:
        device = checked_device(plan.device)
        needs = checked_needs(plan, how)
        largest_first = sorted(needs.values(), key=lambda need: -need.total(device))
        line, *_ = [memory.check(need, device) for need in largest_first]
        try_networks(plan, how.network)
        self._said = line
        return line

    def fitted(self, plan: Plan) -> Plan:
        return cut(plan, self._most) if self._most else plan

    def run(
        self, plan: Plan, folder: Path, how: Execution, listener: Listener, report: Report
    ) -> None:
        for part in parts(plan):
            task = Task(str(folder), part.name, plan.device, how.threads, how.groups, how.url)
            try:
                finished = run_part(task, listener, how.network, plan)
            except (MemoryError, RuntimeError) as error:  # PyTorch's own are of the latter
                if not is_out_of_memory(error):
                    raise
                planned = f" (planned: {self._said})" if self._said else ""
                raise InvalidInput(
                    f"memory ran out{planned}: {first_line(error)}; all finished phases are safe: "
                    f"free some, then valueshare resume {folder}"
                ) from error
            report(part.name, Ending(finished))
            if not finished:
                return
