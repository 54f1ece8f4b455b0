"""All commands together: their order, and one name and one form for one meaning."""

import fnmatch
import re
import tracemalloc
from collections.abc import Callable
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import cast, get_args

import pytest
from cyclopts import App, Argument, ArgumentCollection, Group

from valueshare.cli import COMMANDS, main, make_app
from valueshare.cli.messages import EXAMPLES
from valueshare.option_groups import GROUPS
from valueshare.population.other_names import OTHER_NAMES
from valueshare.population.settings import PER_AGENT
from valueshare.report.figure_registry import FIGURES

Cli = Callable[..., tuple[int, str, str]]


def arguments(command: str) -> ArgumentCollection:
    app: App = reduce(getitem, command.split(), make_app())
    return app.assemble_argument_collection(parse_docstring=True)


OPTIONS = {command: {name for one in arguments(command) for name in one.names} for command in COMMANDS}


def test_the_help_begins_with_what_is_used_most(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--help"])
    listed = re.findall(r"│ ([a-z][a-z-]+) ", capsys.readouterr().out)
    assert listed[:8] == ["train", "report", "watch", "play", "resume", "extend", "evaluate", "best"]


def test_the_help_names_the_options_whose_values_are_crossed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    main(["train", "--help"])
    flowing = " ".join(capsys.readouterr().out.split())
    match = re.search(r"Per-agent options \((.*?)\) take several values; every", flowing)
    assert match is not None
    crossed = {f"--{name.replace('_', '-')}" for name in ("env", "algorithm", "k", *PER_AGENT)}
    assert {name for pattern in match[1].split(", ") for name in fnmatch.filter(OPTIONS["train"], pattern)} == crossed


def test_the_help_of_a_report_names_its_figures_and_that_it_takes_several_runs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    main(["report", "--help"])
    flowing = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "Usage: valueshare report [OPTIONS] RUN... " in flowing
    assert "RUN... Run folders, URLs like s3://bucket/run, or " in flowing
    assert f"--figures STR... {', '.join(FIGURES)}; default: all for which there are results." in flowing


def test_every_required_argument_has_an_example() -> None:
    required = {argument.name for command in COMMANDS for argument in arguments(command) if argument.required}
    assert required == set(EXAMPLES)


def form(argument: Argument) -> str:
    """How an option is written: as a switch, with one value or with several."""
    if bool in (argument.hint, *get_args(argument.hint)):
        return "a switch"
    return "a list" if argument.token_count()[1] else "a value"


# Options with another form than in other commands: there is one of it.
OTHER_FORM = {
    ("play", "--agent"): "a video is of one agent; evaluate takes several",
    ("tabular", "--discount"): "a discount belongs to the MDP, whose values are compared with the exact ones",
    ("bench population", "--env"): "one environment is measured",
    ("bench atari", "--algorithm"): "one algorithm is measured",
}
# Options whose help begins with other words than in other commands.
OTHER_HELP = {
    ("play", "--agent"): "it is one agent",
    ("play", "--episodes"): "the episodes of one agent, in one video",
    ("bench population", "--env"): "it is one environment",
    ("bench atari", "--algorithm"): "it is one algorithm",
}


def subject(argument: Argument) -> str:
    """The beginning of the help of an option: what it is, without its default and values."""
    return re.split("[;:,.(]", " ".join((argument.parameter.help or "").split()))[0].strip()


@pytest.mark.parametrize(("described", "others"), [(form, OTHER_FORM), (subject, OTHER_HELP)])
def test_an_option_has_one_form_and_one_meaning_in_every_command(
    described: Callable[[Argument], str], others: dict[tuple[str, str], str]
) -> None:
    usual: dict[str, set[str]] = {}
    unusual: dict[tuple[str, str], str] = {}
    for command in COMMANDS:
        for argument in arguments(command):
            if (command, argument.name) in others:
                unusual[command, argument.name] = described(argument)
            elif argument.parse and argument.name.startswith("--"):
                usual.setdefault(argument.name, set()).add(described(argument))
    assert {name: texts for name, texts in usual.items() if len(texts) > 1 or "" in texts} == {}
    assert set(unusual) == set(others)
    assert [key for key, text in unusual.items() if {text} == usual[key[1]]] == []  # exceptions that are none
    if described is form:
        assert usual["--plan"] == {"a switch"}
        assert usual["--step-size"] == usual["--k"] == {"a list"}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_list_needs_a_value(command: str, cli: Cli) -> None:
    """None would be the default, which may be all games of a study."""
    for argument in arguments(command):
        if argument.name.startswith("--") and form(argument) == "a list":
            required = [word for word in ("--env", "A") if command == "train" and argument.name != "--env"]
            expected = f"valueshare: {argument.name}: write a value after it\n"
            assert tuple(cli(*command.split(), *required, argument.name)) == (2, "", expected)


def test_an_option_is_in_one_group_of_the_help() -> None:
    titles = [group.name for group in GROUPS.values()]
    assert titles == [
        "Main",
        "Environment",
        "Algorithm",
        "Exploration",
        "Replay",
        "Optimiser",
        "Evaluation",
        "Execution",
        "Cluster",
    ]
    found: dict[str, set[str]] = {}
    for command in COMMANDS:
        if command.split()[0] in ("train", "resume", "extend", "evaluate", "tabular", "reproduce"):
            for argument in arguments(command):
                if argument.name.startswith("--") and argument.name != "--scale":
                    (group,) = cast(tuple[Group], argument.parameter.group)
                    found.setdefault(argument.name, set()).add(group.name)
    assert {name: groups for name, groups in found.items() if len(groups) != 1 or not groups <= set(titles)} == {}
    main = {"--env", "--algorithm", "--k", "--seeds", "--steps", "--out", "--device"}  # what most runs set
    assert {name for name, groups in found.items() if groups == {"Main"}} == main
    assert found["--workers"] == {"Execution"}
    assert found["--shard"] == {"Cluster"}


def test_a_switch_that_a_setting_has_can_be_off_everywhere() -> None:
    for command, options in OPTIONS.items():
        for switch in ("tf32", "compile", "delayed-actor"):
            assert (f"--{switch}" in options) == (f"--no-{switch}" in options), command


def test_no_command_has_another_name_for_what_train_has() -> None:
    """Those that are left mean something else: an agent's number, a video's seed, an epsilon without a schedule."""
    others = {f"--{name.replace('_', '-')}" for names in OTHER_NAMES.values() for name in names}
    found = {(option, command) for command, options in OPTIONS.items() for option in options & others}
    assert found == {
        *(("--agents", command) for command in ("bench population", "bench atari")),
        *(("--epsilon", command) for command in ("play", "evaluate", "tabular")),
        *(("--episode-limit", command) for command in ("play", "evaluate")),
        ("--seed", "play"),
    }


def test_every_study_has_a_plan() -> None:
    for command, options in OPTIONS.items():
        if command.startswith("reproduce ") or command in ("train", "tabular"):
            assert "--plan" in options, command


@pytest.mark.parametrize(
    ("command", "lines"),
    [
        (
            "reproduce gridworld",
            [
                "gridworld, q-learning: k = 0, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8; step sizes: 61 ",
                "; step sizes: 61 from 0.00248 to 1; seeds 0 to 127; ",
                "; 5,000 timesteps per run; --regimes 500 1000 2500 5000; --step-reward -1\n",
                "\n702,720,000 timesteps in all\n",  # 2 rewards x 9 k x 61 step sizes x 128 seeds x 5,000
                "\nfolder: results/gridworld\n",
            ],
        ),
        (
            "reproduce gridworld-actions --scale smoke --shard 2/2",
            [
                "; step sizes: 0.00248, 0.0183, 0.135, 1; seeds 0 to 3; ",  # exp(-6), exp(-4), exp(-2), exp(0)
                "; --action-copies 8\n",
                "\n480,000 timesteps of shard 2/2\n",  # half of 4 studies x 3 k x 4 step sizes x 4 seeds x 5,000
                "\nfolder: results/gridworld-actions-smoke/shard-2-of-2\n",
            ],
        ),
        (
            "tabular --env FrozenLake-v1 --k 0 --seeds 3 --steps 100 --epsilon 0.2 --out here",
            [
                "FrozenLake-v1, q-learning: k = 0; step sizes: 0.01, 0.02, 0.05, 0.1, 0.2, 0.5; seeds 0 to 2; ",
                "; 100 timesteps per run; --epsilon 0.2\n1,800 timesteps in all\nfolder: here\n",
            ],
        ),
        ("tabular --k 0 n", ["gridworld, q-learning: k = 0, 4; "]),  # up, down, left, right
        ("tabular --k 0 1 N --action-copies 8", ["gridworld, q-learning: k = 0, 1, 32; ", "; --action-copies 8\n"]),
        ("tabular --env Taxi-v4 --k n 0", ["Taxi-v4, q-learning: k = 6, 0; "]),  # four moves, pick up, drop off
        (
            "tabular --env FrozenLake-v1 Taxi-v4 FrozenLake-v1 --algorithm sarsa q-learning --k 0 n",
            [
                "FrozenLake-v1, sarsa: k = 0, 4; ",  # left, down, right, up
                "\nfolder: results/FrozenLake-v1-sarsa\nFrozenLake-v1, q-learning: k = 0, 4; ",
                "\nfolder: results/FrozenLake-v1-q-learning\nTaxi-v4, sarsa: k = 0, 6; ",
                "\nfolder: results/Taxi-v4-sarsa\nTaxi-v4, q-learning: k = 0, 6; ",
            ],
        ),
        (
            "tabular --algorithm q-learning sarsa --out here",
            ["\nfolder: here/gridworld-q-learning\n", "\nfolder: here/gridworld-sarsa\n"],
        ),
        ("tabular --k 0 n 4", ["gridworld, q-learning: k = 0, 4; "]),  # as in train, the same number once
    ],
)
def test_the_plan_of_a_tabular_study(
    command: str, lines: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    monkeypatch.chdir(tmp_path)
    code, said, complaint = cli(*command.split(), "--plan")
    assert (code, complaint) == (0, "")
    assert all(line in said for line in lines), said
    assert list(tmp_path.iterdir()) == []


def test_the_plan_of_a_wrong_study_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli) -> None:
    monkeypatch.chdir(tmp_path)
    code, said, complaint = cli("tabular", "--env", "Taxi-v3", "--plan")
    assert (code, said) == (2, "")
    assert "'Taxi-v3': did you mean Taxi-v4?" in complaint


@pytest.mark.parametrize(
    "wrong",
    [
        "--env gridworld Taxi-v3",
        "--env gridworld FrozenLake-v1 --step-reward -1",
        "--algorithm q-learning dqn",
        "--env gridworld CartPole-v1",
    ],
)
def test_the_last_of_several_tabular_studies_is_refused_before_the_first_one_runs(
    wrong: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    monkeypatch.chdir(tmp_path)
    code, said, complaint = cli("tabular", *wrong.split(), "--seeds", 2, "--steps", 10)
    assert (code, said, complaint.count("\n")) == (2, "", 1)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", [command for command, options in OPTIONS.items() if "--seeds" in options])
@pytest.mark.parametrize("seeds", [2**32, pytest.param(10**30, marks=pytest.mark.slow)])
def test_no_list_of_seeds_is_made_before_they_are_known_to_fit(
    command: str, seeds: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    """2^32 seeds as a list would take 34 GB."""
    monkeypatch.chdir(tmp_path)
    words = [*command.split(), "--seeds", seeds, *(["--env", "CartPole-v1"] if command == "train" else [])]
    cli(*words)  # imports PyTorch and others
    tracemalloc.start()
    try:
        code, out, err = cli(*words)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (code, out, err.count("\n")) == (2, "", 1), err
    assert "seeds" in err
    assert peak < 10_000_000
    assert not any(tmp_path.iterdir())


def test_commands_with_seeds() -> None:
    studies = {command for command in COMMANDS if command.startswith("reproduce ") and "gridworld" not in command}
    assert {command for command, options in OPTIONS.items() if "--seeds" in options} >= studies | {"train", "tabular"}
