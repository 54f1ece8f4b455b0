"""Running a plan on a Ray cluster: every population is one Ray task, which Ray places and retries.

A task is a population of a run's folder, by name. A worker or node that is lost costs the phase that it was in: Ray
runs the task again on another, and the population resumes from its last checkpoint. Workers write checkpoints, records
and progress into the run's folder, and the driver reads progress and records there.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch

from valueshare.errors import InvalidInput
from valueshare.host_memory import format_bytes
from valueshare.population import memory
from valueshare.population.devices import check_replay_device
from valueshare.population.spec import PopulationSpec
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
from valueshare.runs.shards import end_times, longest_first
from valueshare.runs.storage.locations import Location, Url
from valueshare.runs.storage.remote import RunStorage, is_metadata
from valueshare.runs.workers import cluster, worker
from valueshare.runs.workers.tasks import Task, relay_progress, speed_request
from valueshare.schema import Progress
from valueshare.text import pluralize

POLL_SECONDS = 0.5
END_SECONDS = 10.0  # for workers whose tasks were cancelled


@contextmanager
def connected(options: LauncherOptions) -> Iterator["RayLauncher"]:
    """The launcher on the cluster that the options name."""
    with cluster.connect(options) as ray:
        yield RayLauncher(ray, options, cluster.nodes(ray))


class RayLauncher(Launcher):
    """Runs populations at once, on the nodes that have the resources of one."""

    def __init__(self, ray: Any, options: LauncherOptions, available: Sequence[cluster.Node]) -> None:
        self._ray, self._options, self._nodes = ray, options, available
        self._rates: dict[str, float] = {}  # agent-steps per second, by population
        self._host_bytes: dict[str, int] = {}  # memory that each population needs

    @property
    def has_gpus(self) -> bool:
        return any(node.gpus for node in self._nodes)

    def check(self, plan: Plan, execution: ExecutionOptions) -> Checked:
        """The memory is that of one population."""
        if plan.network is not None:
            raise InvalidInput("a custom network trains in this process only: write `launcher = 'local'`")
        if execution.callbacks:
            raise InvalidInput("callbacks are called in the one process that trains: write `launcher = 'local'`")
        device = _device(plan)
        check_replay_device(next((s.replay_device for s in plan.settings.values() if s.replay_device), None), device)
        slot = self._slot(plan)
        able = [node for node in self._nodes if slot.fits(node)]
        most = max(node.memory for node in able)
        wanted = {name: memory.process_bytes(need, device) for name, need in check_needs(plan, execution).items()}
        notes = try_environments(plan)
        name = max(wanted, key=lambda name: wanted[name])
        if wanted[name] > most:
            raise memory.DoesNotFit(
                f"{name} needs {format_bytes(wanted[name])} of memory and no node has more than "
                f"{format_bytes(int(most))}",
                "write a smaller `population_agents` or `replay_capacity`",
            )
        self._host_bytes = wanted
        slots = sum(slot.count_on(node) for node in able)
        gpus = f" and {slot.gpus:g} GPU{'' if slot.gpus == 1 else 's'}" if slot.gpus else ""
        return Checked(
            f"at most {format_bytes(wanted[name])} for a population; room for {slots} at once on "
            f"{pluralize(len(able), 'node')}, with {pluralize(slot.cpus, 'CPU')}{gpus} each",
            notes,
        )

    def split(self, plan: Plan) -> Plan:
        """Split populations that do not fit into the memory of a node, or of its GPU."""
        plan = split(plan, self._options.population_agents)
        if plan.network is not None:
            return plan  # refused by `check`
        device, slot = _device(plan), self._slot(plan)
        host = int(max(node.memory for node in self._nodes if slot.fits(node)))
        room = self._gpu_room(slot.gpus) if slot.gpus else host
        limits = {}
        for name, spec in plan.unsplit_populations.items():
            need = memory.estimate(spec)
            fit = memory.most_agents(need, device, room, host) if room else spec.agents.height
            if not fit:
                raise InvalidInput(
                    f"one agent of {spec.label} needs {format_bytes(need.device_bytes(device).per_agent)} and does not "
                    f"fit: write {memory.ADVICE[need.largest]}"
                )
            limits[name] = fit
        return split(plan, limits)

    def check_location(self, location: Location) -> str | None:
        if isinstance(location, Url):
            cluster.check_url(self._ray, location, self._nodes)
            return None
        return cluster.check_shared_folder(self._ray, location, self._nodes)

    def estimate(self, plan: Plan, folder: Path | None, *, measure: bool) -> str | None:
        """Wall time and hours of workers, by measured speeds; without evaluations.

        Speeds are those of the run so far. Before its start, they are measured if `measure` is set, or if not all
        populations begin at once, so that their order matters.
        """
        specs, slot = plan.populations, self._slot(plan)
        slots = sum(slot.count_on(node) for node in self._nodes)
        before = {name: Progress() if folder is None else read_progress(folder, name) for name in specs}
        self._rates = {
            name: done.step * specs[name].agents.height / done.seconds
            for name, done in before.items()
            if done.step and done.seconds
        }
        unknown = [spec for name, spec in specs.items() if name not in self._rates]
        if unknown and (measure or len(specs) > slots):
            self._measure(plan, unknown, slot)
        if len(self._rates) < len(specs):
            return None
        left = {
            name: (spec.settings.steps - before[name].step) * (spec.agents.height / self._rates[name])
            for name, spec in specs.items()
        }
        wall = end_times([left[name] for name in longest_first(left)], slots)[-1]
        return f"expected: {_hours(wall, sum(left.values()), slot.gpus)}, without evaluations"

    def run(self, plan: Plan, folder: Path, execution: ExecutionOptions, hooks: ProgressHooks) -> None:
        ray, slot, specs, url = self._ray, self._slot(plan), plan.populations, execution.url
        seconds = {name: s.agent_steps / self._rates.get(name, 1.0) for name, s in specs.items()}
        remote = ray.remote(worker.work)
        device = "cuda" if slot.gpus else "cpu"  # Ray shows a worker its own GPU alone
        threads = execution.threads or slot.cpus
        # At a URL, each worker makes its own copy.
        shared = "" if url else str(folder.resolve())
        tasks = {}
        for name in longest_first(seconds):
            task = Task(shared, name, device, threads, execution.groups, url)
            resources = {"num_cpus": slot.cpus, "num_gpus": slot.gpus, "memory": self._host_bytes[name]}
            placed = remote.options(**resources, max_retries=self._options.ray_retries, name=name)
            tasks[placed.remote(task.to_json())] = name
        before = {name: read_progress(folder, name) for name in specs}
        progress, noted = dict(before), dict.fromkeys(specs, 0)
        storage = RunStorage(folder, url)
        try:
            while tasks:
                done, _ = ray.wait(list(tasks), timeout=POLL_SECONDS)
                storage.pull_progress(at_once=bool(done))
                for name in tasks.values():
                    progress[name] = relay_progress(folder, specs[name], progress[name], hooks)
                    lost = progress[name].attempts - before[name].attempts - 1
                    if lost > noted[name]:
                        noted[name] = lost
                        hooks.on_note(f"{name}: worker lost; resuming from its last checkpoint")
                for ref in done:
                    hooks.on_end(tasks.pop(ref), self._outcome(ref))
                if hooks.should_stop():
                    break
        finally:
            for ref in tasks:  # at once: an unfinished phase leaves no trace
                ray.cancel(ref, force=True)
            if tasks:
                ray.wait(list(tasks), num_returns=len(tasks), timeout=END_SECONDS)
        storage.pull(is_metadata)

    def time_taken(self, plan: Plan, folder: Path, seconds: float) -> str | None:
        spent = sum(read_progress(folder, name).seconds for name in plan.populations)
        gpus = self._options.ray_gpus if plan.device.startswith("cuda") else 0.0
        return f"took: {_hours(seconds, spent, gpus)}"

    def _slot(self, plan: Plan) -> cluster.Slot:
        return cluster.slot_of(self._options, plan.device, self._nodes)

    def _outcome(self, ref: Any) -> Outcome:
        errors = self._ray.exceptions
        try:
            return Outcome(finished=bool(self._ray.get(ref)))
        except errors.TaskCancelledError:
            return Outcome(finished=False)
        except errors.RayTaskError as error:
            return Outcome(finished=False, reason=cluster.reason_of(error))
        except errors.RayError as error:
            tries = self._options.ray_retries + 1
            times = "once" if tries == 1 else f"{tries} times"
            return Outcome(False, f"its worker was lost {times} ({cluster.reason_of(error)})")

    def _gpu_room(self, gpus: float) -> int:
        """A population's share of a GPU's memory, of the first that replies; 0 where none does."""
        reply = self._ray.remote(worker.gpu_bytes).options(num_cpus=0, num_gpus=gpus).remote()
        try:
            total = self._ray.get(reply, timeout=cluster.REPLY_SECONDS)
        except (self._ray.exceptions.GetTimeoutError, self._ray.exceptions.RayError):
            return 0  # all are busy: whether it fits shows when it runs
        return int(total * min(1.0, gpus))

    def _measure(self, plan: Plan, unknown: Sequence[PopulationSpec], slot: cluster.Slot) -> None:
        """Run each kind of population for a few seconds, where it will run."""
        remote = self._ray.remote(worker.speed).options(num_cpus=slot.cpus, num_gpus=slot.gpus, max_retries=1)
        kinds: dict[tuple[object, ...], list[str]] = {}
        for spec in unknown:
            algorithms = tuple(sorted(spec.agents["algorithm"].unique()))
            family = plan.families.get(spec.env, spec.env)
            kinds.setdefault((family, algorithms, spec.agents.height), []).append(spec.name)
        on_worker = replace(plan, device="cuda" if slot.gpus else "cpu")
        pending = [(names, remote.remote(speed_request(on_worker, names[0], slot.cpus))) for names in kinds.values()]
        for names, ref in pending:
            try:
                self._rates |= dict.fromkeys(names, float(self._ray.get(ref)))
            except self._ray.exceptions.RayError as error:
                cluster.raise_if_node_died("a node", error)
                raise InvalidInput(f"{names[0]} cannot be run ({cluster.reason_of(error)})") from error


def _device(plan: Plan) -> torch.device:
    """cpu or cuda; Ray chooses which GPU."""
    if plan.device not in ("cpu", "cuda"):
        raise InvalidInput(f"`device = {plan.device!r}`: write cpu or cuda; Ray chooses the GPU")
    return torch.device(plan.device)


def _hours(wall: float, workers: float, gpus: float) -> str:
    """3:00:00, 4:00:00 of workers; or 3:00:00, 2.00 GPU-hours with half a GPU each."""
    clock, spent = (str(timedelta(seconds=round(seconds))) for seconds in (wall, workers))
    return f"{clock}, {workers * gpus / 3_600:,.2f} GPU-hours" if gpus else f"{clock}, {spent} of workers"
