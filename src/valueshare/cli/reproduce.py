"""The commands of the studies of deep Q-learners: LunarLander, MinAtar and Atari games."""

from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from valueshare.cli.arguments import K
from valueshare.cli.study import AtariOptions, StudyOptions, reproduce
from valueshare.option_groups import in_group

PaperScale = Literal["smoke", "small", "paper"]
OurScale = Literal["smoke", "small", "full"]
EvalEpisodes = Annotated[
    int | None, in_group("evaluation", help="Episodes per evaluation of one agent; default: that of the scale.")
]
Algorithms = Annotated[tuple[str, ...], in_group("main")]
Options = Annotated[StudyOptions, Parameter(name="*")]
OfAtari = Annotated[AtariOptions, Parameter(name="*")]
DEFAULT, ATARI = StudyOptions(), AtariOptions()

STUDY_COMMANDS: dict[str, Callable[..., None]] = {}  # by the name of the study


def _study(declared: Callable[..., None]) -> Callable[..., None]:
    """The command of the study that a function is named after, with its options and its help."""
    name = declared.__name__.replace("_", "-")

    @wraps(declared)
    def command(**given: Any) -> None:
        reproduce(name, **given)

    STUDY_COMMANDS[name] = command
    return command


@_study
def lunarlander(*, scale: PaperScale = "small", eval_episodes: EvalEpisodes = None, options: Options = DEFAULT) -> None:
    """The paper's LunarLander figure: IB-DQN against k, with learning curves and value metrics.

    To resume a stopped run, run the same command again.

    Args:
        scale: Size of the study; smoke takes seconds; small, 5 k x 8 seeds, minutes; paper, 17 k x 120 seeds, needs a
            GPU.
    """


@_study
def lunarlander_step_size(
    *, scale: OurScale = "small", eval_episodes: EvalEpisodes = None, options: Options = DEFAULT
) -> None:
    """Additional study (not in the paper): k with its step size, as a map, and how to choose both.

    Step sizes are chosen on half of the seeds and scored on the other half. To resume a stopped run, give the same
    command again.

    Args:
        scale: Size of the study; smoke takes seconds; small, 5 k x 5 step sizes x 6 seeds, hours; full, 9 k x 6 step
            sizes x 30 seeds, needs a GPU.
    """


@_study
def lunarlander_actions(
    *, scale: OurScale = "small", eval_episodes: EvalEpisodes = None, options: Options = DEFAULT
) -> None:
    """Additional study (not in the paper): LunarLander's continuous engines in 9, 49 and 225 bins.

    DQN, IB-DQN(1), IB-DQN(n) and Dueling DQN, each at its best step size, chosen on half of the seeds and scored on
    the other half. To resume a stopped run, run the same command again.

    Args:
        scale: Size of the study; smoke takes seconds; small is 144 agents x 50,000 steps; full, 2,160 agents x 100,000
            steps, needs a GPU.
    """


@_study
def minatar(
    *,
    scale: OurScale = "small",
    env: Annotated[tuple[str, ...], in_group("main")] = (),
    algorithm: Algorithms = (),
    step_size: Annotated[tuple[float, ...], in_group("optimiser")] = (),
    first_seed: Annotated[int, in_group("algorithm")] = 0,
    steps: Annotated[int | None, in_group("main")] = None,
    eval_episodes: EvalEpisodes = None,
    options: Options = DEFAULT,
) -> None:
    """Additional study (not in the paper): the paper's agents and Double DQN on the five games of MinAtar.

    DQN, Double DQN, Dueling DQN, IB-DQN(1), IB-DQN(n), RDQ, IQN and IB-IQN(n), with settings of the literature. To
    resume a stopped run, run the same command again.

    Args:
        scale: Size of the study; smoke takes a minute; small, 10 seeds x 1,000,000 steps, and full, 30 seeds x
            5,000,000, need a GPU.
        env: Environments: the MinAtar games Asterix, Breakout, Freeway, Seaquest, SpaceInvaders; default: all, at
            scale smoke Breakout and SpaceInvaders.
        algorithm: Algorithms: dqn, double-dqn, dueling-dqn, ib-dqn, rdq, iqn, ib-iqn; default: all.
        step_size: Step size (learning rate), each with every algorithm; default: for each algorithm the one that was
            chosen on other seeds.
        first_seed: First seed; the seeds are consecutive. Choose step sizes on seeds that you do not report.
        steps: Environment steps per agent; default: that of the scale.
    """


@_study
def atari57(
    *,
    scale: PaperScale = "small",
    algorithm: Algorithms = (),
    k: K = (),
    atari: OfAtari = ATARI,
    options: Options = DEFAULT,
) -> None:
    """The paper's main result: algorithms with the layer and without, on Atari games.

    To resume a stopped study, run the same command again.

    Args:
        scale: Size of the study; smoke: Pong for 300 steps, under a minute; small: a million steps, for a GPU; paper:
            50 million steps.
        algorithm: Algorithms: those of train; default: dqn and ib-dqn, at the paper's scale also dueling-dqn, rdq,
            iqn and ib-iqn.
        k: Value-sharing k, of the ib- algorithms (n: the number of actions); default: n, for ib-dqn at the paper's
            scale also 1.
    """


@_study
def atari_sensitivity(
    *, scale: PaperScale = "small", k: K = (), atari: OfAtari = ATARI, options: Options = DEFAULT
) -> None:
    """IB-DQN against k on NameThisGame, DemonAttack and StarGunner.

    Args:
        scale: Size of the study; smoke: Pong for 300 steps, under a minute; small: a million steps, for a GPU; paper:
            50 million steps.
        k: Value-sharing k (n: the number of actions); default: 0, 1, 32, 64, ..., 1024, fewer at the
            smaller scales.
    """


@_study
def atari_rmsprop(*, scale: PaperScale = "small", atari: OfAtari = ATARI, options: Options = DEFAULT) -> None:
    """DQN and IB-DQN(n) with centred RMSprop and the Huber loss, on 55 games.

    Args:
        scale: Size of the study; smoke: Pong for 300 steps, under a minute; small: a million steps, for a GPU; paper:
            50 million steps.
    """


@_study
def atari_rdq_beta(
    *,
    scale: PaperScale = "small",
    beta: Annotated[tuple[float, ...], in_group("algorithm")] = (),
    atari: OfAtari = ATARI,
    options: Options = DEFAULT,
) -> None:
    """RDQ with several weights of its penalty, on the validation games of Atari-5.

    Args:
        scale: Size of the study; smoke: Pong for 300 steps, under a minute; small: a million steps, for a GPU; paper:
            50 million steps.
        beta: RDQ: weight of the penalty; default: 0.00001, 0.0001, ..., 0.1, around the paper's 0.001.
    """
