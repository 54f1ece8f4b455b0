"""Running a plan on this machine in several processes, each with a population of its own.

On a CPU the threads of one batched program wait for each other at every operation. Processes with
one thread each and a part of the agents do not: two of them are about twice as fast on two cores.
They write checkpoints, records and progress into the run's folder, and the driver reads there.
"""

import subprocess
import sys
import time
from pathlib import Path

from valueshare.children import Child, child_environment
from valueshare.cores import available_cores
from valueshare.errors import InvalidInput
from valueshare.population.train import checked_device
from valueshare.runs import memory
from valueshare.runs.engines import EngineOptions
from valueshare.runs.execution import Ending, Engine, Execution, Listener, Report, checked_needs
from valueshare.runs.plan import Plan, parts
from valueshare.runs.progress import read_progress
from valueshare.runs.run_folder import is_part_finished
from valueshare.runs.shards import balanced, cut, length, longest_first
from valueshare.runs.workers import worker
from valueshare.runs.workers.tasks import Task, tell

POLL_SECONDS = 0.1

# Says which of its arguments are no environments to a new process.
_UNKNOWN = """
import sys, gymnasium
for name in sys.argv[1:]:
    try:
        gymnasium.spec(name)
    except gymnasium.error.Error:
        print(name)
"""


class Processes(Engine):
    """Populations side by side in so many processes, the longest first."""

    def __init__(self, options: EngineOptions) -> None:
        self._workers, self._most = options.workers, options.population_agents

    def check(self, plan: Plan, how: Execution) -> str:
        """Memory is that of the largest ones together, each with a process of its own."""
        asked = f"workers = {self._workers}"
        if plan.network is not None:
            raise InvalidInput(
                f"{asked}: a network of one's own trains in this process alone; leave it out"
            )
        device = checked_device(plan.device)
        if device.type != "cpu":
            raise InvalidInput(
                f"{asked}: on a GPU one population is one batched program already; leave it out, "
                "or write device cpu"
            )
        _check_environments(plan)
        needs = checked_needs(plan, how)
        for need in needs.values():
            memory.check(need, device)
        largest = sorted(map(memory.process_bytes, needs.values()))[-self._workers :]
        wanted, free = sum(largest), memory.free_bytes(device)
        if free is not None and wanted > memory.USABLE * free:
            raise memory.DoesNotFit(
                f"{asked}: populations side by side need {memory.shown(wanted)} of memory and "
                f"{memory.shown(free)} are free; write fewer, or a smaller population-agents or "
                "replay-capacity"
            )
        known = "unknown" if free is None else memory.shown(free)
        count = "1 population" if len(largest) == 1 else f"{len(largest)} populations at once"
        each = memory.shown(memory.PROCESS_BYTES)
        return f"{memory.shown(wanted)} needed by {count} ({each} for each process), {known} free"

    def fitted(self, plan: Plan) -> Plan:
        """Cut what is too large to keep all workers busy to the end."""
        return balanced(cut(plan, self._most) if self._most else plan, self._workers)

    def run(
        self, plan: Plan, folder: Path, how: Execution, listener: Listener, report: Report
    ) -> None:
        own = {part.name: part for part in parts(plan)}
        places = min(self._workers, len(own))
        threads = how.threads or max(1, available_cores() // places)
        waiting = longest_first({name: length(part) for name, part in own.items()})
        told = {name: read_progress(folder, name) for name in own}
        running: dict[str, Child] = {}
        try:
            while waiting or running:
                while waiting and len(running) < places:
                    name = waiting.pop(0)
                    if is_part_finished(folder, own[name]):
                        report(name, Ending(finished=True))
                        continue
                    where = str(folder.resolve())
                    task = Task(where, name, plan.device, threads, how.groups, how.url)
                    running[name] = _started(task)
                ended = [name for name, process in running.items() if process.has_ended()]
                for name in running:
                    told[name] = tell(folder, own[name], told[name], listener)
                for name in ended:
                    report(name, _ending(running.pop(name)))
                if listener.should_stop is not None and listener.should_stop():
                    return
                time.sleep(POLL_SECONDS)
        finally:  # a phase that is not finished leaves no trace
            for process in running.values():
                process.kill()
            for process in running.values():
                process.close()


def _started(task: Task) -> Child:
    return Child(worker.__name__, task.to_json())


def _ending(process: Child) -> Ending:
    """How a worker ended; what the caller or the machine's owner can mend is raised."""
    answer = process.answer()
    process.close()
    answer.raise_if_mendable()
    return Ending(finished=answer.code == 0, reason=answer.why if answer.code else None)


def _check_environments(plan: Plan) -> None:
    """Refuse environments that this process's own program has registered with Gymnasium."""
    own = [env for env, backend in plan.backends.items() if backend == "gymnasium"]
    names = [env for env in own if ":" not in env]  # a module registers its own
    if not names:
        return
    asked = subprocess.run(
        [sys.executable, "-P", "-c", _UNKNOWN, *names],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env=child_environment(),
        text=True,
        check=False,
    )
    if unknown := asked.stdout.split():
        raise InvalidInput(
            f"workers do not know {unknown[0]}, which your program registers: put its module "
            f"before the name, like my_package:{unknown[0]}, or leave out workers"
        )
