"""Running a plan on this machine: in this process, or in several, each with one population.

On a CPU the threads of one batched program wait for each other at every operation. Processes with one thread each and a
share of the agents do not: two of them are about twice as fast on two cores. They write checkpoints, records and
progress into the run's folder, and the driver reads there.
"""

import subprocess
import sys
import time
from pathlib import Path

from valueshare.children import Child, child_environment
from valueshare.cores import available_cores
from valueshare.envs.backends import BACKENDS
from valueshare.errors import InvalidInput, first_line
from valueshare.host_memory import format_bytes, is_out_of_memory
from valueshare.population import memory
from valueshare.population.devices import checked_device
from valueshare.population.network_check import check_network
from valueshare.records import read_progress
from valueshare.runs.launcher_options import LauncherOptions
from valueshare.runs.launchers import (
    Checked,
    ExecutionOptions,
    Launcher,
    Outcome,
    ProgressHooks,
    check_needs,
    try_environments,
)
from valueshare.runs.plan import Plan, split
from valueshare.runs.run_folder import is_population_finished
from valueshare.runs.shards import balance, estimated_cost, longest_first
from valueshare.runs.storage.copies import checkpoint_status
from valueshare.runs.workers import worker
from valueshare.runs.workers.tasks import Task, relay_progress, run_population
from valueshare.text import pluralize, resume_command

POLL_SECONDS = 0.1

# A program that prints which of its arguments Gymnasium does not know in a new process.
_UNKNOWN = """
import sys, gymnasium
for name in sys.argv[1:]:
    try:
        gymnasium.spec(name)
    except gymnasium.error.Error:
        print(name)
"""


class LocalLauncher(Launcher):
    """Runs populations in this process, one after the other."""

    def __init__(self, options: LauncherOptions) -> None:
        self._most_agents = options.population_agents
        self._memory = ""  # the line that `check` returned

    def check(self, plan: Plan, execution: ExecutionOptions) -> Checked:
        device = checked_device(plan.device)
        needs, notes = check_needs(plan, execution), try_environments(plan)
        largest_first = sorted(needs.values(), key=lambda need: -need.device_bytes(device).total)
        self._memory, *_ = [memory.check(need, device) for need in largest_first]
        if execution.network is not None:
            for spec in plan.populations.values():
                check_network(spec, execution.network)
        return Checked(self._memory, notes)

    def split(self, plan: Plan) -> Plan:
        return split(plan, self._most_agents)

    def run(self, plan: Plan, folder: Path, execution: ExecutionOptions, hooks: ProgressHooks) -> None:
        for name in plan.populations:
            task = Task(str(folder), name, plan.device, execution.threads, execution.groups, execution.url)
            try:
                finished = run_population(task, hooks, execution.network, plan)
            except (MemoryError, RuntimeError) as error:  # PyTorch raises the latter
                if not is_out_of_memory(error):
                    raise
                raise InvalidInput(
                    f"out of memory (planned: {self._memory}): {first_line(error)}; {checkpoint_status(folder)}: "
                    f"free memory, then {resume_command(folder)}"
                ) from error
            hooks.on_end(name, Outcome(finished))
            if not finished:
                return


class ProcessLauncher(Launcher):
    """Runs populations at once in several processes, the longest first."""

    def __init__(self, options: LauncherOptions) -> None:
        self._workers, self._most_agents = options.workers, options.population_agents

    def check(self, plan: Plan, execution: ExecutionOptions) -> Checked:
        """The memory is that of the largest populations together, each in its own process."""
        option = f"`workers = {self._workers}`"
        if plan.network is not None:
            raise InvalidInput(f"{option}: a custom network trains in this process only; leave it out")
        if execution.callbacks:
            raise InvalidInput(
                f"{option}: callbacks are called in the one process that trains; "
                "write `workers = 1` or leave out `callback`; resume and extend have `no_callbacks` too"
            )
        device = checked_device(plan.device)
        if device.type != "cpu":
            raise InvalidInput(
                f"{option}: on a GPU one population is one batched program already; leave it out, or write "
                "`device = 'cpu'`"
            )
        _check_environments(plan)
        needs, notes = check_needs(plan, execution), try_environments(plan)
        for need in needs.values():
            memory.check(need, device)
        largest = sorted(memory.process_bytes(need, device) for need in needs.values())[-self._workers :]
        wanted, free = sum(largest), memory.free_bytes(device)
        if free is not None and wanted > memory.USABLE * free:
            raise memory.DoesNotFit(
                f"{option}: populations side by side need {format_bytes(wanted)} of memory and {format_bytes(free)} "
                "are free",
                "write fewer, or a smaller `population_agents` or `replay_capacity`",
            )
        shown_free = "unknown" if free is None else format_bytes(free)
        count = pluralize(len(largest), "population") + (" at once" if len(largest) > 1 else "")
        per_process = format_bytes(memory.PROCESS_BYTES)
        required = f"requires {format_bytes(wanted)} for {count} ({per_process} per process)"
        return Checked(f"{required}; {shown_free} available", notes)

    def split(self, plan: Plan) -> Plan:
        """Split populations that are too large to keep all workers busy to the end."""
        return balance(split(plan, self._most_agents), self._workers)

    def run(self, plan: Plan, folder: Path, execution: ExecutionOptions, hooks: ProgressHooks) -> None:
        specs, where = plan.populations, str(folder.resolve())
        workers = min(self._workers, len(specs))
        threads = environment_threads(execution.threads, workers)
        waiting = longest_first({name: estimated_cost(spec) for name, spec in specs.items()})
        progress = {name: read_progress(folder, name) for name in specs}
        running: dict[str, Child] = {}
        try:
            while waiting or running:
                while waiting and len(running) < workers:
                    name = waiting.pop(0)
                    if is_population_finished(folder, specs[name]):
                        hooks.on_end(name, Outcome(finished=True))
                        continue
                    task = Task(where, name, plan.device, threads, execution.groups, execution.url)
                    running[name] = Child(worker.__name__, task.to_json())
                ended = [name for name, process in running.items() if process.has_ended()]
                for name in running:
                    progress[name] = relay_progress(folder, specs[name], progress[name], hooks)
                for name in ended:
                    hooks.on_end(name, _outcome(running.pop(name)))
                if hooks.should_stop():
                    return
                time.sleep(POLL_SECONDS)
        finally:  # an unfinished phase leaves no trace
            for process in running.values():
                process.kill()
            for process in running.values():
                process.close()


def environment_threads(given: int | None, workers: int) -> int:
    """The threads that step the environments of each process."""
    return given or max(1, available_cores() // workers)


def _outcome(process: Child) -> Outcome:
    """The outcome of a worker; an error that the user can fix is raised."""
    result = process.result()
    process.close()
    result.raise_if_fixable()
    return Outcome(finished=result.code == 0, reason=result.reason if result.code else None)


def _check_environments(plan: Plan) -> None:
    """Refuse environments that only this process has registered with Gymnasium."""
    registered = [env for env, backend in plan.backends.items() if BACKENDS[backend].is_third_party]
    names = [env for env in registered if ":" not in env]  # with a module, which registers them
    if not names:
        return
    command = [sys.executable, "-P", "-c", _UNKNOWN, *names]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, env=child_environment(), text=True, check=False
    )
    if unknown := done.stdout.split():
        raise InvalidInput(
            f"workers do not know {unknown[0]}, which your program registers: put its module before the name, like "
            f"my_package:{unknown[0]}, or leave out `workers`"
        )
