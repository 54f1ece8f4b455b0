"""The tabular commands: the gridworld figure, and the same for any finite MDP."""

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from valueshare.cli.arguments import K, Out, Overwrite, persistent_location, writable_location
from valueshare.cli.report import print_written
from valueshare.cli.run_and_report import command_line
from valueshare.expansion import Coefficient, is_n, resolve_ks
from valueshare.experiments.tabular_designs import (
    ActionsScale,
    GridworldScale,
    TabularStudy,
    check_memory,
    gridworld_actions_studies,
    gridworld_studies,
    results_config,
)
from valueshare.option_groups import in_group
from valueshare.printing import print_line
from valueshare.runs.launcher_options import LauncherOptions, Shard, shard_folder
from valueshare.runs.storage.locations import Location
from valueshare.text import option_words, plain_numbers, pluralize

DEFAULT = TabularStudy()
GRID = ("env", "algorithm", "k", "step_size", "seeds", "steps")


@dataclass(frozen=True)
class SweepLauncher:
    """Options of where a sweep runs, and of which shard; none of them changes results."""

    launcher: Literal["local", "ray"] = "local"
    """local: on this machine, with a thread per core; ray: on a cluster."""
    ray_address: str = "auto"
    """HOST:PORT of the cluster; auto: the cluster that this machine belongs to."""
    ray_cpus: int = 0
    """CPUs and threads per task, which is one k and a few step sizes; 0: one."""
    ray_retries: int = 3
    """How many times a task is run again, from its start, after its worker is lost."""
    shard: str = ""
    """Shard to run, 1/N to N/N, in its own folder; default: the whole grid."""


LOCAL_SWEEP = SweepLauncher()


@dataclass(frozen=True)
class SweepExecution:
    """Options of running a sweep, besides its folder."""

    plan: Annotated[bool, in_group("execution")] = False
    """Print the plan without running anything: environments, k, step sizes, seeds, timesteps and folder."""
    overwrite: Overwrite = False
    launcher: Annotated[SweepLauncher, in_group("cluster", name="*")] = LOCAL_SWEEP


SweepArguments = Annotated[SweepExecution, Parameter(name="*")]
DEFAULT_EXECUTION = SweepExecution()


def reproduce_gridworld(
    *, scale: GridworldScale = "paper", out: Out = None, running: SweepArguments = DEFAULT_EXECUTION
) -> None:
    """The paper's gridworld figure at its full size, with both step rewards.

    Args:
        scale: Size of the study: the paper's full grid, or a smoke test of a few seconds.
        out: Folder to write to, records and report; default: results/gridworld, or results/gridworld-smoke.
    """
    _reproduce("gridworld", scale, gridworld_studies(scale), out, running)


def reproduce_gridworld_actions(
    *, scale: ActionsScale = "full", out: Out = None, running: SweepArguments = DEFAULT_EXECUTION
) -> None:
    """Additional study (not in the paper): the gridworld with 4 to 1,024 actions, copies of its four; k = 0, 1 and n.

    Args:
        scale: Size of the study: the full grid, minutes to an hour, or a smoke test of a few seconds.
        out: Folder to write to, records and report; default: results/gridworld-actions, or
            results/gridworld-actions-smoke.
    """
    _reproduce("gridworld-actions", scale, gridworld_actions_studies(scale), out, running)


def _reproduce(
    name: str, scale: str, studies: Sequence[TabularStudy], out: str | None, running: SweepExecution
) -> None:
    """Run the studies; a smoke test has a folder of its own, beside that of the whole study."""
    folder = f"results/{name}-smoke" if scale == "smoke" else f"results/{name}"
    _run(studies, folder if out is None else out, f"valueshare reproduce {name} --scale {scale}", running)


def tabular(
    *,
    env: Annotated[tuple[str, ...], in_group("main")] = (DEFAULT.env,),
    algorithm: Annotated[tuple[str, ...], in_group("main")] = (DEFAULT.algorithm,),
    study: Annotated[TabularStudy, Parameter(name="*")] = DEFAULT,
    k: K = DEFAULT.k,
    out: Out = None,
    running: SweepArguments = DEFAULT_EXECUTION,
) -> None:
    """Sweep k, step sizes and seeds of tabular learners on any finite MDP.

    Every combination of environment and algorithm is a study with a folder and a report of its own.

    Args:
        env: Environments: gridworld, FrozenLake-v1, FrozenLake8x8-v1, CliffWalking-v1 and Taxi-v4, and your own,
            module:Name-v0.
        algorithm: Algorithms: q-learning, sarsa and expected-sarsa.
        k: Value-sharing k (0: none; n: the number of actions, copies included). The others are compared with the
            smallest.
        out: Folder to write to, records and report; default: results/ENVIRONMENT-ALGORITHM. Several studies are in
            OUT/ENVIRONMENT-ALGORITHM each.
    """
    named = dict.fromkeys(replace(study, env=one, algorithm=name) for one in env for name in algorithm)
    studies = [replace(each, k=_as_numbers(k, each)) for each in named]
    if len(studies) > 1:  # what is wrong with the last one is said before the first one runs
        from valueshare.experiments.tabular import study_mdp

        for each in studies:
            check_memory((each,))
            study_mdp(each)
    for each in studies:
        name = f"{each.env}-{each.algorithm}".replace("/", "-").replace(":", "-")
        above = "results" if out is None else out
        folder = out if out is not None and len(studies) == 1 else persistent_location(above) / name
        _run((each,), folder, command_line("tabular", _changed(each)), running)


def _as_numbers(k: Sequence[Coefficient], study: TabularStudy) -> tuple[float, ...]:
    """Every k as a number; the environment is made only where n, its number of actions, is asked for."""
    if not any(map(is_n, k)):
        return tuple(map(float, k))
    from valueshare.experiments.tabular import study_mdp

    actions = study_mdp(replace(study, action_copies=1)).actions
    return tuple(resolve_ks(k, actions * study.action_copies))


def _run(studies: Sequence[TabularStudy], given: str | Location, command: str, running: SweepExecution) -> None:
    """Run the studies and report them, or run one shard of their grid in a separate folder."""
    check_memory(studies)
    from valueshare.experiments.tabular import cell_timesteps, shard_cells, study_mdp, sweep_studies
    from valueshare.report.tabular_files import write_records
    from valueshare.report.write import write_report
    from valueshare.result_files import TRUSTED_LIMIT
    from valueshare.runs.directory import holds, remove_staging_folders, results_folder
    from valueshare.runs.storage.copies import synced_folder

    location = writable_location(given)
    launcher = LauncherOptions(**asdict(running.launcher))
    shard = launcher.selected_shard
    timesteps = cell_timesteps(studies, shard_cells(studies, shard))
    out, config = shard_folder(location, shard), results_config(studies, launcher.shard)
    if running.plan:
        study_mdp(studies[0])  # an unknown environment is refused
        print_line(*_plan_lines(studies, timesteps, shard, out))
        return
    with synced_folder(out) as target:
        remove_staging_folders(target)
        if not running.overwrite and (holds(target, config) or (shard is None and _in_shards(studies, target))):
            found = "this shard is" if shard else "these results are"
            print_line(f"{found} there already (--overwrite runs again): {out}")
        else:
            study_mdp(studies[0])  # an unknown environment is refused before anything is written
            runs = sum(study.timesteps // study.steps for study in studies)
            count = f"{timesteps:,} timesteps"
            try:
                with results_folder(target, config, overwrite=running.overwrite) as folder:
                    print_line(f"shard {shard}: {count}" if shard else f"{runs:,} runs, {count}")
                    table, seconds = sweep_studies(studies, progress=True, launcher=launcher)
                    full_command = f"{command} --shard {shard}" if shard else command
                    write_records(table, folder, seconds, command=full_command)
            except KeyboardInterrupt as end:
                raise KeyboardInterrupt(f"nothing was written to {out}") from end
            except OSError as error:
                raise OSError(error.errno, f"{error.strerror or error}; nothing was written to {out}") from error
            print_line(f"{seconds:.1f} s, {timesteps / seconds:,.0f} timesteps per second")
        written = None if shard else write_report([target], max_result_size=TRUSTED_LIMIT, trusted=True)
    if written is None:
        print_line(f"when all shards are there: valueshare report {shlex.quote(str(location))}")
    else:
        print_written(written, out / "report")


def _plan_lines(studies: Sequence[TabularStudy], timesteps: int, shard: Shard | None, out: Location) -> Iterator[str]:
    """A line for each study with its grid and its other options, then the timesteps in all and the folder."""
    for study in studies:
        sizes = plain_numbers(study.step_size)
        many = len(sizes) > 10
        grid = (
            f"k = {', '.join(plain_numbers(study.k))}",
            f"step sizes: {f'{len(sizes)} from {sizes[0]} to {sizes[-1]}' if many else ', '.join(sizes)}",
            f"seeds 0 to {study.seeds - 1}",
            f"{pluralize(study.steps, 'timestep')} per run",
            *(" ".join(option_words(name, value)) for name, value in _changed(study).items() if name not in GRID),
        )
        yield f"{study.env}, {study.algorithm}: {'; '.join(grid)}"
    yield f"{pluralize(timesteps, 'timestep')} {f'of shard {shard}' if shard else 'in all'}"
    yield f"folder: {out}"


def _changed(study: TabularStudy) -> dict[str, Any]:
    """The options of `tabular` that are not the default ones."""
    return {name: value for name, value in asdict(study).items() if value != getattr(DEFAULT, name)}


def _in_shards(studies: Sequence[TabularStudy], folder: Path) -> bool:
    """Whether the folder holds shards of these studies; their report refuses missing ones."""
    from valueshare.report.tabular_files import find_tabular

    parts, config = find_tabular([folder]), results_config(studies)
    return bool(parts) and all(part.shard and results_config(part.studies) == config for part in parts)
