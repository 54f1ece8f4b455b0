"""Training a population from its first phase, or from its last checkpoint, to its end."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
import torch
from safetensors.torch import load_file
from torch import Tensor

from valueshare.envs import environment_spec
from valueshare.envs.backends import BACKENDS
from valueshare.envs.base import EnvironmentSpec
from valueshare.errors import InvalidInput, first_line
from valueshare.host_memory import return_freed_memory
from valueshare.population.checkpoints.fingerprint import fingerprint
from valueshare.population.checkpoints.loading import latest_checkpoint, newest_manifest
from valueshare.population.checkpoints.saving import ReplayDelta, remove_partial_files, save
from valueshare.population.checkpoints.writer import CheckpointWriter
from valueshare.population.compilation import is_compiler_error
from valueshare.population.devices import check_replay_device, checked_device, release_memory, training_on
from valueshare.population.engine import Engine, has_trial, make_engine
from valueshare.population.networks import NetworkFactory, Tensors
from valueshare.population.phase import records_schema, run_phase
from valueshare.population.settings import TrainingSettings
from valueshare.population.state import Population, State, initial_state, load_state_dict_, make_population, state_dict
from valueshare.records import CheckpointPaths
from valueshare.replay import packing, segments, transitions
from valueshare.replay.segments import Segment
from valueshare.replay.transitions import Transitions
from valueshare.schema import Backend, Manifest

Checkpoint = tuple[Manifest, list[pl.DataFrame]]  # with the records up to it


class PhaseReport(NamedTuple):
    """A finished phase; checkpointed if `directory` is set."""

    phase: int
    step: int  # the last step of the phase
    records: pl.DataFrame  # empty if no evaluation was due


class TrainingResult(NamedTuple):
    """The result of a training run."""

    records: pl.DataFrame  # of all finished phases
    finished: bool  # False: `should_stop` ended it early; `state` is then mid-phase, and unusable
    population: Population
    state: State


class _Stop(Exception):
    """`should_stop()` returned True during a phase."""


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
    on_phase: Callable[[PhaseReport], None] = lambda report: None,
    on_evaluation: Callable[[int], None] = lambda step: None,
    should_stop: Callable[[], bool] = lambda: False,
    on_step: Callable[[int], None] = lambda step: None,
    on_note: Callable[[str], None] = lambda line: None,
    extended_from: Sequence[int] = (),
    trial: bool | None = None,
) -> TrainingResult:
    """Train the agents of one population; with a directory, resume from its last checkpoint.

    `agents` is one of `populations(table)`. `network` makes one agent's module from (NetworkShape, k), instead of the
    algorithm's own. `threads` are those of the environments, and `groups` of agents step independently, which changes
    no agent's random numbers (rounding may differ on CUDA). None: as many as before where training is resumed, else as
    many as suit, which a `trial` finds by measuring (None: if the run is long enough). `extended_from` are
    earlier numbers of steps of a run that was extended.

    `on_step(step)` is called at every step, for displays, and `should_stop()` too: a phase that it interrupts is
    discarded, so that a run resumes from its last finished phase. `on_evaluation(step)` is called after an evaluation,
    before its checkpoint is written, and `on_phase(report)` when it is written. `on_note(line)` is called with what a
    trial has found.

    The result has all records and the last state. If an earlier call had finished the population, its replay is empty.
    """
    device = checked_device(device)
    check_replay_device(settings.replay_device, device)
    paths = None if directory is None else CheckpointPaths(Path(directory), name)
    try:
        with training_on(device, tf32=settings.tf32, own_network=network is not None):
            specs = [
                environment_spec(env, backend, settings.atari_protocol)
                for env in agents["env"].unique(maintain_order=True)
            ]
            population = make_population(agents, settings, specs, device, network)
            state = initial_state(population, None if paths is None else paths.root)
            identity = fingerprint(population, state)
            checkpoint = None if paths is None else _newest_checkpoint(paths, identity, extended_from)
            earlier = None if paths is None else newest_manifest(paths)  # also one from which training cannot resume
            if earlier is None:
                trial = has_trial(settings) if trial is None else trial
            else:
                trial, groups = False, groups or earlier.groups

            def stop_trial() -> None:
                if should_stop():
                    raise _Stop

            def make() -> Engine:
                engine = make_engine(
                    population,
                    state,
                    compiled=compiled,
                    threads=threads,
                    groups=groups,
                    trial=trial,
                    on_trial_step=stop_trial,
                )
                if engine.trial is not None:
                    on_note(engine.trial.summary)
                return engine

            return _run_phases(
                make, population, state, paths, identity, checkpoint, on_phase, on_evaluation, should_stop, on_step
            )
    except Exception as error:
        if compiled and is_compiler_error(error):
            names = ", ".join(agents["algorithm"].unique(maintain_order=True))
            problem = f"PyTorch cannot compile {names} here ({first_line(error)})"
            raise InvalidInput(f"{problem}: train in another folder with `compile = False`") from error
        raise
    finally:
        # The next population may need all of it.
        if device.type == "cuda":
            release_memory(device, compiled=compiled)
        else:
            return_freed_memory()


def _run_phases(
    make: Callable[[], Engine],
    population: Population,
    state: State,
    paths: CheckpointPaths | None,
    identity: Mapping[str, Any],
    checkpoint: Checkpoint | None,
    on_phase: Callable[[PhaseReport], None],
    on_evaluation: Callable[[int], None],
    should_stop: Callable[[], bool],
    on_step: Callable[[int], None],
) -> TrainingResult:
    """Train from the last checkpoint to the end. The engine is made here, so that its memory is free on return."""
    settings = population.settings
    tables: list[pl.DataFrame] = []
    finished = True

    def report(phase: int, records: pl.DataFrame) -> None:
        tables.append(records)
        on_phase(PhaseReport(phase, settings.phase_end(phase), records))

    in_background = writes_in_background(population.device, population.env, state.replay)
    try:
        with closing(make()) as engine, CheckpointWriter(in_background=in_background) as writer:

            def poll(step: int) -> None:
                writer.poll()
                on_step(step)
                if should_stop():
                    raise _Stop

            first = 0
            if paths is not None and checkpoint is not None:
                manifest, earlier = checkpoint
                _restore(state, paths, manifest)
                first = manifest.phase + 1
                tables += earlier
            for phase in range(first, settings.phases):
                since = segments.cursors(state.replay)
                records = run_phase(engine, phase, poll)
                if not records.is_empty():
                    on_evaluation(settings.phase_end(phase))
                if paths is None:
                    report(phase, records)
                    continue
                writer.wait()  # the host has memory for one copy of the state
                tensors = _host_copies(state_dict(state)) if in_background else state_dict(state)
                delta = None if phase + 1 == settings.phases else _replay_delta(state.replay, since)
                writer.write(
                    partial(save, paths, phase, identity, tensors, records, delta, engine.process_groups),
                    on_written=partial(report, phase, records),
                )
                del tensors, delta  # the writer frees them when they are written
    except _Stop:
        finished = False
    return TrainingResult(pl.concat([records_schema().to_frame(), *tables]), finished, population, state)


def writes_in_background(device: torch.device, env: EnvironmentSpec, replay: Transitions) -> bool:
    """Whether a checkpoint is a copy of the state, written while the next phase trains.

    Not on a CPU: there it is a small part of a run, and the cores that would write it are busy with training. Frames
    are too large to copy, and are packed from the replay itself. With environments in JAX, callbacks, which come when a
    checkpoint is written, must not run other programs of JAX during a phase.
    """
    return device.type == "cuda" and not BACKENDS[env.backend].uses_jax and not transitions.holds_frames(replay)


def _host_copies(tensors: Mapping[str, Tensor]) -> Tensors:
    return {name: tensor.to("cpu", copy=True) for name, tensor in tensors.items()}


def _replay_delta(replay: Transitions, since: segments.Cursors) -> ReplayDelta:
    """The transitions written to replay since then, in memory of the host; frames are read later."""
    return ReplayDelta(
        columns={name: column.cpu() for name, column in segments.added_since(replay, since)._asdict().items()},
        end=int(replay.written.max()),
        oldest=int(replay.oldest.min()),
        frames=packing.frame_files_since(replay, since) if transitions.holds_frames(replay) else (),
    )


def _newest_checkpoint(
    paths: CheckpointPaths, identity: Mapping[str, Any], extended_from: Sequence[int]
) -> Checkpoint | None:
    remove_partial_files(paths)
    return latest_checkpoint(paths, identity, extended_from)


def _restore(state: State, paths: CheckpointPaths, manifest: Manifest) -> None:
    """Load a checkpoint into a state."""
    load_state_dict_(state, load_file(paths.state(manifest.phase)))
    device = str(state.replay.written.device)
    for segment in manifest.segments:  # oldest first
        segments.restore(state.replay, Segment(**load_file(paths.checkpoints / segment.file, device)))
        for name in segment.frames:  # one file at a time
            packing.restore(state.replay, load_file(paths.checkpoints / name))
