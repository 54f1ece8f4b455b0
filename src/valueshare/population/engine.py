"""An engine: a population with its environments, its executor, and its evaluation."""

import logging
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import NamedTuple, TypeGuard

import numpy as np
import torch
from torch import Tensor

from valueshare.cores import available_cores
from valueshare.envs import make_environments
from valueshare.envs.backends import BACKENDS
from valueshare.envs.base import Environments
from valueshare.envs.gymnax import GymnaxEnvironments
from valueshare.envs.processes.environments import EnvironmentProcess
from valueshare.errors import InvalidInput, first_line
from valueshare.host_memory import keep_freed_memory
from valueshare.nn import operators
from valueshare.nn.kernel_check import check_kernels
from valueshare.population.evaluate import Evaluator, check_evaluation, eval_env_count
from valueshare.population.execution.cuda_driver import supports_stream_wait
from valueshare.population.execution.evaluators import HostEvaluator
from valueshare.population.execution.executor import GroupExecutor
from valueshare.population.execution.group_trial import GroupTrial, try_groups
from valueshare.population.execution.groups import make_grouped
from valueshare.population.execution.on_device import DeviceEvaluator, DeviceExecutor
from valueshare.population.loop import Executor, SerialExecutor
from valueshare.population.networks import network_inputs
from valueshare.population.settings import TrainingSettings
from valueshare.population.state import Population, State, torch_dtype
from valueshare.schema import Backend

_log = logging.getLogger(__name__)

# Asynchronous groups without a trial. Of 16 agents on 16 cores four groups were faster than two, and
# eight about as fast as four.
ASYNCHRONOUS_GROUPS = 4
THREADS_PER_GROUP = 4  # fewest threads that step the emulators of a group
# Numbers of groups in a trial, and the fewest threads per group. Sixteen were slower: their kernels delay each other.
TRIED_GROUPS = (2, 4, 8)
TRIED_THREADS_PER_GROUP = 2
TRIED_UPDATE_INTERVAL = 32  # most steps between updates: a trial times whole updates, and would take minutes
# Steps from which a run has a trial. At 1 ms per step they take 2.8 hours. A trial, with the compilation of all groups,
# takes up to 40 s on an H200: it pays if the fastest number is 0.4 % faster than the rule's.
TRIAL_STEPS = 10_000_000
CHECKED_AGENTS = 2  # whose networks of images are run to check the kernels


class Engine(NamedTuple):
    """A population with all that trains it; `evaluator` evaluates it, None where it only trains."""

    population: Population
    state: State
    executor: Executor
    evaluator: Evaluator | None
    trial: GroupTrial | None = None  # that found the number of groups, where there was one

    @property
    def groups(self) -> int | None:
        """The number of groups; None for executors without groups."""
        return len(self.executor.grouped.groups) if isinstance(self.executor, GroupExecutor) else None

    @property
    def process_groups(self) -> int | None:
        """The number of groups if their environments are in processes; checkpoints store it."""
        executor = self.executor
        return self.groups if isinstance(executor, GroupExecutor) and executor.is_asynchronous else None

    def close(self) -> None:
        """Free the environments; all of them, even if one fails to close."""
        with ExitStack() as stack:
            if self.evaluator is not None:
                stack.callback(self.evaluator.environments.close)
            stack.callback(self.executor.close)


def make_engine(
    population: Population,
    state: State,
    *,
    compiled: bool,
    threads: int | None = None,
    groups: int | None = None,
    evaluates: bool = True,
    processes: bool | None = None,
    trial: bool = False,
    on_trial_step: Callable[[], None] = lambda: None,
) -> Engine:
    """Build the engine of a population whose `state` is that before its first step; load a checkpoint afterwards.

    One group on a CPU is trained by the serial loop. With several `groups`, each steps at its own pace: while the
    environments of one group run, the device serves another; no agent's random numbers change. Groups share `threads`
    (None: one per core) evenly; evaluation has all of them, because nothing else runs then. `processes` puts each
    group's environments into a process of its own (None: if that is faster).

    With `trial`, the number of groups of environments in processes is that of `GroupTrial.chosen`, unless it is given;
    `on_trial_step` is called at every step meanwhile, and an exception from it ends the trial.
    """
    leave_out_failing_kernels(population, state)
    settings, size = population.settings, population.size
    if processes is None:
        processes = prefers_processes(population.env.backend, settings.replay_device, population.device)
    if processes and population.replay_on_host:
        raise InvalidInput("environments in processes need the replay on the GPU: leave `replay_device` out")
    threads = available_cores() if threads is None else threads
    candidates = candidate_groups(size, threads) if trial and processes and groups is None else ()
    if groups is None:
        groups = asynchronous_groups(size, threads) if processes else 1
    if not 1 <= groups <= size:
        raise InvalidInput(f"`groups = {groups}`: write a number from 1 to {size}, the number of agents")
    if population.device.type == "cpu":
        keep_freed_memory()
    names = population.agents["env"].to_list()
    with ExitStack() as on_failure:  # or processes of environments would keep running

        def close_on_failure(environments: Environments) -> Environments:
            on_failure.callback(environments.close)
            return environments

        eval_envs = None
        if evaluates:
            eval_envs = close_on_failure(evaluation_environments(population, threads))
            check_evaluation(settings, eval_envs.spec)
        make = _environment_process if processes else _environments

        def training_environments(groups: int) -> list[Environments]:
            shares = [share.tolist() for share in np.array_split(names, groups)]
            return [close_on_failure(make(population, share, max(1, threads // groups))) for share in shares]

        executor: Executor
        result: GroupTrial | None = None
        if candidates:
            grouped, result = try_groups(
                population,
                state,
                candidates,
                training_environments,
                default=groups,
                compiled=compiled,
                on_step=lambda step: on_trial_step(),
            )
            executor = GroupExecutor(grouped)
        else:
            executor = _make_executor(population, state, training_environments(groups), compiled, processes)
        evaluator = None if eval_envs is None else make_evaluator(population, state, eval_envs, compiled=compiled)
        on_failure.pop_all()
    return Engine(population, state, executor, evaluator, result)


def _make_executor(
    population: Population, state: State, environments: list[Environments], compiled: bool, processes: bool
) -> Executor:
    """The executor of a group for each of `environments`."""
    first, *others = environments
    if not others and _stays_on_device(first, population):
        return DeviceExecutor(population, state, first, compiled=compiled)
    if not others and population.device.type == "cpu" and not processes:
        return SerialExecutor(population, state, first, compiled=compiled)
    return GroupExecutor(make_grouped(population, state, environments, compiled=compiled))


def leave_out_failing_kernels(population: Population, state: State) -> None:
    """Leave the kernels for GPUs out, with a warning, if they fail on this GPU with the shapes of this population.

    `state` has the weights with which agents begin: a diverged agent's overflow in any kernel.
    """
    network = population.forward.stacked
    count = _checked_agents(population)
    weights = {name: value[:count] for name, value in state.online.parameters.items()}
    first = next(iter(weights.values()))
    if network is None or not operators.available(first):
        return
    buffers = {name: value[:count] for name, value in state.online.buffers.items()}
    counts = population.quantile_counts
    try:
        learning = _random_inputs(population, population.settings.batch_size, counts.learn)
        check_kernels(network, weights, buffers, learning)
        check_kernels(network, weights, buffers, learning, differentiate=False)  # as target networks are
        check_kernels(network, weights, buffers, _random_inputs(population, 1, counts.act), differentiate=False)
    except torch.OutOfMemoryError:
        raise  # the population does not fit: the kernels are not at fault
    except Exception as error:
        operators.leave_out(first)
        _log.warning("PyTorch's own products are used in place of this package's GPU kernels: %s", first_line(error))


def _checked_agents(population: Population) -> int:
    """The agents whose networks are run: of vectors as many as the kernels of these networks need."""
    of_vectors = len(population.env.network_shape) < 3
    return min(operators.MIN_MLP_AGENTS if of_vectors else CHECKED_AGENTS, population.size)


def _random_inputs(population: Population, states: int, quantiles: int) -> tuple[Tensor, ...]:
    """Random observations, and tau of a quantile network, for the agents whose kernels are checked."""
    device, leading = population.device, (_checked_agents(population), states)
    generator = torch.Generator(device).manual_seed(0)
    numbers = torch.randint(0, 256, (*leading, *population.env.network_shape), generator=generator, device=device)
    tau = torch.rand((*leading, quantiles), generator=generator, device=device) if quantiles else None
    return network_inputs(numbers.to(torch_dtype(population.env.observation_dtype)), tau)


def evaluation_environments(population: Population, threads: int | None = None) -> Environments:
    """The environments in which the agents are evaluated, `eval_env_count` per agent."""
    rows = [name for name in population.agents["env"].to_list() for _ in range(eval_env_count(population.settings))]
    return _environments(population, rows, available_cores() if threads is None else threads, evaluation=True)


def make_evaluator(population: Population, state: State, environments: Environments, *, compiled: bool) -> Evaluator:
    """The agents of a population, playing in its `evaluation_environments`."""
    if _stays_on_device(environments, population):
        return DeviceEvaluator(population, state, environments, compiled=compiled)
    return HostEvaluator(population, state, environments, compiled=compiled)


def prefers_processes(backend: Backend, replay_device: str | None, device: torch.device) -> bool:
    """Whether environments are faster in separate processes: slow ones, with replay on a GPU."""
    return BACKENDS[backend].is_slow and replay_device not in ("cpu", "disk") and supports_stream_wait(device)


def asynchronous_groups(agents: int, threads: int) -> int:
    """The groups of a population whose environments are in processes, without a trial and if no number is given."""
    return min(agents, max(1, threads // THREADS_PER_GROUP), ASYNCHRONOUS_GROUPS)


def candidate_groups(agents: int, threads: int) -> tuple[int, ...]:
    """The numbers of groups in a trial; none where there would be only one."""
    most = min(agents, threads // TRIED_THREADS_PER_GROUP)
    counts = tuple(count for count in TRIED_GROUPS if count <= most)
    return counts if len(counts) > 1 else ()


def has_trial(settings: TrainingSettings) -> bool:
    """Whether a run with these settings is long enough for a trial of numbers of groups, which times whole updates."""
    return settings.steps >= TRIAL_STEPS and settings.update_interval <= TRIED_UPDATE_INTERVAL


def _stays_on_device(environments: Environments, population: Population) -> TypeGuard[GymnaxEnvironments]:
    """Whether whole steps stay on the device, without copies through the host."""
    on_cuda = population.device.type == "cuda" and not population.replay_on_host
    return on_cuda and isinstance(environments, GymnaxEnvironments) and environments.on_gpu


def _environment_process(population: Population, names: Sequence[str], threads: int) -> Environments:
    return EnvironmentProcess(names, population.env, threads=threads, protocol=population.settings.atari_protocol)


def _environments(
    population: Population, names: Sequence[str], threads: int, *, evaluation: bool = False
) -> Environments:
    return make_environments(
        names,
        len(names),
        backend=population.env.backend,
        threads=threads,
        episode_limit=population.settings.eval_episode_limit if evaluation else None,
        protocol=population.settings.atari_protocol,
        # Agents evaluated by episodes finish one by one; those evaluated by timesteps, all at once.
        lockstep=not evaluation or not population.settings.eval_episodes,
        evaluation=evaluation,
        device=str(population.device),
    )
