"""The studies of deep Q-learners: LunarLander, MinAtar and Atari games."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from valueshare.cli.arguments import K, Tf32
from valueshare.cli.run_and_report import require_training
from valueshare.cli.study import AtariExecution, StudyExecution, reproduce
from valueshare.errors import InvalidInput
from valueshare.experiments.atari_options import AtariOptions
from valueshare.option_groups import AutoCompile, Device, in_group

if TYPE_CHECKING:
    from valueshare.experiments.lunarlander import LunarLanderName


@dataclass(frozen=True)
class StudyArguments:
    """Options of LunarLander and MinAtar studies, besides their scale."""

    seeds: Annotated[int | None, in_group("algorithm")] = None
    """Number of seeds (agents per combination); default: that of the scale."""
    eval_episodes: Annotated[int | None, in_group("evaluation")] = None
    """Episodes per evaluation of one agent; default: that of the scale."""
    device: Device = "auto"
    compile: AutoCompile = None
    tf32: Tf32 = False
    running: Annotated[StudyExecution, Parameter(name="*")] = StudyExecution()  # noqa: RUF009 (frozen)

    @property
    def of_study(self) -> dict[str, Any]:
        """Options of the study itself."""
        numbers = {"eval_episodes": self.eval_episodes, "seeds": self.seeds, "tf32": self.tf32}
        return {**numbers, "device": self.device, "compiled": self.compile}

    @property
    def changed(self) -> dict[str, Any]:
        """Options that the study's command needs to make the same results."""
        device = None if self.device == "auto" else self.device
        counts = {"device": device, "eval_episodes": self.eval_episodes, "seeds": self.seeds}
        return {**counts, "compile": self.compile, "tf32": self.tf32 or None}


Arguments = Annotated[StudyArguments, Parameter(name="*")]
AtariArguments = Annotated[AtariOptions, Parameter(name="*")]
ExecutionArguments = Annotated[AtariExecution, Parameter(name="*")]
DEFAULT, ATARI, HERE = StudyArguments(), AtariOptions(), AtariExecution()


def lunarlander(*, scale: Literal["smoke", "small", "paper"] = "small", arguments: Arguments = DEFAULT) -> None:
    """The paper's LunarLander figure: IB-DQN against k, with learning curves and value metrics.

    To resume a stopped run, run the same command again.

    Args:
        scale: smoke takes seconds; small, 5 k x 8 seeds, minutes; paper, 17 k x 120 seeds, needs a GPU.
    """
    _reproduce_lunarlander("lunarlander", scale, arguments)


def lunarlander_step_size(
    *, scale: Literal["smoke", "small", "full"] = "small", arguments: Arguments = DEFAULT
) -> None:
    """Additional study (not in the paper): k with its step size, as a map, and how to choose both.

    Step sizes are chosen on half of the seeds and scored on the other half. To resume a stopped run, give the same
    command again.

    Args:
        scale: smoke takes seconds; small, 5 k x 5 step sizes x 6 seeds, hours; full, 9 k x 6 step sizes x 30 seeds,
            needs a GPU.
    """
    _reproduce_lunarlander("lunarlander-step-size", scale, arguments)


def lunarlander_actions(*, scale: Literal["smoke", "small", "full"] = "small", arguments: Arguments = DEFAULT) -> None:
    """Additional study (not in the paper): LunarLander's continuous engines in 9, 49 and 225 bins.

    DQN, IB-DQN(1), IB-DQN(n) and Dueling DQN, each at its best step size, chosen on half of the seeds and scored on
    the other half. To resume a stopped run, run the same command again.

    Args:
        scale: smoke takes seconds; small is 144 agents x 50,000 steps; full, 2,160 agents x 100,000 steps, needs a GPU.
    """
    _reproduce_lunarlander("lunarlander-actions", scale, arguments)


def _reproduce_lunarlander(name: "LunarLanderName", scale: str, arguments: StudyArguments) -> None:
    require_training()
    from valueshare.experiments.lunarlander import lunarlander_study

    reproduce(lunarlander_study(name, scale, **arguments.of_study), arguments.running, arguments.changed)


def minatar(
    *,
    scale: Literal["smoke", "small", "full"] = "small",
    env: Annotated[tuple[str, ...], in_group("environment")] = (),
    algorithm: Annotated[tuple[str, ...], in_group("algorithm")] = (),
    step_size: Annotated[tuple[float, ...], in_group("optimiser")] = (),
    first_seed: Annotated[int, in_group("algorithm")] = 0,
    steps: Annotated[int | None, in_group("environment")] = None,
    arguments: Arguments = DEFAULT,
) -> None:
    """Additional study (not in the paper): the paper's agents and Double DQN on the five games of MinAtar.

    DQN, Double DQN, Dueling DQN, IB-DQN(1), IB-DQN(n), RDQ, IQN and IB-IQN(n), with settings of the literature. To
    resume a stopped run, run the same command again.

    Args:
        scale: smoke takes a minute; small, 10 seeds x 1,000,000 steps, and full, 30 seeds x 5,000,000, need a GPU.
        env: MinAtar games: Asterix, Breakout, Freeway, Seaquest, SpaceInvaders; default: all, at scale smoke
            Breakout and SpaceInvaders.
        algorithm: dqn, double-dqn, dueling-dqn, ib-dqn, rdq, iqn, ib-iqn; default: all.
        step_size: Step sizes (learning rates), each with every algorithm; default: for each algorithm the one that was
            chosen on other seeds.
        first_seed: First seed; the seeds are consecutive. Choose step sizes on seeds that you do not report.
        steps: Environment steps per agent; default: that of the scale.
    """
    require_training()
    from valueshare.experiments.minatar import minatar_study

    options: dict[str, Any] = {"env": env, "algorithm": algorithm, "step_size": step_size}
    options |= {"first_seed": first_seed, "steps": steps}
    study = minatar_study(scale, **options, **arguments.of_study)
    changed = {name: value for name, value in options.items() if value}
    reproduce(study, arguments.running, {**changed, **arguments.changed})


def atari57(
    *,
    algorithm: Annotated[tuple[str, ...], in_group("algorithm")] = (),
    k: K = (),
    study: AtariArguments = ATARI,
    running: ExecutionArguments = HERE,
) -> None:
    """The paper's main result: algorithms with the layer and without, on Atari games.

    To resume a stopped study, run the same command again.

    Args:
        algorithm: Algorithms to compare; default: dqn and ib-dqn, at the paper's scale also dueling-dqn, rdq, iqn
            and ib-iqn.
        k: Value-sharing k of the ib- algorithms (n: the number of actions); default: n, for ib-dqn at the paper's scale
            also 1.
    """
    _reproduce_atari("atari57", study, running, algorithm=algorithm, k=k)


def atari_sensitivity(*, k: K = (), study: AtariArguments = ATARI, running: ExecutionArguments = HERE) -> None:
    """IB-DQN against k on NameThisGame, DemonAttack and StarGunner.

    Args:
        k: Value-sharing k (n: the number of actions); default: 0, 1, 32, 64, ..., 1024, fewer at the
            smaller scales.
    """
    _reproduce_atari("atari-sensitivity", study, running, k=k)


def atari_rmsprop(*, study: AtariArguments = ATARI, running: ExecutionArguments = HERE) -> None:
    """DQN and IB-DQN(n) with centred RMSprop and the Huber loss, on 55 games."""
    _reproduce_atari("atari-rmsprop", study, running)


def atari_rdq_beta(
    *,
    beta: Annotated[tuple[float, ...], in_group("algorithm")] = (),
    study: AtariArguments = ATARI,
    running: ExecutionArguments = HERE,
) -> None:
    """RDQ with several weights of its penalty, on the validation games of Atari-5.

    Args:
        beta: Weights of the penalty; default: 0.00001, 0.0001, ..., 0.1, around the paper's 0.001.
    """
    _reproduce_atari("atari-rdq-beta", study, running, beta=beta)


def _reproduce_atari(
    name: str, options: AtariOptions, running: AtariExecution, **choices: Sequence[str | float]
) -> None:
    require_training("atari")
    from valueshare.experiments.atari import atari_study

    launcher = running.study.launcher
    if running.rate is not None and not 0 < running.rate < math.inf:
        raise InvalidInput(f"`rate = {running.rate:g}`: write agent-steps per second, or leave it out")
    if running.rate is not None and launcher.launcher == "ray":
        raise InvalidInput("`rate` is the speed of one machine: leave it out, on Ray speeds are measured")
    study = atari_study(name, options, population_agents=launcher.population_agents, **choices)  # type: ignore[arg-type]
    # The plan is split already.
    whole = replace(running, study=replace(running.study, launcher=replace(launcher, population_agents=0)))
    split = {"population_agents": launcher.population_agents or None}
    usual = asdict(ATARI)
    changed = {name: value for name, value in asdict(options).items() if value != usual[name]}
    reproduce(study, whole.study, {**changed, **choices, **split}, atari=whole)
