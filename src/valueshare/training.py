"""Train a whole table of agents: `train` starts a run, `resume` resumes one, `extend` makes a finished one longer.

>>> run = valueshare.train("CartPole-v1", "ib-dqn", k=[0, 4], seeds=8, steps=20_000)
>>> run.records.join(run.agents, on="agent").group_by("k", "step").agg(pl.col("score").mean())
"""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from valueshare.expansion import Coefficient
from valueshare.population.networks import NetworkFactory
from valueshare.population.settings import settings_in_signature
from valueshare.runs.callbacks import CallbackFunction
from valueshare.runs.execution import ExecutionOptions
from valueshare.runs.launcher_options import LOCAL, LauncherOptions, shard_folder
from valueshare.runs.plan_text import about_settings
from valueshare.runs.planning import default_folder, make_plan
from valueshare.runs.run import Run
from valueshare.runs.shards import shard_plan
from valueshare.runs.storage.locations import Location, resolve_location
from valueshare.schema import Backend
from valueshare.starting import extend_run, resume_run, shard_location, start


@settings_in_signature()
def train(
    env: str | Sequence[str],
    algorithm: str | Sequence[str] = "ib-dqn",
    *,
    k: Coefficient | Sequence[Coefficient] = 0.0,
    seeds: int | Iterable[int] = 8,
    first_seed: int = 0,
    out: str | Path | None = None,
    network: NetworkFactory | None = None,
    device: str = "auto",
    compile: bool | None = None,  # noqa: A002 (the name of the option)
    backend: Backend | None = None,
    threads: int | None = None,
    log: str | Sequence[str] = (),
    progress: bool = True,
    should_stop: Callable[[], bool] | None = None,
    groups: int | None = None,
    launcher: LauncherOptions = LOCAL,
    callbacks: Sequence[str | CallbackFunction] = (),
    **settings: Any,
) -> Run:
    """Train every combination of the given values, and leave a run folder (`out`).

    Settings that are left out have the value of the environment's preset. Those of an agent (`step_size`,
    `epsilon_end`, ...) take one value or several. `k="n"` is the number of actions of each environment. `seeds` is how
    many, from `first_seed` on, or which. `network` makes one agent's module from (NetworkShape, k), instead of the
    algorithm's own. `should_stop` is called at every step, with several workers ten times a second; a run that it ends
    is not `finished`, and `resume` resumes it. `threads` are those of the environments, and `groups` of agents step
    independently (None: chosen automatically). `launcher` says where populations run, and which. `device` "auto" is
    CUDA where there is one; `compile` None: only if the run is long enough. `callbacks` are called after each
    evaluation with its records and the run so far: functions, or names like my_module:log. `log` is "tensorboard",
    "wandb" (Weights & Biases) or both.
    """
    execution = ExecutionOptions(
        network=network,
        threads=threads,
        log=log,
        progress=progress,
        should_stop=should_stop,
        groups=groups,
        launcher=launcher,
        callbacks=callbacks,
    )
    plan = make_plan(
        env,
        algorithm,
        k=k,
        seeds=seeds,
        first_seed=first_seed,
        network=network,
        device=device,
        compiled=compile,
        backend=backend,
        **settings,
    )
    location = shard_location(resolve_location(default_folder(plan) if out is None else out), launcher)
    command = "valueshare.train(...) from Python; config.json has the settings"
    shard = shard_plan(plan, launcher.selected_shard)
    return start(shard, location, command, execution, about=about_settings(plan, env))


def extend(
    folder: str | Location,
    *,
    steps: int,
    network: NetworkFactory | None = None,
    threads: int | None = None,
    log: str | Sequence[str] = (),
    progress: bool = True,
    should_stop: Callable[[], bool] | None = None,
    groups: int | None = None,
    launcher: LauncherOptions = LOCAL,
    callbacks: Sequence[str | CallbackFunction] | None = None,
) -> Run:
    """Continue training a finished run to `steps` steps in total; the other arguments are those of `resume`.

    Unless the step size falls linearly, the result is that of a run of `steps` steps from the start. The schedules of
    epsilon and of the step size stay as they were.
    """
    execution = ExecutionOptions(
        network=network,
        threads=threads,
        log=log,
        progress=progress,
        should_stop=should_stop,
        groups=groups,
        launcher=launcher,
        callbacks=callbacks,
    )
    return extend_run(shard_folder(resolve_location(folder), launcher.selected_shard), execution, steps)


def resume(
    folder: str | Location,
    *,
    network: NetworkFactory | None = None,
    threads: int | None = None,
    log: str | Sequence[str] = (),
    progress: bool = True,
    should_stop: Callable[[], bool] | None = None,
    groups: int | None = None,
    launcher: LauncherOptions = LOCAL,
    callbacks: Sequence[str | CallbackFunction] | None = None,
) -> Run:
    """Resume a run from its last finished phase; it ends as if it had never stopped.

    Settings and TensorBoard events are the run's, and so are `callbacks` that it has by name (None). A run with a
    caller's own network needs it again, and so do callbacks that were given as functions, and `log` "wandb".
    """
    execution = ExecutionOptions(
        network=network,
        threads=threads,
        log=log,
        progress=progress,
        should_stop=should_stop,
        groups=groups,
        launcher=launcher,
        callbacks=callbacks,
    )
    return resume_run(shard_folder(resolve_location(folder), launcher.selected_shard), execution)
