"""The MinAtar study."""

from typing import TYPE_CHECKING, Literal

from valueshare.cli.arguments import LOCAL, LauncherArguments
from valueshare.cli.study import DEFAULT, Arguments, StudyRun, reproduce_study
from valueshare.cli.training import training_library

if TYPE_CHECKING:
    from valueshare.envs.base import Backend

BACKEND: "Backend" = "jax"


def reproduce_minatar(
    *,
    scale: Literal["smoke", "small", "full"] = "small",
    games: tuple[str, ...] = (),
    algorithms: tuple[str, ...] = (),
    step_size: tuple[float, ...] = (),
    first_seed: int = 0,
    steps: int | None = None,
    given: Arguments = DEFAULT,
    launcher: LauncherArguments = LOCAL,
) -> None:
    """Our own study beside the paper's: its agents and Double DQN on the five games of MinAtar.

    DQN, Double DQN, Dueling DQN, IB-DQN(1), IB-DQN(n), RDQ, IQN and IB-IQN(n), with settings of the literature. To
    resume a stopped run, give the same command again.

    Args:
        scale: smoke takes a minute; small, 10 seeds x 1,000,000 steps, and full, 30 seeds x 5,000,000, need a GPU.
        games: Asterix, Breakout, Freeway, Seaquest, SpaceInvaders; left out: all, or the scale's own.
        algorithms: Algorithms of the study, like ib-dqn; left out: all.
        step_size: Step sizes, each of which is run with every algorithm; left out: 0.00025, as in Dopamine.
        first_seed: First seed. To choose step sizes, use seeds that you do not report.
        steps: Environment steps per agent; left out: the scale's own.
    """
    training_library("jax")
    from valueshare.envs import environment_spec
    from valueshare.experiments.minatar import minatar_study
    from valueshare.runs.plan import Plan
    from valueshare.runs.planning import families

    options = {"games": games, "algorithms": algorithms, "step_size": step_size, "first_seed": first_seed}
    study = minatar_study(scale, **options, steps=steps, **given.of_study())  # type: ignore[arg-type]
    envs = study.agents["env"].unique(maintain_order=True).to_list()
    settings, backends = dict.fromkeys(envs, study.settings), dict.fromkeys(envs, BACKEND)
    shared = families(settings, {env: environment_spec(env) for env in envs})
    plan = Plan(study.agents, settings, backends, given.device, given.compile, families=shared)
    changed = {name: value for name, value in {**options, "steps": steps}.items() if value}
    reproduce_study(StudyRun("minatar", scale, plan, study.deviations, changed), given, launcher)
