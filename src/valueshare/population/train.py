"""Training a population from its first phase, or from its last checkpoint, to its end."""

import gc
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
import torch
from safetensors.torch import load_file
from torch import Tensor

from valueshare.envs import environment_spec
from valueshare.envs.base import Backend
from valueshare.errors import InvalidInput, InvalidSetting, first_line
from valueshare.host_memory import return_freed_memory
from valueshare.population.checkpoints.fingerprint import fingerprint
from valueshare.population.checkpoints.loading import latest_checkpoint
from valueshare.population.checkpoints.saving import Added, prepare, save
from valueshare.population.checkpoints.writer import CheckpointWriter
from valueshare.population.compilation import is_compiler_error
from valueshare.population.engine import Engine, make_engine
from valueshare.population.networks import NetworkFactory, Tensors
from valueshare.population.phase import records_schema, run_phase
from valueshare.population.settings import TrainingSettings
from valueshare.population.state import Population, State, flat, initial_state, load_, make_population
from valueshare.records import CheckpointPaths
from valueshare.replay import packing, segments, transitions
from valueshare.replay.segments import Segment
from valueshare.replay.transitions import Transitions


class PhaseReport(NamedTuple):
    """A phase that is finished, and safe where there is a directory."""

    phase: int
    step: int  # at its end
    records: pl.DataFrame  # empty where no evaluation was due


class Trained(NamedTuple):
    """The result of a training run."""

    records: pl.DataFrame  # of all finished phases
    finished: bool  # False: `should_stop` ended it early; `state` is then of no phase
    population: Population
    state: State


class _Stop(Exception):
    """The caller wants to stop within a phase."""


def train_population(
    agents: pl.DataFrame,
    settings: TrainingSettings,
    *,
    network: NetworkFactory | None = None,
    directory: Path | None = None,
    name: str = "population-0",
    device: str | torch.device = "cpu",
    compiled: bool = False,
    backend: Backend | None = None,
    threads: int | None = None,
    groups: int | None = None,
    on_phase: Callable[[PhaseReport], None] | None = None,
    on_evaluation: Callable[[int], None] = lambda step: None,
    should_stop: Callable[[], bool] | None = None,
    on_step: Callable[[int], None] | None = None,
    extended_from: Sequence[int] = (),
) -> Trained:
    """Train the agents of one population; with a directory, resume from its last checkpoint.

    `agents` is one of `populations(table)`. `network` makes one agent's module from (NetworkShape, k), instead of the
    algorithm's own. `threads` are those of the environments, and `groups` of agents step independently (None:
    as many as suit), which changes no agent's random numbers (rounding may differ on CUDA). `on_phase` is called after
    every phase, when its checkpoint is written, and `on_evaluation` with its last step before that; `should_stop` at
    every step: a phase that it ends leaves no trace, so that a run resumes from its last finished phase. `on_step` gets
    the number of the step there, for displays. `extended_from` are earlier numbers of steps of a run that was extended.

    A finished population has its records and its last state, in memory and on the disk, and of a
    run that another call had finished no replay.
    """
    device = checked_device(device)
    check_replay_device(settings.replay_device, device)
    paths = None if directory is None else CheckpointPaths(Path(directory), name)
    try:
        with on_device(device, tf32=settings.tf32):
            specs = [
                environment_spec(env, backend, settings.atari_protocol)
                for env in agents["env"].unique(maintain_order=True)
            ]
            population = make_population(agents, settings, specs, device, network)
            state = initial_state(population, None if paths is None else paths.root)

            def poll(step: int) -> None:
                if on_step is not None:
                    on_step(step)
                if should_stop is not None and should_stop():
                    raise _Stop

            how = partial(make_engine, compiled=compiled, threads=threads, groups=groups)
            # No name here: what an engine holds of a GPU is free when it is done.
            on_phase = on_phase or (lambda report: None)
            return _trained(how(population, state), paths, on_phase, on_evaluation, poll, extended_from)
    except Exception as error:
        if compiled and is_compiler_error(error):
            names = ", ".join(agents["algorithm"].unique(maintain_order=True))
            problem = f"PyTorch cannot compile {names} here ({first_line(error)})"
            raise InvalidInput(f"{problem}: train in another folder with --no-compile (compiled=False)") from error
        raise
    finally:
        # The next population may need all of it.
        if device.type == "cuda":
            release_memory(device, compiled=compiled)
        else:
            return_freed_memory()


def _trained(
    engine: Engine,
    paths: CheckpointPaths | None,
    on_phase: Callable[[PhaseReport], None],
    on_evaluation: Callable[[int], None],
    poll: Callable[[int], None],
    extended_from: Sequence[int],
) -> Trained:
    """From the last checkpoint to the end; the engine is closed then."""
    population, state, settings = engine.population, engine.state, engine.population.settings
    tables: list[pl.DataFrame] = []
    finished = True

    def report(phase: int, records: pl.DataFrame) -> None:
        tables.append(records)
        on_phase(PhaseReport(phase, settings.phase_end(phase), records))

    def on_step(step: int) -> None:
        writer.poll()
        poll(step)

    in_background = writes_in_background(population, state.replay)
    try:
        with closing(engine), CheckpointWriter(in_background=in_background) as writer:
            identity = fingerprint(population, state)
            first, earlier = _resume(paths, identity, state, extended_from)
            tables += earlier
            for phase in range(first, settings.phases):
                since = segments.cursors(state.replay)
                records = run_phase(engine, phase, on_step)
                if not records.is_empty():
                    on_evaluation(settings.phase_end(phase))
                if paths is None:
                    report(phase, records)
                    continue
                writer.wait()  # before the next copy, which has no other name here: there is memory for one
                writer.write(
                    partial(
                        save,
                        paths,
                        phase,
                        identity,
                        _host_copies(flat(state)) if in_background else flat(state),
                        records,
                        None if phase + 1 == settings.phases else _added(state.replay, since),
                    ),
                    on_written=partial(report, phase, records),
                )
    except _Stop:
        finished = False
    return Trained(pl.concat([records_schema().to_frame(), *tables]), finished, population, state)


def writes_in_background(population: Population, replay: Transitions) -> bool:
    """Whether a checkpoint is a copy of the state, written while the next phase trains.

    Not on a CPU: there it is a small part of a run, and the cores that would write it are busy with training. Nor with
    frames: they are too large to copy, and are packed from the replay itself. Nor with environments in JAX: callbacks
    come when a checkpoint is written, and must not run other programs of JAX during a phase.
    """
    return population.device.type == "cuda" and population.env.backend != "jax" and not transitions.holds_frames(replay)


def _host_copies(tensors: Mapping[str, Tensor]) -> Tensors:
    return {name: tensor.to("cpu", copy=True) for name, tensor in tensors.items()}


def _added(replay: Transitions, since: segments.Cursors) -> Added:
    """The transitions written to replay since then, in memory of the host; frames are read later."""
    return Added(
        columns={name: column.cpu() for name, column in segments.added_since(replay, since)._asdict().items()},
        end=int(replay.written.max()),
        oldest=int(replay.oldest.min()),
        frames=packing.frame_files_since(replay, since) if transitions.holds_frames(replay) else (),
    )


def _resume(
    paths: CheckpointPaths | None, identity: Mapping[str, Any], state: State, extended_from: Sequence[int]
) -> tuple[int, list[pl.DataFrame]]:
    """The first phase to run and the records before it; the state is put where it starts."""
    if paths is None:
        return 0, []
    prepare(paths)
    manifest = latest_checkpoint(paths, identity, extended_from)
    if manifest is None:
        return 0, []
    load_(state, load_file(paths.state(manifest.phase)))
    device = str(state.replay.written.device)
    for segment in manifest.segments:  # oldest first
        segments.restore(state.replay, Segment(**load_file(paths.checkpoints / segment.file, device)))
        for name in segment.frames:  # one file at a time
            packing.restore(state.replay, load_file(paths.checkpoints / name))
    return manifest.phase + 1, [pl.read_parquet(paths.root / "records" / name) for name in manifest.records]


def check_replay_device(place: str | None, device: torch.device) -> None:
    """Refuse a replay on a GPU beside training that is on none."""
    if place == "cuda" and device.type != "cuda":
        raise InvalidSetting(
            "replay_device = 'cuda' needs training on a CUDA device: write cpu or disk, or "
            "--device cuda where there is one"
        )


def checked_device(device: str | torch.device) -> torch.device:
    """The device of that name, if it is here."""
    try:
        chosen = torch.device(device)
    except RuntimeError as error:
        raise InvalidInput(f"device = {device!r}: write auto, cpu, cuda or cuda:0") from error
    # Streams that wait for emulators must not hold up others, which they do where they share one of
    # the few connections that CUDA opens by itself.
    os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")
    if chosen.type == "cuda" and (not torch.cuda.is_available() or (chosen.index or 0) >= torch.cuda.device_count()):
        raise InvalidInput(f"device = {device!r}: there is no such CUDA device here; write cpu")
    if chosen.type not in ("cpu", "cuda"):
        raise InvalidInput(f"device = {device!r}: write auto, cpu, cuda or cuda:0")
    return chosen


@contextmanager
def on_device(device: torch.device, *, tf32: bool) -> Iterator[None]:
    """On CUDA: the device is the current one, and TensorFloat-32 on or off; then all as before.

    Streams and graphs belong to the current device, whatever the tensors are on.
    """
    if device.type != "cuda":
        yield
        return
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    torch.set_float32_matmul_precision("high" if tf32 else "highest")  # matrix products
    torch.backends.cudnn.allow_tf32 = tf32  # convolutions
    try:
        with torch.cuda.device(device):
            yield
    finally:
        torch.set_float32_matmul_precision(before[0])
        torch.backends.cudnn.allow_tf32 = before[1]


def release_memory(device: torch.device, *, compiled: bool = False) -> None:
    """Give back what nothing refers to any more; graphs and their memory are found by it too."""
    if compiled:
        torch.compiler.reset()  # what it compiled refers to the tensors of a population
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
