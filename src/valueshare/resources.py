"""Device, worker processes and compilation of a run: chosen where they are left out, with the reasons in one line.

None of them changes an agent's random numbers; a CUDA device and compilation change rounding, so both are stored with
the run. What changes results more, like TensorFloat-32, stays as it is set: a hint names it where it would pay.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import cache, partial
from types import MappingProxyType
from typing import Any, NamedTuple

import torch

from valueshare.cores import available_cores
from valueshare.envs.backends import BACKENDS
from valueshare.errors import InvalidInput, without_marks
from valueshare.nn.operators import has_tensorfloat_32
from valueshare.population.compilation import check_compiler, compiler_problem
from valueshare.population.devices import checked_device
from valueshare.population.engine import asynchronous_groups, candidate_groups, has_trial, prefers_processes
from valueshare.population.evaluate import eval_env_count
from valueshare.population.memory import DoesNotFit
from valueshare.runs.launcher_options import LauncherOptions
from valueshare.runs.launchers import Checked, ExecutionOptions, Launcher
from valueshare.runs.plan import AUTO, Plan
from valueshare.runs.storage.locations import Location, Url
from valueshare.runs.workers.local import LocalLauncher, ProcessLauncher, environment_threads
from valueshare.runs.workers.ray import RayLauncher, connected
from valueshare.text import either, pluralize


class Speedup(NamedTuple):
    """Seconds that compilation takes per population, and saves per step and per step of one agent."""

    compile_seconds: float
    per_step: float
    per_agent_step: float


# From docs/speed.md. CPU, a process with one thread: a step of 4 LunarLander agents took 0.97 ms and compiled 0.38, of
# 32 agents 2.60 and 1.69 ms. A run of 1,300 steps of 4 agents took 40 s longer if it was compiled with an empty cache,
# and 9 s longer with a filled one (PyTorch 2.13). CUDA: a step of one agent takes 0.72 ms and compiled 0.17,
# of 2,040 agents 11.10 and 4.67 ms; an update of 16 Atari agents was compiled in 31 to 43 s.
SPEEDUPS = {"cpu": Speedup(40.0, 0.55e-3, 0.011e-3), "cuda": Speedup(40.0, 0.55e-3, 2.9e-6)}
# A worker process is assumed to take 5 s to start; two save 0.05 ms per agent-step (6,587 and 9,811 per second).
SHORT_RUN = 100_000  # agent-steps


class RunSize(NamedTuple):
    """The amount of computation; at most `most_workers` can share it, one per `share`."""

    agent_steps: int
    steps: int  # of all populations, one after the other
    populations: int
    most_workers: int
    share: str = "agent"  # or population: those of a resumed run are not split again


class Choice(NamedTuple):
    """A value and its reason."""

    value: Any
    reason: str = "as requested"


class Resources(NamedTuple):
    """Device, worker processes and compilation; "auto", 0 and None are left to `choose`."""

    device: Choice = Choice(AUTO)
    workers: Choice = Choice(0)
    compiled: Choice = Choice(None)

    @property
    def line(self) -> str:
        processes = "1 process" if self.workers.value == 1 else f"{self.workers.value} worker processes"
        values = (self.device.value, processes, "compiled" if self.compiled.value else "not compiled")
        return "resources: " + ", ".join(f"{word} ({choice.reason})" for word, choice in zip(values, self, strict=True))

    def to_json(self) -> dict[str, Any]:
        return {"device": self.device.value, "workers": self.workers.value, "compile": bool(self.compiled.value)}


def choose(requested: Resources, size: RunSize, *, cores: int, cuda: bool) -> Resources:
    """Keep the given values and choose the others, for a run of this size on a machine with `cores` cores."""
    device, workers, compiled = requested
    if device.value == AUTO:
        device = Choice("cuda", "found") if cuda else Choice("cpu", "no CUDA device")
    kind = device.value.partition(":")[0]
    if not workers.value:
        if kind != "cpu":
            workers = Choice(1, "one batched program")
        elif size.agent_steps < SHORT_RUN:
            workers = Choice(1, "a short run")
        elif size.most_workers < cores:
            workers = Choice(size.most_workers, f"one per {size.share} at most")
        else:
            workers = Choice(cores, pluralize(cores, "core"))
    elif workers.value > size.most_workers:
        workers = Choice(
            size.most_workers, f"{workers.value} {workers.reason.removeprefix('as ')}, one per {size.share} at most"
        )
    if compiled.value is None:
        speedup, populations = SPEEDUPS.get(kind, SPEEDUPS["cpu"]), max(size.populations, workers.value)
        # Each worker process makes all steps of a population that they share.
        steps = size.steps * populations / size.populations
        saved = steps * speedup.per_step + size.agent_steps * speedup.per_agent_step
        repaid = saved >= populations * speedup.compile_seconds
        count = f"{size.agent_steps / 1e6:,.1f} million" if size.agent_steps >= 1e6 else f"{size.agent_steps:,}"
        per_what = " per process" if workers.value > 1 else " per population" if populations > 1 else ""
        cost = f"compile time about {speedup.compile_seconds:.0f} s{per_what}"
        compiled = Choice(repaid, f"{cost}, {'' if repaid else 'not '}expected to pay off over {count} agent-steps")
    return Resources(device, workers, compiled)


class PreparedPlan(NamedTuple):
    """A plan with its resources chosen and its populations split, and the launcher that runs it."""

    plan: Plan
    launcher: Launcher
    resources: Resources
    lines: list[str]  # the choices, and a hint
    check: Callable[[], Checked]  # refuse what cannot run; repeated calls check nothing again


def cluster_for(options: LauncherOptions) -> AbstractContextManager[RayLauncher | None]:
    """The cluster that the options name, until the context ends; None for this machine."""
    return nullcontext() if options.launcher == "local" else connected(options)


def prepare_plan(
    plan: Plan,
    execution: ExecutionOptions,
    cluster: RayLauncher | None,
    location: Location | None = None,
    *,
    resuming: bool = False,
    stored_workers: int = 0,
    stored_groups: Mapping[str, int | None] = MappingProxyType({}),
    try_compile: bool = True,
) -> PreparedPlan:
    """Choose the resources of a plan and split its populations for them; with `resuming` they stay as they are.

    `stored_workers` are those that it had, if they are known (0: not), and fewer where they do not fit into memory.
    `stored_groups` are those of the populations that have checkpoints (None: not known).
    With `try_compile`, a small function is compiled as a test; without it, only the compiler is looked for.
    """
    if cluster is None and plan.device != AUTO:
        checked_device(plan.device)
    origin, specs = "as stored" if resuming else "as requested", plan.populations.values()
    automatic = not execution.launcher.workers
    is_in_memory = isinstance(location, Url) and location.scheme == "memory"
    requested = Resources(
        Choice(plan.device, origin), Choice(execution.launcher.workers), Choice(plan.compiled, origin)
    )
    size = RunSize(
        agent_steps=sum(spec.agent_steps for spec in specs),
        steps=sum(spec.settings.steps for spec in specs),
        populations=len(specs),
        most_workers=len(specs) if resuming else plan.agents.height,
        share="population" if resuming else "agent",
    )
    if cluster is not None:
        requested = requested._replace(workers=Choice(1, "per population, by Ray"))
        if plan.compiled is None:  # every population would compile, on nodes that are not known here
            requested = requested._replace(compiled=Choice(False, "on Ray only with --compile"))
    elif automatic:
        requested = requested._replace(workers=_required_workers(plan, execution, is_in_memory, stored_workers))
    elif is_in_memory and requested.workers.value > 1:
        raise InvalidInput("memory:// exists only in this process: leave out `workers`")
    cuda = _has_cuda() if cluster is None else cluster.has_gpus
    while True:
        chosen = choose(requested, size, cores=available_cores(), cuda=cuda)
        options = replace(execution.launcher, workers=chosen.workers.value)
        launcher = cluster or (LocalLauncher if options.workers == 1 else ProcessLauncher)(options)
        split = replace(plan, device=chosen.device.value)
        split = split if resuming else launcher.split(split)
        check = cache(partial(_check, launcher, split, execution, resuming=resuming))
        if not automatic or chosen.workers.value == 1:
            break
        try:
            check()
            break
        except DoesNotFit:
            requested = requested._replace(workers=Choice(chosen.workers.value // 2, "more do not fit into memory"))
        except InvalidInput as error:
            requested = requested._replace(workers=Choice(1, without_marks(error)))
    if cluster is None:
        if chosen.compiled.value and try_compile:
            check()  # nothing is compiled for a run that is refused
        chosen = _check_compiled(chosen, automatic=plan.compiled is None, resuming=resuming, try_compile=try_compile)
    split = replace(split, compiled=chosen.compiled.value)
    # On a cluster, Ray's slots decide.
    environments = (
        [] if cluster is not None else _environment_words(split, execution, chosen.workers.value, stored_groups)
    )
    line = ", ".join([chosen.line, *environments])
    return PreparedPlan(split, launcher, chosen, [line, *([] if resuming else _hints(split))], check)


def _check(launcher: Launcher, plan: Plan, execution: ExecutionOptions, *, resuming: bool) -> Checked:
    """The launcher's check; where a plan does not fit, the first advice is smaller populations, if it can have them."""
    try:
        return launcher.check(plan, execution)
    except DoesNotFit as error:
        if resuming:  # its populations stay as they are
            raise
        raise error.advising_smaller_populations() from error.__cause__


def _required_workers(plan: Plan, execution: ExecutionOptions, is_in_memory: bool, stored: int) -> Choice:
    """The number of worker processes if it does not depend on the run's size; 0: it does."""
    if plan.network is not None:
        return Choice(1, "a custom network")
    if execution.callbacks:
        return Choice(1, "callbacks")
    if is_in_memory:
        return Choice(1, "memory:// is per process")
    return Choice(stored, "as stored")


def _environment_words(
    plan: Plan, execution: ExecutionOptions, workers: int, stored_groups: Mapping[str, int | None]
) -> list[str]:
    """The threads that step environments, and the groups of agents, with reasons; only where there are any."""
    specs = plan.populations.values()
    workers = min(workers, len(specs))
    threads = environment_threads(execution.threads, workers)
    texts = []
    if threaded := [spec for spec in specs if BACKENDS[spec.backend].is_threaded]:
        per_process = " per process" if workers > 1 else ""
        most = max(spec.agents.height * eval_env_count(spec.settings) for spec in threaded)
        count, reason = threads, "as requested" if execution.threads else pluralize(available_cores(), "core")
        if execution.threads and threads > most:
            count, reason = most, f"{threads} requested, one per environment at most"
        texts.append(f"up to {pluralize(count, 'environment thread')}{per_process} ({reason})")
    groups = _groups_words(plan, execution, threads, stored_groups)
    return [*texts, *([] if groups is None else [groups])]


def _groups_words(
    plan: Plan, execution: ExecutionOptions, threads: int, stored_groups: Mapping[str, int | None]
) -> str | None:
    """The groups of agents of the largest population, with the reason; None where agents are not divided."""
    largest, device = max(plan.populations.values(), key=lambda spec: spec.agents.height), torch.device(plan.device)
    agents = largest.agents.height
    if execution.groups is not None:
        count = min(execution.groups, agents)
        reason = "as requested" if count == execution.groups else f"{execution.groups} requested, one per agent at most"
    elif (stored := stored_groups.get(largest.name)) is not None:
        count, reason = stored, "as stored"
    elif any(
        prefers_processes(spec.backend, spec.settings.replay_device, device) for spec in plan.populations.values()
    ):
        candidates = candidate_groups(agents, threads)
        if candidates and has_trial(largest.settings) and largest.name not in stored_groups:
            counts = either(map(str, candidates))
            return f"{counts} groups of agents (by a trial at the start, emulators in processes)"
        count = asynchronous_groups(agents, threads)
        reason = "emulators in processes, one per group"
    else:
        return None
    return f"{pluralize(count, 'group')} of agents ({reason})"


def _check_compiled(chosen: Resources, *, automatic: bool, resuming: bool, try_compile: bool) -> Resources:
    """Not compiled where nothing can be compiled, if that was chosen here; else it is refused."""
    if not chosen.compiled.value or not (automatic or try_compile):
        return chosen
    device = checked_device(chosen.device.value)
    if not automatic:
        advice = "this run is compiled: resume it where there is a compiler" if resuming else "leave `compile` out"
        check_compiler(device, advice, try_it=try_compile)
        return chosen
    problem = compiler_problem(device, try_it=try_compile)
    if problem is None:
        return chosen
    return chosen._replace(compiled=Choice(False, f"nothing can be compiled here: {problem}"))


def _has_cuda() -> bool:
    try:
        checked_device("cuda")
    except InvalidInput:
        return False
    return True


def _hints(plan: Plan) -> list[str]:
    """A note on TensorFloat-32 where it has no effect; settings that change results and would pay here, in one line."""
    if plan.device == "cpu" and any(settings.tf32 for settings in plan.settings.values()):
        return ["note: --tf32 has no effect on a CPU"]
    if not plan.device.startswith("cuda") or not torch.cuda.is_available():  # a cluster's driver may have none
        return []
    hints, settings = [], plan.settings.values()
    if has_tensorfloat_32(torch.device(plan.device)) and not all(s.tf32 for s in settings):
        hints.append("--tf32 makes matrix products faster on this GPU; results differ by rounding of about 1e-3")
    if any(BACKENDS[plan.backends[env]].is_slow and not s.delayed_actor for env, s in plan.settings.items()):
        hints.append("--delayed-actor lets agents act while they learn, with weights from before the last update")
    return [f"hint: {'; '.join(hints)}"] if hints else []
