"""The LunarLander studies: k at the paper's step size, k with its step size, and more and more actions."""

from typing import TYPE_CHECKING, Literal

from valueshare.cli.arguments import LOCAL, LauncherArguments
from valueshare.cli.study import DEFAULT, Arguments, StudyArguments, StudyRun, reproduce_study
from valueshare.cli.training import training_library
from valueshare.runs.launcher_options import LauncherOptions

if TYPE_CHECKING:
    from valueshare.envs.base import Backend
    from valueshare.experiments.lunarlander import Study

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

    _reproduce("lunarlander", scale, lunarlander_study(scale, **given.of_study()), given, launcher)


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

    study = lunarlander_step_size_study(scale, **given.of_study())
    _reproduce("lunarlander-step-size", scale, study, given, launcher)


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

    study = lunarlander_actions_study(scale, **given.of_study())
    _reproduce("lunarlander-actions", scale, study, given, launcher)


def _reproduce(name: str, scale: str, study: "Study", given: StudyArguments, launcher: LauncherOptions) -> None:
    from valueshare.envs.action_bins import split_bins
    from valueshare.runs.plan import Plan

    envs = study.agents["env"].unique(maintain_order=True).to_list()
    settings, backends = dict.fromkeys(envs, study.settings), dict.fromkeys(envs, BACKEND)
    actions = {env: count for env in envs if (count := split_bins(env).actions) is not None}
    plan = Plan(study.agents, settings, backends, given.device, given.compile, actions=actions)
    reproduce_study(StudyRun(name, scale, plan, study.deviations), given, launcher)
