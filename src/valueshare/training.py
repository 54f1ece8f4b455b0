"""Train a whole table of agents: `train` begins a run, `resume` goes on with one.

>>> run = valueshare.train("CartPole-v1", "ib-dqn", k=[0, 4], seeds=8, steps=20_000)
>>> run.records.join(run.agents, on="agent").group_by("k", "step").agg(pl.col("score").mean())
"""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Unpack

from rich.console import Console

from valueshare.envs.base import Backend
from valueshare.errors import InvalidInput
from valueshare.experiments.plans import default_folder, described, make_plan
from valueshare.population.state import NetworkFactory
from valueshare.population.train import checked_device
from valueshare.runs import run_folder
from valueshare.runs.events import require_tensorboard
from valueshare.runs.groups import group_scores, label, shown_score
from valueshare.runs.launch import Execution, check, launch
from valueshare.runs.options import Settings
from valueshare.runs.plan import Plan
from valueshare.runs.run_folder import Run


def train(
    env: str | Sequence[str],
    algorithm: str | Sequence[str] = "ib-dqn",
    *,
    k: float | Sequence[float] = 0.0,
    seeds: int | Iterable[int] = 8,
    first_seed: int = 0,
    out: str | Path | None = None,
    network: NetworkFactory | None = None,
    device: str = "cpu",
    compile: bool = False,  # noqa: A002 (the name of the option)
    backend: Backend | None = None,
    threads: int | None = None,
    tensorboard: bool = False,
    progress: bool = True,
    should_stop: Callable[[], bool] | None = None,
    **settings: Unpack[Settings],
) -> Run:
    """Train every combination of the given values, and leave a run folder (`out`).

    `settings` are any of `valueshare.runs.options.Settings` (`steps`, `eval_every`, `step_size`,
    ...); those left out are the preset's of the environment. `seeds` is how many, from `first_seed`
    on, or which. `network` makes one agent's module from (NetworkShape, k), instead of the
    algorithm's own. `should_stop` is asked at every step; a run that it ends is not `finished`, and
    `resume` goes on with it. `threads` are those of the environments.
    """
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
    return start(
        plan,
        default_folder(plan) if out is None else Path(out),
        "valueshare.train(...) from Python; config.json has the settings",
        Execution(network, threads, tensorboard, progress, should_stop),
    )


def start(plan: Plan, folder: Path, command: str, how: Execution) -> Run:
    """Begin the run of a plan in a new folder, once all is checked that can be."""
    run_folder.check_absent(folder, plan)
    console = Console(quiet=not how.progress)
    _announce(console, plan, folder, how)
    with run_folder.created(folder, plan, command):
        return launch(plan, folder, how, console)


def resume(
    folder: str | Path,
    *,
    network: NetworkFactory | None = None,
    threads: int | None = None,
    tensorboard: bool = False,
    progress: bool = True,
    should_stop: Callable[[], bool] | None = None,
) -> Run:
    """Go on with a run from its last finished phase; it ends as if it had never stopped.

    Settings are the run's own. A run with a network of its caller's own needs it here again.
    """
    folder = Path(folder)
    plan = run_folder.open_plan(folder)
    _check_network(folder, plan, network)
    how = Execution(network, threads, tensorboard, progress, should_stop)
    console = Console(quiet=not progress)
    if run_folder.is_finished(folder, plan):
        _say(console, f"this run is finished: {folder}")
        return Run(folder, plan.agents, run_folder.read_records(folder), finished=True)
    _check_device(folder, plan)
    _announce(console, plan, folder, how)
    with run_folder.held(folder):  # once: what is noted is what this process then does
        run_folder.note_resumption(folder, "valueshare resume", plan.device)
        return launch(plan, folder, how, console)


def summary(run: Run) -> list[str]:
    """How a run ended: the last score of each group, and how many agents diverged."""
    groups = group_scores(run.agents, run.records)
    lines = [
        f"{row['env']} {label(row)}: score {shown_score(row['score'])} at step {row['step']:,}, "
        f"{row['agents']:,} agents"
        for row in groups.to_dicts()
    ]
    diverged = groups["diverged"].sum()
    if diverged:
        lines.append(f"{diverged:,} of {run.agents.height:,} agents diverged and were frozen")
    else:
        lines.append("no agent diverged")
    return [*lines, f"records: {run.folder / 'records'}"]


def _announce(console: Console, plan: Plan, folder: Path, how: Execution) -> None:
    """Refuse what cannot be run; say what will be."""
    if how.tensorboard:
        require_tensorboard()
    memory = check(plan, how.network, how.threads)
    for line in (*described(plan), f"memory: {memory}", f"run folder: {folder}"):
        _say(console, line)


def _say(console: Console, line: str) -> None:
    console.print(line, highlight=False, markup=False, soft_wrap=True)


def _check_network(folder: Path, plan: Plan, network: NetworkFactory | None) -> None:
    if plan.network is not None and network is None:
        raise InvalidInput(
            f"the run in {folder} has a network of its own, {plan.network}: resume it from Python, "
            "valueshare.resume(folder, network=...)"
        )
    if plan.network is None and network is not None:
        raise InvalidInput(f"the run in {folder} has no network of its own: leave network out")


def _check_device(folder: Path, plan: Plan) -> None:
    try:
        checked_device(plan.device)
    except InvalidInput as error:
        raise InvalidInput(
            f"the run in {folder} is on {plan.device}, and there is no such device here: resume it "
            "on a machine that has one"
        ) from error
