"""Running a plan on a Ray cluster: every population is one Ray task, which Ray places and retries.

A task is a population of a run's folder, by name. A worker or node that is lost costs the phase
that it was in: Ray runs the task again elsewhere, and the population goes on from its last
checkpoint. Workers write checkpoints, records and progress into the run's folder, and the driver
reads progress and records there.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch

from valueshare.errors import InvalidInput
from valueshare.population.train import check_replay_device
from valueshare.runs import memory, speed
from valueshare.runs.engines import EngineOptions
from valueshare.runs.execution import Ending, Engine, Execution, Listener, Report, checked_needs
from valueshare.runs.plan import Part, Plan, parts
from valueshare.runs.progress import Progress, read_progress
from valueshare.runs.shards import cut, ends, longest_first
from valueshare.runs.storage.places import Place, Url
from valueshare.runs.storage.remote import Copy, is_small
from valueshare.runs.workers import worker
from valueshare.runs.workers.cluster import (
    ANSWER_SECONDS,
    Node,
    joined,
    nodes,
    reason_of,
    slot_of,
)
from valueshare.runs.workers.sight import check_reach, check_sight
from valueshare.runs.workers.tasks import Task, tell

POLL_SECONDS = 0.5
END_SECONDS = 10.0  # for workers that were told to end


@contextmanager
def connected(options: EngineOptions) -> Iterator["OnRay"]:
    """The engine on the cluster that the options name."""
    with joined(options) as ray:
        yield OnRay(ray, options, nodes(ray))


class OnRay(Engine):
    """Populations side by side, on the nodes that have what one of them needs."""

    def __init__(self, ray: Any, options: EngineOptions, there: Sequence[Node]) -> None:
        self._ray, self._options, self._nodes = ray, options, there
        self._rates: dict[str, float] = {}  # agent-steps a second, by population
        self._wanted: dict[str, int] = {}  # bytes of a host's memory, by population

    def check(self, plan: Plan, how: Execution) -> str:
        """Memory is each population's own: they run side by side."""
        if plan.network is not None:
            raise InvalidInput("a network of one's own trains here alone: write engine local")
        device = _device(plan)
        check_replay_device(_replay_device(plan), device)
        slot = slot_of(self._options, plan.device, self._nodes)
        able = [node for node in self._nodes if slot.fits(node)]
        most = max(node.memory for node in able)
        needs = checked_needs(plan, how)
        wanted = {name: _host_bytes(need, device) for name, need in needs.items()}
        name = max(wanted, key=lambda name: wanted[name])
        if wanted[name] > most:
            raise memory.DoesNotFit(
                f"{name} needs {memory.shown(wanted[name])} of memory and no node has more than "
                f"{memory.shown(int(most))}: write a smaller --population-agents or "
                "replay-capacity"
            )
        self._wanted = wanted
        slots = sum(slot.times(node) for node in able)
        gpus = f" and {_counted(slot.gpus, 'GPU')}" if slot.gpus else ""
        return (
            f"at most {memory.shown(wanted[name])} for a population; room for {slots} at once on "
            f"{_counted(len(able), 'node')}, with {_counted(slot.cpus, 'CPU')}{gpus} each"
        )

    def fitted(self, plan: Plan) -> Plan:
        """Cut what does not fit into the memory of a node, or of its GPU."""
        most = self._options.population_agents
        plan = cut(plan, most) if most else plan
        if plan.network is not None:
            return plan  # refused by `check`
        device, slot = _device(plan), slot_of(self._options, plan.device, self._nodes)
        host = int(max(node.memory for node in self._nodes if slot.fits(node)))
        room = self._gpu_room(slot.gpus) if slot.gpus else host
        limits = {}
        for part in parts(plan._replace(pieces={})):
            need = memory.need(part)
            fit = memory.most_agents(need, device, room, host) if room else part.agents.height
            if not fit:
                raise InvalidInput(
                    f"one agent of {part.label} needs {memory.shown(need.each(device))} and does "
                    f"not fit: write {memory.SMALLER[need.largest]}"
                )
            limits[part.name] = fit
        return cut(plan, limits)

    def check_folder(self, folder: Place) -> str | None:
        if isinstance(folder, Url):
            check_reach(self._ray, folder, self._nodes)
            return None
        return check_sight(self._ray, folder, self._nodes)

    def expect(self, plan: Plan, folder: Path | None, *, measure: bool) -> str | None:
        """Wall time and hours of workers, by measured speeds; without evaluations.

        Speeds are those of the run so far. Where it has not begun, they are measured if that is
        wanted, or if the order matters: otherwise all populations begin at once.
        """
        own, slot = parts(plan), slot_of(self._options, plan.device, self._nodes)
        slots = sum(slot.times(node) for node in self._nodes)
        before = {part.name: Progress() for part in own}
        if folder is not None:
            before = {part.name: read_progress(folder, part.name) for part in own}
        self._rates = {
            part.name: done.step * part.agents.height / done.seconds
            for part in own
            if (done := before[part.name]).step and done.seconds
        }
        unknown = [part for part in own if part.name not in self._rates]
        if unknown and (measure or len(own) > slots):
            self._measure(plan, unknown, slot.cpus)
        if len(self._rates) < len(own):
            return None
        left = {
            part.name: (part.settings.steps - before[part.name].step)
            * (part.agents.height / self._rates[part.name])
            for part in own
        }
        wall = ends([left[name] for name in longest_first(left)], slots)[-1]
        return f"expected: {_hours(wall, sum(left.values()), slot.gpus)}, without evaluations"

    def run(
        self, plan: Plan, folder: Path, how: Execution, listener: Listener, report: Report
    ) -> None:
        ray, slot = self._ray, slot_of(self._options, plan.device, self._nodes)
        own = {part.name: part for part in parts(plan)}
        seconds = {name: p.agent_steps / self._rates.get(name, 1.0) for name, p in own.items()}
        remote = ray.remote(worker.work)
        device = "cuda" if slot.gpus else "cpu"  # Ray shows a worker its own GPU alone
        threads = how.threads or slot.cpus
        tasks = {}
        for name in longest_first(seconds):
            where = "" if how.url else str(folder.resolve())  # at an address, a worker has its own
            task = Task(where, name, device, threads, how.groups, how.url)
            options = {
                "num_cpus": slot.cpus,
                "num_gpus": slot.gpus,
                "memory": self._wanted[name],
                "max_retries": self._options.ray_retries,
                "name": name,
            }
            tasks[remote.options(**options).remote(task.to_json())] = name
        before = {name: read_progress(folder, name) for name in own}
        told, said = dict(before), dict.fromkeys(own, 0)
        copy = Copy(folder, how.url) if how.url else None
        try:
            while tasks:
                done, _ = ray.wait(list(tasks), timeout=POLL_SECONDS)
                if copy is not None:
                    copy.pull_news(at_once=bool(done))
                for name in tasks.values():
                    told[name] = tell(folder, own[name], told[name], listener)
                    lost = told[name].attempts - before[name].attempts - 1
                    if lost > said[name]:
                        said[name] = lost
                        listener.on_note(f"{name} was lost and goes on from its last checkpoint")
                for ref in done:
                    report(tasks.pop(ref), self._ending(ref))
                if listener.should_stop is not None and listener.should_stop():
                    break
        finally:
            self._end(list(tasks))
        if copy is not None:
            copy.pull(is_small)

    def took(self, plan: Plan, folder: Path, seconds: float) -> str | None:
        spent = sum(read_progress(folder, part.name).seconds for part in parts(plan))
        gpus = self._options.ray_gpus if plan.device.startswith("cuda") else 0.0
        return f"took: {_hours(seconds, spent, gpus)}"

    def _ending(self, ref: Any) -> Ending:
        errors = self._ray.exceptions
        try:
            return Ending(finished=bool(self._ray.get(ref)))
        except errors.TaskCancelledError:
            return Ending(finished=False)
        except errors.RayTaskError as error:
            return Ending(finished=False, reason=reason_of(error))
        except errors.RayError as error:
            tries = self._options.ray_retries + 1
            times = "once" if tries == 1 else f"{tries} times"
            return Ending(
                finished=False, reason=f"its worker was lost {times} ({reason_of(error)})"
            )

    def _end(self, refs: list[Any]) -> None:
        """End tasks where they are: a phase that is not finished leaves no trace."""
        for ref in refs:
            self._ray.cancel(ref, force=True)
        if refs:
            self._ray.wait(refs, num_returns=len(refs), timeout=END_SECONDS)

    def _gpu_room(self, gpus: float) -> int:
        """What a population has of a GPU, on the smallest that answers; 0 where none does."""
        asked = self._ray.remote(worker.gpu_bytes).options(num_cpus=0, num_gpus=gpus).remote()
        try:
            whole = self._ray.get(asked, timeout=ANSWER_SECONDS)
        except (self._ray.exceptions.GetTimeoutError, self._ray.exceptions.RayError):
            return 0  # busy with others: what does not fit is found out when it runs
        return int(whole * min(1.0, gpus))

    def _measure(self, plan: Plan, unknown: Sequence[Part], cpus: int) -> None:
        """A few seconds of each kind of population, where it will run."""
        slot = slot_of(self._options, plan.device, self._nodes)
        remote = self._ray.remote(worker.speed).options(
            num_cpus=slot.cpus, num_gpus=slot.gpus, max_retries=1
        )
        kinds: dict[tuple[object, ...], list[Part]] = {}
        for part in unknown:
            algorithms = tuple(sorted(part.agents["algorithm"].unique()))
            family = plan.families.get(part.env, part.env)
            kinds.setdefault((family, algorithms, part.agents.height), []).append(part)
        on_worker = plan._replace(device="cuda" if slot.gpus else "cpu")
        asked = {
            kind: remote.remote(speed.request(on_worker, members[0], cpus))
            for kind, members in kinds.items()
        }
        for kind, ref in asked.items():
            try:
                rate = float(self._ray.get(ref))
            except self._ray.exceptions.RayError as error:
                raise InvalidInput(
                    f"{kinds[kind][0].name} cannot be run ({reason_of(error)})"
                ) from error
            self._rates |= {part.name: rate for part in kinds[kind]}


def _host_bytes(need: memory.Need, device: torch.device) -> int:
    return memory.host_bytes(need) if device.type == "cuda" else memory.process_bytes(need)


def _device(plan: Plan) -> torch.device:
    """cpu or cuda: which GPU it is, is Ray's to say."""
    if plan.device not in ("cpu", "cuda"):
        raise InvalidInput(f"device = {plan.device!r}: write cpu or cuda; Ray chooses the GPU")
    return torch.device(plan.device)


def _replay_device(plan: Plan) -> str | None:
    return next((s.replay_device for s in plan.settings.values() if s.replay_device), None)


def _counted(count: float, noun: str) -> str:
    return f"{count:g} {noun}" if count == 1 else f"{count:g} {noun}s"


def _hours(wall: float, workers: float, gpus: float) -> str:
    """3:00:00, and of workers 4:00:00 or, with half a GPU each, 2.00 GPU-hours."""
    spent = f"{workers * gpus / 3_600:,.2f} GPU-hours"
    return f"{_clock(wall)}, {spent if gpus else f'{_clock(workers)} of workers'}"


def _clock(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))
