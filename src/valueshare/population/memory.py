"""Memory that a population needs and memory that is available, before anything is allocated.

The memory of this process and its libraries is measured. The size of the state is exact: it is built on the meta
device, where tensors have shapes and no bytes. Temporary memory while learning is estimated from the tensors that one
agent's backward pass saves and from its weights; docs/settings.md compares the estimates with measurements.
"""

import math
from typing import NamedTuple

import torch

from valueshare import host_memory
from valueshare.envs.backends import BACKENDS
from valueshare.errors import InvalidInput
from valueshare.host_memory import format_bytes, is_out_of_memory
from valueshare.population.activations import network_to_measure, saved_bytes
from valueshare.population.devices import check_replay_device
from valueshare.population.evaluate import eval_env_count
from valueshare.population.networks import NetworkFactory, is_built_in
from valueshare.population.spec import PopulationSpec
from valueshare.population.state import Population, State, all_tensors, initial_state, make_population
from valueshare.population.train import writes_in_background
from valueshare.replay import packing, transitions
from valueshare.text import pluralize

# Libraries allocate this much more when they are first used. On CUDA it is mostly the context.
FIXED_BYTES = {"cpu": 90_000_000, "cuda": 1_000_000_000}
PROCESS_BYTES = 600_000_000  # a new process with all libraries: 595 MB with PyTorch 2.12 and EnvPool
# While learning on a CPU, in multiples of the tensors saved for the backward pass, of the weights (gradients,
# layouts, and an optimiser's temporary tensors) and of the pairwise errors of quantiles.
ACTIVATION_FACTOR, WEIGHT_FACTOR, PAIR_FACTOR = 1.2, 2, 9
CUDA_ACTIVATION_FACTOR, CUDA_WEIGHT_FACTOR = 4, 6  # CUDA graphs keep temporary tensors; measured less closely
RECORD_BYTES = 3 * 160  # an evaluation, three times: as it was written, as a table, and in the display
USABLE = 0.95  # allocators keep a little more than they hand out
# Advice by the largest part of an agent's memory.
ADVICE = {
    "network": "smaller layers (`hidden`) or a smaller `batch_size`",
    "quantiles": "fewer `quantiles`, smaller layers (`hidden`) or a smaller `batch_size`",
    "replay": "a smaller `replay_capacity`, or `replay_device = 'disk'`",
    "checkpoint": "smaller layers (`hidden`) or a smaller `checkpoint_interval`",
    "environments": "fewer `eval_envs`",
    "records": "fewer evaluations (a larger `eval_interval`)",
}
GPU_MEMORY = "GPU memory"


class DoesNotFit(InvalidInput):
    """A run needs more memory than is available; its plan is otherwise valid.

    `problem` and `advice` make the message. Where smaller populations would fit, `population_agents` is their size.
    """

    def __init__(self, problem: str, advice: str, *, population_agents: int = 0) -> None:
        super().__init__(f"{problem}; {advice}")
        self.problem, self.advice, self.population_agents = problem, advice, population_agents

    def advising_smaller_populations(self) -> "DoesNotFit":
        """The error with `population_agents` as its first advice, if smaller populations would fit."""
        if not self.population_agents:
            return self
        first = f"write `population_agents = {self.population_agents}`, which keeps all settings and seeds"
        return DoesNotFit(self.problem, f"{first}; otherwise {self.advice}")


class MemoryNeed(NamedTuple):
    """Bytes that must be free in one memory: `per_agent` for each agent, plus `fixed`."""

    agents: int
    per_agent: int
    fixed: int

    @property
    def total(self) -> int:
        return self.agents * self.per_agent + self.fixed


class MemoryEstimate(NamedTuple):
    """The parts of a population's memory, in bytes; `device_bytes` and `host_bytes` add them up."""

    agents: int
    per_agent: int  # on the device, with the replay if it is there
    host_per_agent: int  # environments, and the replay if it is there
    frames_per_agent: int = 0  # frames of one checkpoint, which are packed
    replay_device: str | None = None
    largest: str = "replay"  # the largest part of an agent's memory, a key of ADVICE
    cuda_extra_per_agent: int = 0  # on CUDA, in addition to `per_agent`: CUDA graphs keep temporary tensors
    checkpoint_copy_per_agent: int = 0  # host memory on CUDA: the copy from which a checkpoint is written
    used: int = 0  # by this process, before anything of the population is made

    def device_bytes(self, device: torch.device) -> MemoryNeed:
        """Memory of the device; on a CPU it includes the host's."""
        if device.type == "cpu":
            return MemoryNeed(self.agents, self.per_agent + self.host_per_agent, FIXED_BYTES["cpu"] + self._packing)
        return MemoryNeed(self.agents, self.per_agent + self.cuda_extra_per_agent, FIXED_BYTES["cuda"])

    def host_bytes(self) -> MemoryNeed:
        """Host memory of a population that trains on a GPU."""
        return MemoryNeed(self.agents, self.host_per_agent + self.checkpoint_copy_per_agent, self._packing)

    @property
    def _packing(self) -> int:
        """Memory for packing frames: bounded, however many there are."""
        return min(packing.working_bytes(), 2 * self.agents * self.frames_per_agent)


def estimate(spec: PopulationSpec, network: NetworkFactory | None = None) -> MemoryEstimate:
    """The memory of one population, from the shapes of one of its agents."""
    try:
        return _estimate_by_shapes(spec, network)
    except (MemoryError, RuntimeError) as error:
        if not _is_too_large(error):
            raise
        raise DoesNotFit(
            f"one agent of {spec.label} needs more memory than can be addressed here",
            "write smaller layers (`hidden`), a smaller `batch_size` or a smaller `replay_capacity`",
        ) from error


def _estimate_by_shapes(spec: PopulationSpec, network: NetworkFactory | None) -> MemoryEstimate:
    population = make_population(spec.agents[:1], spec.settings, spec.env_spec, torch.device("meta"), network)
    state = initial_state(population)
    rings = sum(tensor.nbytes for tensor in state.replay)
    others = sum(tensor.nbytes for tensor in all_tensors(state)) - rings
    environment_bytes = BACKENDS[spec.backend].environment_bytes(spec.env)
    environments = (1 + eval_env_count(spec.settings)) * environment_bytes
    records = spec.settings.evaluations * RECORD_BYTES
    learning, on_cuda = _learning_bytes(population, state)
    columns, indices = _checkpoint_bytes(population, state)
    saving = columns + indices
    if spec.settings.replay_device == "disk":
        rings -= state.replay.observation.nbytes
    on_host = population.replay_on_host
    # As on a GPU: a run on a CPU needs no copy, and `check` counts one on a GPU only.
    in_background = writes_in_background(torch.device("cuda"), spec.env_spec, state.replay)
    sizes = {
        "quantiles" if population.algorithm.is_quantile else "network": others + learning,
        "replay": rings + saving,
        "environments": environments,
        "records": records,
    }
    return MemoryEstimate(
        agents=spec.agents.height,
        per_agent=others + (learning if on_host else rings + max(learning, saving)),
        host_per_agent=environments + records + (rings + saving if on_host else 0),
        frames_per_agent=_frame_bytes(population, state),
        replay_device=spec.settings.replay_device,
        largest=max(sizes, key=lambda name: sizes[name]),
        cuda_extra_per_agent=max(0, on_cuda - learning),
        checkpoint_copy_per_agent=others + (0 if on_host else columns) if in_background else 0,
        used=host_memory.resident_bytes(),
    )


def check(needs: MemoryEstimate, device: torch.device, advice: str | None = None) -> str:
    """Refuse a population that does not fit, with advice; return a line of required and available memory."""
    check_replay_device(needs.replay_device, device)
    on_cuda = device.type == "cuda"
    required, free = needs.device_bytes(device), free_bytes(device)
    host, host_free = (needs.host_bytes(), free_bytes(torch.device("cpu"))) if on_cuda else (required, free)
    population_agents = min(population_agents_advised(required, free), population_agents_advised(host, host_free))
    _refuse_excess(needs, required, free, GPU_MEMORY if on_cuda else "memory", advice, population_agents)
    available = "available memory is unknown" if free is None else f"{format_bytes(free)} available"
    if not on_cuda:
        agents, used = pluralize(needs.agents, "agent"), format_bytes(needs.used)
        parts = f"{used} already used by this process + {format_bytes(required.total)} for {agents}"
        return f"requires {format_bytes(needs.used + required.total)} ({parts}); {available}"
    only_on_gpu = needs.largest in ("network", "quantiles")
    copied = needs.checkpoint_copy_per_agent > needs.host_per_agent
    needs = needs._replace(largest="checkpoint" if copied else "replay" if only_on_gpu else needs.largest)
    _refuse_excess(needs, host, host_free, "host memory", advice, population_agents)
    return f"requires {format_bytes(required.total)}; {available}"


def most_agents(needs: MemoryEstimate, device: torch.device, free: int, host_free: int) -> int:
    """The number of agents of a population that fit into the free memory of a device and its host."""
    required = needs.device_bytes(device)
    fixed = required.fixed + (PROCESS_BYTES if device.type == "cpu" else 0)
    fit = int((USABLE * free - fixed) // required.per_agent)
    if device.type == "cuda":
        per_agent = needs.host_bytes().per_agent
        host = int(USABLE * host_free - (process_bytes(needs, device) - needs.agents * per_agent))
        fit = min(fit, int(host // per_agent))
    return max(0, fit)


def process_bytes(needs: MemoryEstimate, device: torch.device) -> int:
    """The host memory of a population in a separate process that trains on that device."""
    if device.type == "cuda":
        return needs.host_bytes().total + FIXED_BYTES["cpu"] + PROCESS_BYTES
    return needs.device_bytes(device).total + PROCESS_BYTES


def free_bytes(device: torch.device) -> int | None:
    """Memory that a new population could have, in bytes; None where it is unknown."""
    if device.type == "cuda":  # PyTorch caches freed memory, and reuses it
        cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + cached
    return host_memory.free_bytes()


def population_agents_advised(required: MemoryNeed, free: int | None) -> int:
    """A round size of populations that fit, a tenth below the largest, as free memory varies; 1,700 for 1,998."""
    fit = _agents_that_fit(required, free)
    if fit < 10:
        return fit
    most = fit * 9 // 10
    unit: int = 10 ** max(0, len(str(most)) - 2)
    return most // unit * unit


def _refuse_excess(
    needs: MemoryEstimate,
    required: MemoryNeed,
    free: int | None,
    kind: str,
    advice: str | None,
    population_agents: int,
) -> None:
    if free is None or required.total <= USABLE * free:
        return
    fit = _agents_that_fit(required, free)
    if advice is None:
        advice = f"{'give fewer seeds,' if fit else 'write'} {ADVICE[needs.largest]}"
    is_beside_used = kind != GPU_MEMORY and needs.used
    used = f" beside the {format_bytes(needs.used)} already used by this process" if is_beside_used else ""
    agents = pluralize(required.agents, "agent")
    raise DoesNotFit(
        f"{agents} {'requires' if required.agents == 1 else 'require'} {format_bytes(required.total)} of {kind}{used}; "
        f"{format_bytes(free)} available, {1 - USABLE:.0%} of it kept in reserve: "
        f"{'about ' if fit else ''}{fit:,} would fit",
        advice,
        population_agents=population_agents,
    )


def _agents_that_fit(required: MemoryNeed, free: int | None) -> int:
    """The number of agents that fit into free memory; all of them where it is unknown."""
    if free is None or not required.per_agent:
        return required.agents
    return max(0, int((USABLE * free - required.fixed) // required.per_agent))


def _is_too_large(error: Exception) -> bool:
    """Whether an error says that something is too large: bytes of shapes may overflow 64 bits.

    Memory is allocated only for a caller's own network that cannot be built from shapes alone.
    """
    return is_out_of_memory(error) or "overflow" in str(error)


def _learning_bytes(population: Population, state: State) -> tuple[int, int]:
    """An estimate of one agent's temporary memory while learning: on a CPU, and on CUDA."""
    settings, counts = population.settings, population.quantile_counts
    weights = sum(p.nbytes for p in state.online.parameters.values())
    batch, playing_states = settings.batch_size, eval_env_count(settings)
    try:
        network = network_to_measure(population)
        learning, target, measuring = (saved_bytes(network, population.env, batch, count) for count in counts)
        playing = saved_bytes(network, population.env, playing_states, counts.act)
    except Exception as error:
        # A caller's own network may not run on the meta device, as with constants of NumPy. Then
        # this memory is unknown; `check_network` runs it with weights and finds its errors.
        if is_built_in(population.factory) or _is_too_large(error):
            raise
        learning = target = measuring = playing = 0
    pairs = batch * counts.learn * counts.target * 4  # [B, N, N'] of float32
    # With 4,096 actions, 3.7 to 3.9 times the outputs [B, A] or [B, N, A] were measured for DQN and 4.8 for Double DQN.
    output_bytes = population.algorithm.peak_output_tensors * population.env.actions * 4
    outputs = output_bytes * batch * max(1, counts.learn, counts.target + counts.act)  # the target's are of one pass
    update = ACTIVATION_FACTOR * learning + max(0, target - learning) + PAIR_FACTOR * pairs
    update += WEIGHT_FACTOR * weights + outputs
    # A batch, and the indices that find it: both observations, and five numbers of 64 bits.
    observation = math.prod(population.env.network_shape) * population.env.observation_dtype.itemsize
    update += 2 * batch * (2 * observation + 5 * 8)
    on_cuda = CUDA_ACTIVATION_FACTOR * learning + CUDA_WEIGHT_FACTOR * weights + outputs
    acting = output_bytes * max(1, counts.act)
    others = max(measuring + batch * acting, playing + playing_states * acting)
    return int(max(update, others)), int(max(update, on_cuda, others))


def _frame_bytes(population: Population, state: State) -> int:
    """Frames of one agent that a checkpoint packs; 0 where observations are not frames."""
    replay = state.replay
    if not transitions.holds_frames(replay):
        return 0
    capacity = replay.action.shape[1]
    return replay.observation.nbytes * min(population.settings.checkpoint_interval, capacity) // capacity


def _checkpoint_bytes(population: Population, state: State) -> tuple[int, int]:
    """The rows of replay that a checkpoint copies out, and the indices that find them.

    Frames are written in chunks of `packing.working_bytes`.
    """
    replay, settings = state.replay, population.settings
    rings = [replay.action, replay.reward, replay.discount, replay.row, replay.age]
    if not transitions.holds_frames(replay):
        rings.append(replay.observation)
    capacity = replay.action.shape[1]
    rows = min(settings.checkpoint_interval, capacity)
    return rows * sum(ring.nbytes for ring in rings) // capacity, rows * 5 * 8
