"""Training a population from its first phase, or from its last checkpoint, to its end."""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
import torch

from valueshare.envs import environment_spec
from valueshare.envs.base import Backend
from valueshare.errors import InvalidInput
from valueshare.population import checkpoint
from valueshare.population.checkpoint import Folder
from valueshare.population.phase import Engine, make_engine, records_schema, run_phase
from valueshare.population.settings import TrainingSettings
from valueshare.population.state import (
    NetworkFactory,
    Population,
    State,
    flat,
    initial_state,
    load_,
    make_population,
)
from valueshare.replay import transitions
from valueshare.replay.transitions import Segment


class PhaseReport(NamedTuple):
    """A phase that is finished, and safe where there is a directory."""

    phase: int
    step: int  # at its end
    records: pl.DataFrame  # empty where no evaluation was due


class Trained(NamedTuple):
    """What is left of a training run."""

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
    on_phase: Callable[[PhaseReport], None] | None = None,
    should_stop: Callable[[], bool] | None = None,
    on_tick: Callable[[State], None] | None = None,
) -> Trained:
    """Train the agents of one population; with a directory, go on from its last checkpoint.

    `agents` is one of `populations(table)`. `network` makes one agent's module from
    (NetworkShape, k), instead of the algorithm's own. `threads` are EnvPool's. `on_phase` is called
    after every phase, when its checkpoint is written; `should_stop` at every tick: a phase that it
    ends leaves no trace, so that the last finished phase stays the truth. `on_tick` is called there
    too, for displays; reading the state on a GPU waits for it, so do it a few times a second.
    """
    device = checked_device(device)
    with on_device(device, tf32=settings.tf32):
        spec = environment_spec(agents["env"][0], backend)
        population = make_population(agents, settings, spec, device, network)
        state = initial_state(population)
        engine = make_engine(population, state, compiled=compiled, threads=threads)
        folder = None if directory is None else Folder(Path(directory), name)
        fingerprint = _fingerprint(population, state)
        first, records = _resume(folder, fingerprint, state)

        def poll() -> None:
            if on_tick is not None:
                on_tick(state)
            if should_stop is not None and should_stop():
                raise _Stop

        finished = True
        try:
            for phase in range(first, settings.phases):
                records.append(_committed_phase(engine, phase, folder, fingerprint, poll))
                if on_phase is not None:
                    on_phase(PhaseReport(phase, settings.phase_end(phase), records[-1]))
        except _Stop:
            finished = False
        finally:
            engine.environments.close()
            engine.evaluation_environments.close()
    return Trained(pl.concat([records_schema().to_frame(), *records]), finished, population, state)


def _committed_phase(
    engine: Engine,
    phase: int,
    folder: Folder | None,
    fingerprint: Mapping[str, Any],
    poll: Callable[[], None],
) -> pl.DataFrame:
    replay = engine.state.replay
    moment = transitions.cursors(replay)
    records = run_phase(engine, phase, poll)
    if folder is not None:
        checkpoint.save(
            folder,
            phase,
            fingerprint,
            state=flat(engine.state),
            segment=transitions.added_since(replay, moment)._asdict(),
            segment_end=int(replay.written.max()),
            oldest=int(replay.oldest.min()),
            records=records,
        )
    return records


def _resume(
    folder: Folder | None, fingerprint: Mapping[str, Any], state: State
) -> tuple[int, list[pl.DataFrame]]:
    """The first phase to run and the records before it; the state is put where it starts."""
    found = None if folder is None else checkpoint.load_latest(folder, fingerprint)
    if found is None:
        return 0, []
    load_(state, found.state)
    device = state.step.device
    for segment in found.segments:
        on_device = {name: tensor.to(device) for name, tensor in segment.items()}
        transitions.restore(state.replay, Segment(**on_device))
    return found.phase + 1, found.records


def _fingerprint(population: Population, state: State) -> dict[str, Any]:
    """What must not change between a run and its resumption, as plain JSON values."""
    rows = json.dumps(population.agents.to_dicts(), sort_keys=True).encode()
    shapes = {name: list(p.shape) for name, p in state.online.parameters.items()}
    values = {
        **population.settings.to_json(),
        "agents": hashlib.blake2b(rows, digest_size=16).hexdigest(),
        "environments": population.env.backend,
        "network": shapes,
    }
    plain: dict[str, Any] = json.loads(json.dumps(values))  # tuples become lists
    return plain


def checked_device(device: str | torch.device) -> torch.device:
    """The device of that name, if it is here."""
    try:
        found = torch.device(device)
    except RuntimeError as error:
        raise InvalidInput(f"device = {device!r}: write cpu, cuda or cuda:0") from error
    if found.type == "cuda" and (
        not torch.cuda.is_available() or (found.index or 0) >= torch.cuda.device_count()
    ):
        raise InvalidInput(f"device = {device!r}: there is no such CUDA device here; write cpu")
    if found.type not in ("cpu", "cuda"):
        raise InvalidInput(f"device = {device!r}: write cpu or cuda")
    return found


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
