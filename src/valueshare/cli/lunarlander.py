"""The LunarLander studies: k at the paper's step size, k with its step size, and more and more actions."""

import shlex
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from valueshare.cli.arguments import LOCAL, Compile, Device, LauncherArguments, Out, Tf32, Threads, writable_location
from valueshare.cli.training import command_line, holds_run, run_and_report, training_library
from valueshare.runs.launcher_options import LauncherOptions
from valueshare.signals import stop_on_signals

if TYPE_CHECKING:
    from valueshare.envs.base import Backend
    from valueshare.experiments.lunarlander import Study


@dataclass(frozen=True)
class StudyArguments:
    """Options of every study, besides its scale."""

    eval_episodes: int | None = None
    """Episodes per evaluation; left out: the scale's own."""
    seeds: int | None = None
    """Agents per combination; left out: the scale's own."""
    out: Out = None
    """Folder of run, figures and report; left out: results/STUDY-SCALE."""
    device: Device = "cpu"
    compile: Compile = False
    tf32: Tf32 = False
    threads: Threads = 0

    def of_study(self) -> dict[str, Any]:
        """Those that the study itself takes."""
        return {"eval_episodes": self.eval_episodes, "seeds": self.seeds, "tf32": self.tf32}


Arguments = Annotated[StudyArguments, Parameter(name="*")]
DEFAULT = StudyArguments()
BACKEND: "Backend" = "envpool"


def reproduce_lunarlander(
    *,
    scale: Literal["smoke", "small", "paper"] = "small",
    given: Arguments = DEFAULT,
    launcher: LauncherArguments = LOCAL,
) -> None:
    """The paper's LunarLander figure: IB-DQN against k, with learning curves and value metrics.

    To resume a stopped run, give the same command again.

    Args:
        scale: smoke takes seconds; small, 5 k x 8 seeds, minutes; paper, 17 k x 120 seeds, needs a GPU.
    """
    training_library()
    from valueshare.experiments.lunarlander import lunarlander_study
    from valueshare.report.sensitivity import write_sweep_report

    study = lunarlander_study(scale, **given.of_study())
    _reproduce("lunarlander", scale, study, given, launcher, write_sweep_report, "sensitivity")


def reproduce_lunarlander_step_size(
    *,
    scale: Literal["smoke", "small", "full"] = "small",
    given: Arguments = DEFAULT,
    launcher: LauncherArguments = LOCAL,
) -> None:
    """Our own study beside the paper's: k with its step size, as a map, and how to choose both.

    Step sizes are chosen on half of the seeds and scored on the other half. To resume a stopped run, give the same
    command again.

    Args:
        scale: smoke takes seconds; small, 5 k x 5 step sizes x 6 seeds, hours; full, 9 k x 6 step sizes x 30 seeds,
            needs a GPU.
    """
    training_library()
    from valueshare.experiments.lunarlander import lunarlander_step_size_study
    from valueshare.report.step_size import write_step_size_report

    study = lunarlander_step_size_study(scale, **given.of_study())
    _reproduce("lunarlander-step-size", scale, study, given, launcher, write_step_size_report, "settings-map")


def reproduce_lunarlander_actions(
    *,
    scale: Literal["smoke", "small", "full"] = "small",
    given: Arguments = DEFAULT,
    launcher: LauncherArguments = LOCAL,
) -> None:
    """Our own study beside the paper's: LunarLander's continuous engines in 9, 49 and 225 bins.

    DQN, IB-DQN(1), IB-DQN(n) and Dueling DQN, each at its best step size, chosen on half of the seeds and scored on
    the other half. To resume a stopped run, give the same command again.

    Args:
        scale: smoke takes seconds; small is 144 agents x 50,000 steps; full, 2,160 agents x 100,000 steps, needs a GPU.
    """
    training_library()
    from valueshare.experiments.action_sets import lunarlander_actions_study
    from valueshare.report.action_sets import FIGURE, write_actions_report

    study = lunarlander_actions_study(scale, **given.of_study())
    _reproduce("lunarlander-actions", scale, study, given, launcher, write_actions_report, FIGURE)


def _reproduce(
    name: str,
    scale: str,
    study: "Study",
    given: StudyArguments,
    launcher: LauncherOptions,
    write_report: Callable[[Path], dict[str, Any]],
    figure: str,
) -> None:
    """Run or resume a study, write its report and print its verdict."""
    training = training_library()
    from valueshare import starting
    from valueshare.runs.execution import ExecutionOptions
    from valueshare.runs.plan import Plan
    from valueshare.runs.storage.copies import synced_folder

    envs = study.agents["env"].unique(maintain_order=True).to_list()
    settings, backends = dict.fromkeys(envs, study.settings), dict.fromkeys(envs, BACKEND)
    plan = Plan(study.agents, settings, backends, given.device, given.compile)
    whole = writable_location(f"results/{name}-{scale}" if given.out is None else given.out)
    plan, folder = starting.select_shard(plan, whole, launcher)
    options = {"scale": scale, "device": given.device, "eval_episodes": given.eval_episodes, "seeds": given.seeds}
    flags = {"compile": given.compile or None, "tf32": given.tf32 or None, "shard": launcher.shard}
    command = command_line(f"reproduce {name}", {**options, **flags})
    with stop_on_signals() as stop:
        execution = ExecutionOptions(threads=given.threads or None, should_stop=stop, launcher=launcher)
        if holds_run(folder, plan, launcher):
            work = partial(training.resume, whole, threads=execution.threads, should_stop=stop, launcher=launcher)
        else:
            work = partial(starting.start, plan, folder, command, execution, study.deviations)
        run_and_report(work, folder, stop)
    if launcher.shard:
        print(f"when all shards are there: valueshare report {shlex.quote(str(whole))}")
        return
    with synced_folder(folder) as own:
        for line in write_report(own)["verdict"]:
            print(line)
    print(f"figure: {folder / 'figures' / f'{figure}.png'}")
    print(f"page:   {folder / 'report.html'}")
