"""An option or a word that a command does not have: one line that says what to write instead."""

import re
import shlex
from collections.abc import Callable

import pytest

from valueshare.algorithm_info import ALGORITHM_INFO
from valueshare.cli import make_app
from valueshare.errors import InvalidInput
from valueshare.population.other_names import OTHER_ALGORITHMS, OTHER_NAMES, UNSUPPORTED_ALGORITHMS, check_known
from valueshare.population.settings import SETTINGS

Cli = Callable[..., tuple[int, str, str]]

OTHER_OPTIONS = [  # of Stable-Baselines3, CleanRL and earlier versions, and what train, tabular and a study have for it
    ("--learning-rate", "--step-size", "--step-size", "valueshare train has --step-size"),
    ("--lr", "--step-size", "--step-size", "valueshare train has --step-size"),
    ("--alpha", "--step-size", "--step-size", "valueshare train has --step-size"),
    ("--step-sizes", "--step-size", "--step-size", "valueshare train has --step-size"),
    ("--gamma", "--discount", "--discount", "valueshare train has --discount"),
    ("--buffer-size", "--replay-capacity", "--replay-capacity is an", "valueshare train has --replay-capacity"),
    ("--memory-size", "--replay-capacity", "--replay-capacity is an", "valueshare train has --replay-capacity"),
    ("--train-freq", "--update-interval", "--update-interval is an", "valueshare train has --update-interval"),
    ("--updates", "--gradient-steps", "--gradient-steps is an", "valueshare train has --gradient-steps"),
    ("--target-update", "--target-update-interval", "is an option of train", "train has --target-update-interval"),
    ("--target-network-frequency", "--target-update-interval", "is an option of", "train has --target-update-interval"),
    (
        "--exploration-fraction",
        "--epsilon-steps here, as a number of steps",
        "--epsilon-steps is",
        "has --epsilon-steps",
    ),
    ("--eps", "--epsilon-end", "--epsilon here", "valueshare train has --epsilon-end"),
    ("--seed", "--first-seed here, and --seeds 1", "--seeds here, and is how many", "--seeds here, and is how many"),
    ("--total-timesteps", "--steps", "--steps", "valueshare train has --steps"),
    ("--timesteps", "--steps", "--steps", "valueshare train has --steps"),
    ("--num-envs", "--seeds is the number of agents", "--help has all", "--seeds is the number of agents"),
    ("--env-id", "--env", "--env", "valueshare train has --env"),
    ("--game", "--env", "--env", "valueshare train has --env"),
    ("--games", "--env", "--env", "valueshare train has --env"),
    ("--algorithms", "--algorithm", "--algorithm", "valueshare train has --algorithm"),
    ("--methods", "--algorithm", "--algorithm", "valueshare train has --algorithm"),
    ("--output", "--out", "--out", "--out"),
    ("--log-dir", "--out", "--out", "--out"),
    ("--net-arch", "--hidden", "--hidden is an option of train", "valueshare train has --hidden"),
    ("--batch", "--batch-size", "--batch-size is an option of train", "valueshare train has --batch-size"),
    (
        "--n-actions",
        "the environment sets the number of actions",
        "--help has all",
        "the environment sets the number of actions",
    ),
    ("--cuda", "--device cuda", "--device is an option of train", "--device cuda"),
    ("--gpu", "--device cuda", "--device is an option of train", "--device cuda"),
    ("--agents-at-once", "--population-agents", "is an option of train", "--population-agents"),
]


@pytest.mark.parametrize(("other", "of_train", "of_tabular", "of_study"), OTHER_OPTIONS)
def test_an_option_of_another_library_is_named_as_ours(
    other: str, of_train: str, of_tabular: str, of_study: str, cli: Cli
) -> None:
    for command, hint in (
        ("train --env A", of_train),
        ("tabular", of_tabular),
        ("reproduce lunarlander", of_study),
    ):
        code, said, complaint = cli(*command.split(), other, "1")
        assert (code, said, complaint.count("\n")) == (2, "", 1)
        refusal, _, advice = complaint.partition(": ")[2].partition(": ")
        refusal = refusal.removesuffix(", as it is fixed in the study")
        assert refusal == f"{command.removesuffix(' --env A')} has no option {other}"
        assert re.search(rf"{re.escape(hint)}(?![\w-])", advice), complaint


@pytest.mark.parametrize(
    ("command", "complaint"),
    [
        (
            "play r --agent 0 --video a.gif --max-steps 3",
            "play has no option --max-steps: it is called --episode-limit here",
        ),
        ("evaluate r --agents 3", "evaluate has no option --agents: it is called --agent here"),
        (
            "evaluate r --seeds 3",
            (
                "evaluate has no option --seeds: it is called --seeds-from here, and is the first of them; "
                "--episodes is how many there are"
            ),
        ),
        (
            "train --env A --tau 1",
            (
                "train has no option --tau: soft target updates are not supported; "
                "every --target-update-interval steps, all weights are copied"
            ),
        ),
        (
            "train --env A --n-step 3",
            "train has no option --n-step: n-step returns are not supported; all targets are one-step",
        ),
        ("train --env A --alg dqn", "train has no option --alg: it is called --algorithm here"),
        (
            "train --env A --polyak 1",
            (
                "train has no option --polyak: soft target updates are not supported; "
                "every --target-update-interval steps, all weights are copied"
            ),
        ),
        ("train --env A -k 2", "train has no option -k: write --k"),
        ("train --env A -seeds 2", "train has no option -seeds: write --seeds"),
        ("train --env A --cpu", "train has no option --cpu: it is called --device here, as in --device cpu"),
        (
            "train --env A --grad-clip 1",
            "train has no option --grad-clip: gradients are not clipped; --loss huber limits those of large errors",
        ),
        (
            "train --env A --overwrite",
            "train has no option --overwrite: nothing is replaced; a new run needs another --out",
        ),
        ("train --env A --resume", "train has no option --resume: valueshare resume continues the run in a folder"),
        ("help", "unknown command 'help': write valueshare --help"),
        ("help train", "unknown command 'help': write valueshare train --help"),
        ("help reproduce minatar", "unknown command 'help': write valueshare reproduce minatar --help"),
        ("help reproduce", "unknown command 'help': write valueshare reproduce --help"),
        ("reproduce help", "unknown command 'help': write valueshare reproduce --help"),
        ("train help", "unknown command 'help': write valueshare train --help"),
        ("tabular help", "unknown command 'help': write valueshare tabular --help"),
        ("version", "unknown command 'version': write valueshare --version"),
        ("tabular --tau 1", "tabular has no option --tau: valueshare tabular --help has all"),
        ("evaluate r --seed 3", "evaluate has no option --seed: it is called --seeds-from here"),
        ("reproduce minatar --double", "reproduce minatar has no option --double: write --algorithm double-dqn"),
        ("extend r --steps 5 --lr 1", "a run is extended with its own settings: leave out --lr"),
        ("train CartPole-v1", "missing required argument --env: write --env CartPole-v1"),
        ("train 'My game' --steps 5", "missing required argument --env: write --env 'My game'"),
        ("tabular FrozenLake-v1 --seeds 3", "tabular: unexpected argument 'FrozenLake-v1': write --env FrozenLake-v1"),
        ("tabular --discount 0.9 0.99", "tabular: unexpected argument '0.99': --discount takes one value"),
        (
            "reproduce lunarlander --env CartPole-v1",
            "reproduce lunarlander has no option --env, as it is fixed in the study: valueshare train has --env",
        ),
        (
            "reproduce atari-sensitivity --algo dqn",
            (
                "reproduce atari-sensitivity has no option --algo, as it is fixed in the study: "
                "valueshare train has --algorithm"
            ),
        ),
        (
            "reproduce gridworld --env Taxi-v4",
            "reproduce gridworld has no option --env, as it is fixed in the study: valueshare tabular has --env",
        ),
        (
            "reproduce gridworld --device cuda",
            (
                "reproduce gridworld has no option --device: --device is an option of train; "
                "valueshare reproduce gridworld --help has all"
            ),
        ),
        (
            "reproduce lunarlander --callback a:b",
            (
                "reproduce lunarlander has no option --callback: --callback is an option of train; "
                "valueshare reproduce lunarlander --help has all"
            ),
        ),
        ("train --env CartPole-v1 --seeds 3 3", "train: unexpected argument '3': --seeds takes one value"),
        ("train --env A --seeds 3 4 --steps 4", "train: unexpected argument '4': --seeds takes one value"),
        ("train --env A --plan 3 --steps 3", "train: unexpected argument '3': leave it out, as --plan takes no value"),
        ("reproduce atari57 Pong", "reproduce atari57: unexpected argument 'Pong': write --env Pong"),
        (
            "tabular --env a/B-v0",
            "there is no environment 'a/B-v0': put its module before its name, like my_package:a/B-v0",
        ),
    ],
)
def test_what_to_write_instead(command: str, complaint: str, cli: Cli) -> None:
    assert tuple(cli(*shlex.split(command))) == (2, "", f"valueshare: {complaint}\n")


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("n_envs", "every agent trains in one environment, and `seeds` is the number of agents"),
        ("tau", "soft target updates are not supported; every `target_update_interval` steps, all weights are copied"),
        ("seed", "it is called `first_seed` here, and `seeds = 1` makes it one agent"),
        ("gpu", "it is called `device` here, as in `device = 'cuda'`"),
        ("dueling", "write `algorithm = 'dueling-dqn'`"),
        ("lr", "it is called `step_size` here"),
        ("n_steps", "n-step returns are not supported; all targets are one-step"),
        ("step_sise", "did you mean step_size or steps?"),
    ],
)
def test_python_gives_the_same_advice(name: str, advice: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        check_known("setting", name, SETTINGS)
    assert str(refused.value).partition(": ")[::2] == (f"there is no setting {name!r}", advice)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("ddqn", "it is called double-dqn here"),
        ("dueling", "it is called dueling-dqn here"),
        ("duelling-dqn", "did you mean dueling-dqn"),
        *(
            (other, f"write one of {', '.join(ALGORITHM_INFO)}")
            for other in ("d3qn", "qr-dqn", "c51", "rainbow", "ppo")
        ),
    ],
)
def test_algorithms_by_other_names(name: str, hint: str) -> None:
    with pytest.raises(InvalidInput, match=f"^there is no algorithm '{name}': {hint}"):
        check_known("algorithm", name, ALGORITHM_INFO)


def test_names_of_other_algorithms_are_not_ours() -> None:
    others = [name for names in OTHER_ALGORITHMS.values() for name in names]
    assert set(OTHER_ALGORITHMS) <= set(ALGORITHM_INFO)
    assert len({*others, *UNSUPPORTED_ALGORITHMS, *ALGORITHM_INFO}) == sum(
        map(len, (others, UNSUPPORTED_ALGORITHMS, ALGORITHM_INFO))
    )


def test_names_of_other_libraries_lead_to_options_of_train() -> None:
    options = {name for one in make_app()["train"].assemble_argument_collection() for name in one.names}
    others = [name for names in OTHER_NAMES.values() for name in names]
    assert {f"--{name.replace('_', '-')}" for name in OTHER_NAMES} <= options
    assert len(others) == len(set(others))
    assert not options & {f"--{name.replace('_', '-')}" for name in others}
