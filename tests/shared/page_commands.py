"""How each command of the documentation is tested: as it is, smaller, by another test, or not, with the reason."""

import contextlib
import os
import re
import runpy
import shlex
import shutil
import signal
import subprocess
import sys
import tomllib
from argparse import ArgumentParser
from collections.abc import Callable
from pathlib import Path
from socketserver import TCPServer
from threading import Thread
from typing import Any, NamedTuple, NoReturn

import pytest
from page_snippets import ROOT, Snippet
from replaced_options import replaced
from served import ask

SMALL = """--steps 40 --eval-interval 20 --seeds 2 --learning-starts 10 --eval-episodes 1 --eval-envs 1
    --eval-episode-limit 20 --hidden 8 --batch-size 4 --replay-capacity 100 --no-compile --workers 1"""
SMALL_IMAGES = f"{SMALL.replace('--hidden 8', '')} --seeds 1 --checkpoint-interval 20 --device cpu"
SHORT_BENCH = "--device cpu --no-compile --replay-capacity 100 " + " ".join(
    f"--{part}-seconds 0.1" for part in ("raw", "plain", "part", "loop")
)
CLUSTERS = "tests/docs/test_cluster_commands.py"
BENCHMARKS = "tests/test_benchmark_programs.py"
RELIABILITY = "tests/test_reliability_programs.py"


class Mode(NamedTuple):
    """How a command is tested: one of these at least. Without options for the quick test, that one only parses it.

    Options come after those of the page, and replace them.
    """

    quick: str | None = None  # options with which the quick test runs it
    slow: str | None = None  # options with which the slow test runs it; None: as the quick one does
    test: str = ""  # the test that runs it instead, or in another way too
    reason: str = ""  # why nothing runs it


NAMED = Mode("--help")  # only the name of a command
MODES = {  # the first that matches
    r"^valueshare (bench|bench atari|evaluate|report|resume|tabular|train)$": NAMED,
    r"^python (-P )?-m valueshare$": Mode("--help"),
    r"^python -[cm]$": Mode(reason="it stands for any program"),
    # What needs a cluster, a store or a browser
    r"\$": Mode(test=CLUSTERS),
    r"^valueshare train .*--launcher ray": Mode(f"{SMALL} --launcher local", test=CLUSTERS),
    r"--launcher ray": Mode("--launcher local", test=CLUSTERS),
    r"^ray start --head|^export RAY": Mode(test=CLUSTERS),
    r"^ray start --address": Mode(slow="--help"),  # Ray lets no node join at 127.0.0.1
    r"^ray stop": Mode(reason="it ends every cluster on the machine, those of other programs too"),
    r"^moto_server|^export AWS|^python -c .import s3fs": Mode(reason="the tests have neither moto nor s3fs"),
    r"^valueshare watch ": Mode("--port 0 --no-clips"),
    # Training
    r"^valueshare train .*--plan": Mode(""),
    r"^valueshare train .*(Pong|MinAtar)": Mode("--plan --device cpu", slow=SMALL_IMAGES),
    r"^valueshare train .*runs/sweep$": Mode("--plan", slow=f"{SMALL} --out runs/small"),
    r"^valueshare train --env LunarLander-v3 --seeds 64$": Mode("--plan --device cpu", slow=f"{SMALL} --out runs/64"),
    r"^valueshare train .*(LunarLander|Acrobot|MountainCar|--seeds 16)": Mode("--plan --device cpu", slow=SMALL),
    r"^valueshare train .*--workers 2": Mode(SMALL, slow=f"{SMALL} --workers 2"),
    r"^valueshare train ": Mode(SMALL),
    r"^valueshare resume ": Mode(""),
    r"^valueshare extend ": Mode("--steps 60 --workers 1"),
    # Studies
    r"^valueshare reproduce gridworld": Mode(slow="--scale smoke"),
    r"^valueshare reproduce atari57 --scale smoke": Mode(  # tests/experiments/test_atari.py has all algorithms
        "--plan --rate 10000", slow="--algorithm dqn --steps 240 --eval-interval 120 --eval-timesteps 100"
    ),
    r"^valueshare reproduce .*--scale smoke": Mode("--plan", slow=""),
    r"^valueshare reproduce atari": Mode("--plan --device cpu --rate 10000"),
    r"^valueshare reproduce minatar": Mode(slow="--plan --device cpu"),
    r"^valueshare reproduce ": Mode("--plan --device cpu"),
    r"^valueshare tabular ": Mode("--plan", slow="--seeds 2 --steps 500"),
    # Trained agents and results
    r"^valueshare report (docs/reproduction|results/halves|sb3)": Mode(slow="--resamples 100"),
    r"^valueshare report ": Mode("--resamples 100 --figures learning-curves"),
    r"^valueshare play ": Mode("--episode-limit 4"),
    r"^valueshare evaluate ": Mode("--episodes 2 --episode-limit 20"),
    r"^valueshare best ": Mode("--resamples 100"),
    r"^valueshare (paper-table|--help|--version)": Mode(""),
    # Measurements
    # Few loops: each takes a dozen updates at least, of all agents.
    r"^valueshare bench atari .*--loops": Mode(slow=f"{SHORT_BENCH} --agents 8 --loop-seconds 0"),
    r"^valueshare bench atari ": Mode(slow=f"{SHORT_BENCH} --agents 2 --loops serial delayed-groups-2"),
    r"^valueshare bench ": Mode(slow=""),
    r"^python benchmarks/(cost_against_size|one_agent|presets_sb3)|against_peers_population": Mode(test=BENCHMARKS),
    r"^python benchmarks/(lunar_lander|where_time_goes)": Mode(test=BENCHMARKS),
    r"benchmarks/soak|^python benchmarks/fuzz\.py --cases": Mode(test=RELIABILITY),
    r"^python benchmarks/(fuzz|cluster_plan)": Mode(slow=""),
    r"^python benchmarks/against_rliable": Mode(slow="--resamples 100"),
    r"^python benchmarks/gpu_atari": Mode(slow="--device cpu --eager --agents 1 --rows dqn --longest 1"),
    r"^python benchmarks/gpu_vectors": Mode(slow="--device cpu --agents 3 --rows acting"),
    r"^python benchmarks/atari_protocol": Mode(slow="--device cpu --agents 1 --phase 400 --replay-capacity 2000"),
    r"^python benchmarks/processes_against": Mode(
        slow="--agents 2 --groups 1 2 --replay-capacity 200 --rounds 1 --seconds 0.1 --device cpu --eager"
    ),
    r"^python benchmarks/single_file_dqn": Mode(slow="--steps 300 --device cpu --no-compile"),
    r"^python benchmarks/integrations": Mode(
        slow="--libraries flax --steps 100 --eval-interval 50 --eval-episodes 1 --seeds 0 1"
    ),
    r"^python benchmarks/(against_peers|whole_command)": Mode(
        reason="it installs the other libraries from the network"
    ),
    r"^python examples/": Mode(slow="--steps 200 --eval-interval 100 --eval-episodes 1"),
    # Development
    r"^make ": Mode("--dry-run"),
    r"pip install ": Mode("--help"),
    r"^source ": Mode(""),
    r"^pytest ": Mode(slow=""),
    r"^python tests/shared/notebook_cells": Mode(test="tests/docs/test_notebooks.py"),
    r"^python tools/release_programs": Mode(slow=""),
    r"^python tools/": Mode(reason="it installs from the network, for minutes"),
    r"^pre-commit ": Mode(reason="pre-commit is not installed for the tests"),
}
# Words that stand for something of the reader's.
FOLDERS = ("RUN", "FOLDER", "A", "B")
PLACEHOLDERS = {
    r"\bRUN\.\.\.": "RUN",  # of a synopsis, like the brackets
    r"\[(--[^\]]*)\]|\s*\.\.\.$": r"\1",
    r"(?<=--steps )N\b": "60",
    r"(?<=--env )NAME\b": "CartPole-v1 --out runs/name",
    r"\.venv/bin/python\b": "python",
    r"^(?=benchmarks/)": "python ",
    r"s3://bucket\b": "local://{cwd}/bucket",
    r"(?<![\w.])/shared\b": "shared",
}
PLANNED: dict[str, tuple[int, str]] = {}  # plans of studies, by their commands
Cli = Callable[..., Any]


def command_text(snippet: Snippet) -> str:
    """The command with what stands for something of the reader's replaced, without a comment."""
    text = snippet.text
    for pattern, replacement in PLACEHOLDERS.items():
        text = re.sub(pattern, replacement.format(cwd=Path.cwd()), text)
    return text


def words(snippet: Snippet) -> list[str]:
    return shlex.split(command_text(snippet), comments=True)


def matching(snippet: Snippet) -> tuple[str, Mode] | None:
    text = command_text(snippet)
    return next(((pattern, how) for pattern, how in MODES.items() if re.search(pattern, text)), None)


def mode(snippet: Snippet) -> tuple[str, Mode]:
    found = matching(snippet)
    assert found, f"{snippet}: give {snippet.text} a mode in MODES of tests/shared/page_commands.py"
    return found


def run_command(snippet: Snippet, cli: Cli, run: Path, *, slow: bool) -> None:
    """Check a command as it is written, then run it with the options of its mode; `run` is a finished run."""
    how, given = mode(snippet)[1], words(snippet)
    if how is not NAMED:
        check(given)
    options = how.quick if how.slow is None or not slow else how.slow
    if options is None:
        return
    for name in (name for name in FOLDERS if name in given and not Path(name).exists()):
        shutil.copytree(run, name)
    plan = "--plan" in given or "--plan" in options
    given = replaced(given, shlex.split(options)) if given[0] == "valueshare" else [*given, *shlex.split(options)]
    given = [*(word for word in given if word != "--plan"), *(["--plan"] if plan else [])]
    if given[:2] == ["valueshare", "reproduce"] and plan:  # many pages have it, and it takes seconds
        code, err = planned(given, cli)
    elif given[0] == "valueshare":
        code, err = run_valueshare(given[1:], cli)
    else:
        code, err = run_program(given)
    does_not_fit = plan and code == 2 and re.search(r"memory|fit", err)
    assert code == 0 or does_not_fit, f"{snippet}: {err}"


# As they are written: options that exist, and files that are there.


def check(given: list[str]) -> None:
    program, *others = given
    if program == "valueshare":
        parse(others)
    elif program == "pytest":
        names = re.findall(r"def (test_\w+)", (ROOT / others[0]).read_text(encoding="utf-8"))
        for word in set(re.findall(r"\w+", others[others.index("-k") + 1])) - {"and", "or", "not"}:
            assert any(word in name for name in names), f"no test of {others[0]} has {word} in its name"
    elif "install" in others and "pip" in (program, *others):
        project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        extras = [name for word in others for found in re.findall(r"^\.\[(.*)\]$", word) for name in found.split(",")]
        assert set(extras) <= set(project["optional-dependencies"])
    elif program == "python" and others[0].endswith(".py"):
        name, *options = without_redirection(others)[0]
        program = "examples/cartpole.py" if name.startswith("examples/") else name  # which parses their options
        if name == program and "argparse" in (ROOT / name).read_text(encoding="utf-8"):
            parse_options(name, options)
        elif name != program:
            runpy.run_path(str(ROOT / program))["options"](None, options)


def parse(given: list[str]) -> None:
    """Parse a command line and validate its options, without running it."""
    from valueshare.cli import make_app

    make_app().parse_args(given, exit_on_error=False, print_error=False)


class _Parsed(Exception):
    """The options of a program were valid."""


def parse_options(program: str, given: list[str]) -> None:
    """Run a Python program up to where it has parsed its options."""
    parse_args = ArgumentParser.parse_args

    def only_parsed(parser: ArgumentParser, *given: Any) -> NoReturn:
        parse_args(parser, *given)
        raise _Parsed

    with pytest.MonkeyPatch.context() as patch, contextlib.suppress(_Parsed):
        patch.setattr(sys, "argv", [program, *given])
        patch.setattr(ArgumentParser, "parse_args", only_parsed)
        patch.syspath_prepend(str((ROOT / program).parent))
        runpy.run_path(str(ROOT / program), run_name="__main__")


def without_redirection(given: list[str]) -> tuple[list[str], str]:
    """The words before `> FILE` and those after it, and the file."""
    at = given.index(">") if ">" in given else len(given)
    return [*given[:at], *given[at + 2 :]], "".join(given[at + 1 : at + 2])


# Running them.


def planned(given: list[str], cli: Cli) -> tuple[int, str]:
    """Exit code and messages of a command that has no effect: those of the first time."""
    key = shlex.join(given)
    if key not in PLANNED:
        PLANNED[key] = run_valueshare(given[1:], cli)
    return PLANNED[key]


def run_valueshare(given: list[str], cli: Cli) -> tuple[int, str]:
    """Exit code and messages. A page that is served is asked for once; then it ends as with Ctrl-C."""
    found = [word for one in given for word in (sorted(map(str, Path.cwd().glob(one))) if "*" in one else [one])]
    before = signal.getsignal(signal.SIGTERM)

    def serve_once(server: TCPServer, poll_interval: float = 0.5) -> NoReturn:
        answers: list[int] = []
        port = server.socket.getsockname()[1]
        client = Thread(target=lambda: answers.append(ask(port)[0].status))
        client.start()
        server.handle_request()
        client.join()
        assert answers == [200]
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TCPServer, "serve_forever", serve_once)
        try:
            ended = cli(*found)
        finally:
            signal.signal(signal.SIGTERM, before)
    return ended.code, ended.err


def run_program(given: list[str]) -> tuple[int, str]:
    """Exit code and messages of another program, in a process of its own."""
    given, file = without_redirection(given)
    program, *others = given
    modules = {"pip": ["-m", "pip"], "pytest": ["-m", "pytest"], "python": [], "ray": ["-m", "ray.scripts.scripts"]}
    command = [sys.executable, *modules[program], *others] if program in modules else given
    if program == "source":
        if sys.prefix == sys.base_prefix:
            pytest.skip("this Python is not in a virtual environment")
        Path(".venv").symlink_to(sys.prefix)
        command = ["bash", "-c", f"{shlex.join(given)} && command -v valueshare"]
    for name in re.findall(r"=(\.venv-\S+/python)", shlex.join(others)):  # environments of other libraries
        Path(name).parent.mkdir(parents=True)
        Path(name).symlink_to(sys.executable)
    env = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}  # of `make test`
    env["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    where = ROOT if program in ("make", "pytest") else Path.cwd()
    ended = subprocess.run(command, cwd=where, env=env, capture_output=True, text=True, check=False)
    if file:
        Path(file).write_text(ended.stdout)
    return ended.returncode, ended.stdout + ended.stderr
