"""How much memory a population needs, and how much there is: known before anything is made.

The state's size is exact: network and all, it is built on the meta device, where tensors have
shapes and no bytes. What comes and goes while learning is an estimate: four times what one agent's
backward pass keeps (the passes of the target, gradients, and allocators), and two copies of its
weights. Measured on a CPU the growth to the peak was 0.44 to 0.75 of what is said here, in three
populations.
"""

import os
from pathlib import Path
from typing import Literal, NamedTuple

import torch

from valueshare.envs import environment_spec
from valueshare.errors import InvalidInput
from valueshare.population.evaluate import copies
from valueshare.population.state import (
    NetworkFactory,
    Population,
    State,
    all_tensors,
    initial_state,
    is_built_in,
    make_population,
    torch_dtype,
)
from valueshare.population.train import check_replay_device
from valueshare.replay import packing, transitions
from valueshare.runs.plan import Part
from valueshare.wording import how_many

# An EnvPool LunarLander is 101 kB; most others are below 10 kB. 32 to 64 of ALE's were 0.1 to
# 1.5 MB each, the screen and the ROM included, with the threads of the emulators.
ENVIRONMENT_BYTES = {"envpool": 100_000, "gymnasium": 100_000, "ale": 1_500_000}
# Kernels, the interpreter and libraries, whatever the population. On CUDA mostly the context.
FIXED_BYTES = {"cpu": 300_000_000, "cuda": 1_000_000_000}
# Allocators keep a little more than they hand out.
USABLE = 0.95
# What makes an agent smaller, by what needs most of its memory.
SMALLER = {
    "network": "smaller layers (hidden) or a smaller minibatch",
    "replay": "a smaller replay-capacity or another replay-device",
}


class DoesNotFit(InvalidInput):
    """A run needs more memory than there is; its plan is sound otherwise."""

    def __init__(self, message: str, *, one_fits: bool = True) -> None:
        super().__init__(message)
        self.one_fits = one_fits  # whether fewer agents would be of help


class Need(NamedTuple):
    """Bytes a population needs where its tensors are, and in the host's memory."""

    agents: int
    per_agent: int  # on the device, replay too where it is there
    host_per_agent: int  # environments, and replay where it is there
    host_fixed: int = 0  # for packing frames, whatever the number of agents
    replay_device: str | None = None
    largest: Literal["network", "replay"] = "replay"  # what needs most of an agent's memory

    def total(self, device: torch.device) -> int:
        """On the device; on a CPU with all that is the host's, which is the same memory."""
        return self.agents * self.each(device) + self.fixed(device)

    def each(self, device: torch.device) -> int:
        return self.per_agent + (self.host_per_agent if device.type == "cpu" else 0)

    def fixed(self, device: torch.device) -> int:
        return FIXED_BYTES[device.type] + (self.host_fixed if device.type == "cpu" else 0)


def need(part: Part, network: NetworkFactory | None = None) -> Need:
    """What one population needs, by the shapes of one agent of it."""
    try:
        return _need_by_shapes(part, network)
    except (MemoryError, RuntimeError) as error:
        if not _is_out_of_memory(error):
            raise
        raise DoesNotFit(
            f"one agent of {part.label} needs more memory than can be addressed here: write "
            "smaller layers (hidden), a smaller minibatch or a smaller replay-capacity",
            one_fits=False,
        ) from error


def _need_by_shapes(part: Part, network: NetworkFactory | None) -> Need:
    spec = environment_spec(part.env, part.backend, part.settings.atari_protocol)
    population = make_population(
        part.agents[:1], part.settings, spec, torch.device("meta"), network
    )
    state = initial_state(population)
    rings = sum(tensor.nbytes for tensor in state.replay)
    others = sum(tensor.nbytes for tensor in all_tensors(state)) - rings
    environments = (1 + copies(part.settings)) * ENVIRONMENT_BYTES[spec.backend]
    learning, saving = _learning_bytes(population, state), _checkpoint_bytes(population, state)
    place = part.settings.replay_device
    if place == "disk":
        rings -= state.replay.observation.nbytes
    on_host = population.replay_on_host
    return Need(
        agents=part.agents.height,
        per_agent=others + (learning if on_host else rings + max(learning, saving)),
        host_per_agent=environments + (rings + saving if on_host else 0),
        host_fixed=packing.working_bytes() if transitions.holds_frames(state.replay) else 0,
        replay_device=place,
        largest="network" if others + learning > rings + saving else "replay",
    )


def check(needs: Need, device: torch.device, advice: str | None = None) -> str:
    """One line of what is needed and what is free; what does not fit is refused, with advice."""
    check_replay_device(needs.replay_device, device)
    free = free_bytes(device)
    wanted = needs.total(device)
    _refuse_excess(needs, needs.each(device), needs.fixed(device), free, "memory", advice)
    if device.type == "cuda":
        host_free, fixed = free_bytes(torch.device("cpu")), needs.host_fixed
        on_host = needs._replace(largest="replay")  # networks are on the device
        _refuse_excess(on_host, needs.host_per_agent, fixed, host_free, "host memory", advice)
    return f"{shown(wanted)} needed, {'unknown' if free is None else shown(free)} free"


def most_agents(needs: Need, device: torch.device, room: int, host_room: int) -> int:
    """How many agents of a population fit into so much memory of a device and of its host."""
    fit = int((USABLE * room - needs.fixed(device)) // needs.each(device))
    if device.type == "cuda":
        host = int(USABLE * host_room - host_bytes(needs._replace(agents=0)))
        fit = min(fit, int(host // needs.host_per_agent))
    return max(0, fit)


def host_bytes(needs: Need) -> int:
    """What a population on a GPU needs of the host's memory."""
    return needs.agents * needs.host_per_agent + needs.host_fixed + FIXED_BYTES["cpu"]


def free_bytes(device: torch.device) -> int | None:
    """Memory that a new population could have, in bytes; None where the system does not tell."""
    if device.type == "cuda":  # PyTorch keeps what was freed, and hands it out again
        cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + cached
    available = _available()
    limits = (_installed() if available is None else available, _left_in_group())
    return min((value for value in limits if value is not None), default=None)


def shown(count: int) -> str:
    """Bytes for people: 1.5 GB."""
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if count >= size:
            return f"{count / size:,.1f} {unit}"
    return f"{count / 1e3:.1f} kB"


def _refuse_excess(
    needs: Need, each: int, fixed: int, free: int | None, kind: str, advice: str | None
) -> None:
    agents = needs.agents
    if free is None or agents * each + fixed <= USABLE * free:
        return
    fit = max(0, int((USABLE * free - fixed) // each))
    if advice is None:
        advice = f"{'give fewer seeds,' if fit else 'write'} {SMALLER[needs.largest]}"
    raise DoesNotFit(
        f"{how_many(agents, 'agent')} {'needs' if agents == 1 else 'need'} "
        f"{shown(agents * each + fixed)} of {kind} and {shown(free)} are free: {fit:,} would fit; "
        f"{advice}",
        one_fits=fit > 0,
    )


def _is_out_of_memory(error: Exception) -> bool:
    """Whether an error says that something is too large; PyTorch has no type for all of them.

    Bytes of shapes may be more than 64 bits count. Memory itself is taken only for the network of a
    user that cannot be built by shapes alone.
    """
    words = ("DefaultCPUAllocator", "out of memory", "overflow")
    return isinstance(error, MemoryError) or any(word in str(error) for word in words)


def _learning_bytes(population: Population, state: State) -> int:
    """An estimate of what an update needs of one agent, besides the state."""
    settings, env = population.settings, population.env
    weights = sum(p.nbytes for p in state.online.parameters.values())
    kept = 0

    def count(tensor: torch.Tensor) -> torch.Tensor:
        nonlocal kept
        kept += tensor.nbytes
        return tensor

    batch = (settings.minibatch, *env.network_shape)
    inputs = [torch.empty(batch, dtype=torch_dtype(env.observation_dtype), device="meta")]
    if population.algorithm.samples.learn:
        taus = (settings.minibatch, population.algorithm.samples.learn)
        inputs.append(torch.empty(taus, device="meta"))
    try:
        with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
            population.network(*inputs)
    except Exception as error:
        # A user's network may not run on shapes alone, as with constants of NumPy. Then this much
        # is not known; the network is tried with its weights next, and its faults are found there.
        if is_built_in(population.factory) or _is_out_of_memory(error):
            raise
    return 4 * kept + 2 * weights


def _checkpoint_bytes(population: Population, state: State) -> int:
    """The rows of replay that a checkpoint copies out, and the indices that find them.

    Frames go out in pieces, `packing.working_bytes` at a time.
    """
    replay, settings = state.replay, population.settings
    rings = [replay.action, replay.reward, replay.discount, replay.row, replay.age]
    if not transitions.holds_frames(replay):
        rings.append(replay.observation)
    capacity = replay.action.shape[1]
    rows = min(settings.phase_steps, capacity)
    return rows * sum(ring.nbytes for ring in rings) // capacity + rows * 5 * 8


def _available() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    found = [line.split()[1] for line in lines if line.startswith("MemAvailable:")]
    return int(found[0]) * 1024 if found else None


def _installed() -> int | None:
    """All memory of the machine: more than is free, where the system does not tell that."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return None


def _left_in_group() -> int | None:
    """What a container's limit leaves, where there is one."""
    group = Path("/sys/fs/cgroup")
    try:
        limit = (group / "memory.max").read_text().strip()
        used = int((group / "memory.current").read_text())
    except (OSError, ValueError):
        return None
    return None if limit == "max" else max(0, int(limit) - used)
