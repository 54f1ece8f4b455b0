"""The tabular commands: the gridworld figure, and the same for any finite MDP."""

import shlex
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

from tyro.conf import OmitArgPrefixes

import valueshare
from valueshare.commands.arguments import Engine, Flag, OutFolder
from valueshare.errors import InvalidInput
from valueshare.experiments.studies import Scale, TabularStudy, gridworld_studies
from valueshare.runs.engines import EngineOptions, local_path


def reproduce_gridworld(
    engine: Engine,
    scale: Scale = "paper",
    out: Path = Path("results/gridworld"),
    overwrite: Flag = False,
) -> None:
    """The paper's gridworld figure at its full size, with both step rewards.

    Args:
        engine: Where it runs.
        scale: The paper's full grid, or a smoke test of a few seconds.
        out: Folder for records, figures and report.
        overwrite: Run again, and replace the results in that folder.
    """
    command = f"valueshare reproduce gridworld --scale {scale}"
    title = "Gridworld: value-sharing in tabular Q-learning"
    _run(gridworld_studies(scale), out, overwrite, title, command, engine)


def tabular(
    study: OmitArgPrefixes[TabularStudy],
    engine: Engine,
    out: OutFolder = None,
    overwrite: Flag = False,
) -> None:
    """Sweep k, step sizes and seeds of tabular learners on any finite MDP.

    Args:
        study: What is run.
        engine: Where it runs.
        out: Folder for records, figures and report; left out: results/ENVIRONMENT-ALGORITHM.
        overwrite: Run again, and replace the results in that folder.
    """
    title = f"{study.env}: value-sharing in tabular {study.algorithm}"
    name = f"{study.env}-{study.algorithm}".replace("/", "-").replace(":", "-")
    folder = Path("results") / name if out is None else out
    _run((study,), folder, overwrite, title, _tabular_command(study), engine)


def _run(
    studies: Sequence[TabularStudy],
    out: Path,
    overwrite: bool,
    title: str,
    command: str,
    engine: EngineOptions,
) -> None:
    from valueshare.experiments.tabular import run_studies, study_mdp
    from valueshare.report.tabular import figure_name, headlines, write_results
    from valueshare.runs.directory import holds, results_folder

    if engine.shard or engine.population_agents:
        raise InvalidInput(
            "a tabular study is compared as a whole: leave out --shard and --population-agents"
        )
    out = local_path(out)
    config = {
        "valueshare": valueshare.__version__,
        "kind": "tabular",
        "studies": [study.settings() for study in studies],
    }
    if holds(out, config) and not overwrite:
        print(f"these results are there already (--overwrite runs them again): {out}")
    else:
        study_mdp(studies[0])  # an unknown environment is found out before anything is made
        runs = sum(study.timesteps // study.steps for study in studies)
        total = sum(study.timesteps for study in studies)
        try:
            with results_folder(out, config, overwrite=overwrite) as folder:
                print(f"{runs:,} runs, {total:,} timesteps")
                result = run_studies(studies, progress=True, engine=engine)
                write_results(result, folder, title=title, command=command)
        except KeyboardInterrupt:
            raise KeyboardInterrupt("nothing was written") from None
        except OSError as error:
            raise OSError(error.errno, f"{error.strerror or error}; nothing was written") from error
        rate = result.timesteps / result.seconds
        print(f"{result.seconds:.1f} s, {rate:,.0f} timesteps a second")
    for line in headlines(out):
        print(line)
    print(f"figure: {out / 'figures' / figure_name(studies)}.png")
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
