"""The command line: parses, calls, prints. What the commands do is elsewhere."""

import contextlib
import functools
import io
import re
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, NoReturn

import tyro
from tyro.conf import FlagCreatePairsOff, OmitArgPrefixes

import valueshare
from valueshare.cli_population import bench_population, reproduce_lunarlander
from valueshare.cli_train import resume, train
from valueshare.errors import InvalidInput
from valueshare.experiments.studies import Scale, TabularStudy, gridworld_studies

Flag = FlagCreatePairsOff[bool]
Command = Callable[..., None]
INTERRUPTED = 130  # what a shell answers for a command that Ctrl-C ended


def reproduce_gridworld(
    scale: Scale = "paper",
    out: Path = Path("results/gridworld"),
    overwrite: Flag = False,
) -> None:
    """The paper's gridworld figure at its full size, with both step rewards.

    Args:
        scale: The paper's full grid, or a smoke test of a few seconds.
        out: Folder for records, figures and report.
        overwrite: Replace results of other settings in that folder.
    """
    command = f"valueshare reproduce gridworld --scale {scale}"
    title = "Gridworld: value-sharing in tabular Q-learning"
    _run_tabular(gridworld_studies(scale), out, overwrite, title, command)


def tabular(
    study: OmitArgPrefixes[TabularStudy],
    out: Path = Path("results/tabular"),
    overwrite: Flag = False,
) -> None:
    """Sweep k, step sizes and seeds of tabular learners on any finite MDP.

    Args:
        study: What is run.
        out: Folder for records, figures and report.
        overwrite: Replace results of other settings in that folder.
    """
    title = f"{study.env}: value-sharing in tabular {study.algorithm}"
    _run_tabular((study,), out, overwrite, title, _tabular_command(study))


def bench_tabular() -> None:
    """Timesteps a second of the paper's gridworld sweep, and of a plain NumPy learner."""
    from valueshare.benchmarks import tabular

    tabular.run()


def bench_layer() -> None:
    """Forward and backward of the Nature network, with the layer and without."""
    from valueshare.benchmarks import layer

    layer.run()


def bench_import() -> None:
    """Seconds that `import valueshare` takes."""
    from valueshare.benchmarks import import_time

    import_time.run()


COMMANDS: dict[str, Command] = {
    "reproduce gridworld": reproduce_gridworld,
    "reproduce lunarlander": reproduce_lunarlander,
    "train": train,
    "resume": resume,
    "tabular": tabular,
    "bench tabular": bench_tabular,
    "bench layer": bench_layer,
    "bench population": bench_population,
    "bench import": bench_import,
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command; exit with 2 and one line for what its caller can mend."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        _dispatch(words)
    except InvalidInput as error:
        _fail(str(error))
    except KeyboardInterrupt:
        print("valueshare: interrupted; nothing was written", file=sys.stderr)
        sys.exit(INTERRUPTED)
    except OSError as error:
        # A full disk, say. Half-written folders have been removed on the way here.
        print(f"valueshare: {error.strerror or error}; nothing was written", file=sys.stderr)
        sys.exit(1)


def _dispatch(words: list[str]) -> None:
    if words in (["--version"], ["-V"]):
        print(f"valueshare {valueshare.__version__}")
        return
    if not words:
        words = ["--help"]
    # A command of two words, like `bench layer`, is one word to the parser.
    commands = COMMANDS
    group = {name: run for name, run in COMMANDS.items() if words and name.split()[0] == words[0]}
    if len(words) > 1 and (name := f"{words[0]} {words[1]}") in COMMANDS:
        words = [name, *words[2:]]
    elif group and words[0] not in COMMANDS:
        commands, words = group, words[1:] or ["--help"]
    _parse(commands, words)()


def _parse(commands: dict[str, Command], words: list[str]) -> Callable[[], None]:
    """The command with its arguments bound, not yet run."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            bound: Callable[[], None] = tyro.extras.subcommand_cli_from_dict(
                {name: _deferred(command) for name, command in commands.items()},
                prog="valueshare",
                description="Faster Q-learning by sharing value across actions.",
                args=words,
            )
    except SystemExit as exit_:
        if exit_.code:
            line = _one_line(said.getvalue())
            if words[0] == "resume" and (other := re.match(r"Unrecognized.*?(--\S+)", line)):
                line = f"a run goes on with its own settings: leave out {other[1].rstrip(',')}"
            _fail(line)
        raise
    return bound


def _deferred(command: Command) -> Callable[..., Callable[[], None]]:
    @functools.wraps(command)
    def bind(*args: Any, **options: Any) -> Callable[[], None]:
        return functools.partial(command, *args, **options)

    return bind


def _one_line(box: str) -> str:
    """What the parser says in a box, as one sentence: its first part, and what it suggests."""
    text = [
        re.sub(r"^[│╭╰].?|│$|[─╮╯]|^ *-{5,} *$", " ", line).strip() for line in box.splitlines()
    ]
    parts = [" ".join(part.split()) for part in "\n".join(text[1:]).split("\n\n")]
    said = [part for part in parts if part]
    kept = said[:1] + [part for part in said[1:] if part.startswith(("Perhaps", "Available"))]
    line = "; ".join(kept) or "the arguments could not be read"
    return re.sub(r"^Error parsing (\S+inner\S*: )?", "", line)


def _fail(message: str) -> NoReturn:
    print(f"valueshare: {message}", file=sys.stderr)
    sys.exit(2)


def _run_tabular(
    studies: Sequence[TabularStudy], out: Path, overwrite: bool, title: str, command: str
) -> None:
    from valueshare.experiments.tabular import run_studies, study_mdp
    from valueshare.report.tabular import write_results
    from valueshare.runs.directory import holds, results_folder

    config = {
        "valueshare": valueshare.__version__,
        "studies": [study.settings() for study in studies],
    }
    if holds(out, config) and not overwrite:
        print(f"these results are there already (--overwrite runs them again): {out}")
    else:
        study_mdp(studies[0])  # an unknown environment is found out before anything is made
        with results_folder(out, config, overwrite=overwrite) as folder:
            runs = sum(study.timesteps // study.steps for study in studies)
            total = sum(study.timesteps for study in studies)
            print(f"{runs:,} runs, {total:,} timesteps")
            result = run_studies(studies, progress=True)
            write_results(result, folder, title=title, command=command)
        rate = result.timesteps / result.seconds
        print(f"{result.seconds:.1f} s, {rate:,.0f} timesteps a second")
    print(f"figure: {next((out / 'figures').glob('[gi]*.png'))}")
    print(f"page:   {out / 'report.html'}")


def _tabular_command(study: TabularStudy) -> str:
    """The command that makes a study again: the settings that are not the defaults."""
    words = ["valueshare", "tabular"]
    for setting in fields(study):
        value = getattr(study, setting.name)
        if value != getattr(TabularStudy(), setting.name):
            values = value if isinstance(value, tuple) else (value,)
            words += [f"--{setting.name.replace('_', '-')}", *(f"{item}" for item in values)]
    return shlex.join(words)
