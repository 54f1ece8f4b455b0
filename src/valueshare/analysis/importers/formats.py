"""The formats of results, each read into `env, algorithm, k, seed, step, score, ...`.

An invalid file is refused in one line that names it. Nothing is unpickled.
"""

import re
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import BadZipFile

import polars as pl

from valueshare.analysis.importers.columns import METRICS, REQUIRED, TYPES, read_table, short, typed
from valueshare.analysis.run_values import diverged
from valueshare.errors import InvalidInput, printable, without_marks
from valueshare.population.run_config import (
    check_agents_of_run,
    check_columns,
    checked_config,
    damage_named,
    damaged_agents,
    read_agents,
)
from valueshare.records import RECORDS, read_tables
from valueshare.result_files import SizeLimit, read_arrays
from valueshare.schema import Invalid, read_config, read_object
from valueshare.text import shorten_list

ALIASES = {"environment": "env", "game": "env"}
OTHER_COLUMNS = {  # names of the required columns elsewhere, which are suggested to be renamed
    "env": ("env_id", "env_name", "task", "domain"),
    "algorithm": ("algo", "alg", "agent_name", "method", "model", "exp_name"),
    "seed": ("run", "run_id", "trial", "seeds", "random_seed"),
    "step": ("steps", "timestep", "timesteps", "time_steps", "total_timesteps", "global_step", "frame", "frames"),
    "score": ("return", "returns", "reward", "episode_return", "episodic_return", "mean_return", "mean_reward", "r"),
}
MONITOR = b'#{"t_start"'
KNOWN = (*TYPES, "agent", "episodes", "train_episodes", "diverged_at", "source")  # columns of a tidy table
PFRL_STEPS = (
    "PFRL evaluates when the episode under way has ended: its steps are counted as the evaluation "
    "interval's, which lie up to an episode earlier"
)


class ImportedResults(NamedTuple):
    """The results of one file or folder."""

    table: pl.DataFrame
    kind: str
    notes: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()  # notes that every file of its kind shares
    config: dict[str, Any] | None = None
    provenance: dict[str, Any] | None = None


def read_tidy(file: Path, limit: SizeLimit | None = None) -> ImportedResults:
    """A CSV or Parquet file with a row per evaluation."""
    _refuse_monitor(file)
    original = read_table(file, limit)
    table = _renamed(original, file)
    missing = [name for name in (*REQUIRED, "score") if name not in table.columns]
    if missing:
        raise InvalidInput(f"{file} has no column {_wanted_columns(missing, original.columns)}")
    for name in table.columns:
        if name not in KNOWN:
            raise InvalidInput(
                f"{file} has an unknown column {name[:60]!r}: leave it out, or name it one of {', '.join(METRICS)}"
            )
    if table.is_empty():
        raise InvalidInput(f"{file} has a header and no rows: write a row per evaluation")
    # Both are set again: an agent's number means nothing outside its file.
    return ImportedResults(typed(table.drop("agent", "source", strict=False), file), "table")


def read_run_folder(folder: Path, limit: SizeLimit | None = None) -> ImportedResults:
    """A run folder of this package, finished or as far as its last finished phase."""
    limit = SizeLimit() if limit is None else limit
    config, agents = read_config_and_agents(folder, limit)
    tables = [table for table in read_tables(folder, limit=limit, seconds=True) if not table.is_empty()]
    if not tables:
        raise InvalidInput(f"{folder / RECORDS} holds no records: train first")
    records = pl.concat(tables, how="diagonal_relaxed")
    _require(records, ("agent", "step", "score"), folder / RECORDS, "it is not of a run")
    unknown = records.join(agents, on="agent", how="anti").height
    if unknown:
        raise InvalidInput(f"{folder}: {unknown} records are of agents not in agents.parquet")
    table = typed(agents.join(records, on="agent", how="inner"), folder / RECORDS)
    # The same runs may be there with another optimiser.
    optimizers = {env: settings.get("optimizer") for env, settings in (config or {}).get("settings", {}).items()}
    optimizer = pl.col("env").replace_strict(optimizers, default=None, return_dtype=pl.String)
    table = table.with_columns(optimizer.alias("optimizer"))
    notes = _run_notes(agents, records, config)
    return ImportedResults(table, "run", notes, config=config, provenance=_json(folder / "provenance.json"))


def read_config_and_agents(folder: Path, limit: SizeLimit | None = None) -> tuple[dict[str, Any] | None, pl.DataFrame]:
    """The configuration of a run folder, where it has one, and its table of agents, checked as `resume` checks them."""
    config, agents = read_config(folder), read_agents(folder, limit)
    try:
        check_columns(agents)
    except InvalidInput as error:
        raise damaged_agents(folder, without_marks(error)) from error
    if config is not None:
        with damage_named(folder):
            check_agents_of_run(checked_config(config)[0], agents)
    return config, agents


def read_scores_txt(file: Path, limit: SizeLimit | None = None) -> ImportedResults:
    """PFRL's table of evaluations; `args.txt` beside it or the folders' names identify the run."""
    table = read_table(file, limit)
    _require(table, ("steps", "mean"), file, "PFRL's have steps and mean")
    if table.is_empty():
        raise InvalidInput(f"{file} holds no records: no evaluation had finished")
    arguments = _json(file.with_name("args.txt"), finite=False) or {}
    arguments = {name: value for name, value in arguments.items() if isinstance(value, str | int)}
    identity: dict[str, Any] = {name: arguments[name] for name in ("env", "seed") if name in arguments}
    if (algorithm := arguments.get("agent") or arguments.get("algo") or _script(file)) is not None:
        identity["algorithm"] = algorithm
    if len(identity) < 3:
        identity = _from_folders(file) | identity
    values = table.select(pl.col("steps").alias("step"), pl.col("mean").alias("score"))
    table, rules = _on_schedule(typed(_labelled(values, identity), file), arguments)
    return ImportedResults(table, "pfrl", rules=rules)


def read_evaluations(file: Path, limit: SizeLimit | None = None) -> ImportedResults:
    """Stable-Baselines3's evaluations; the folders' names identify the run."""
    try:
        steps, results = read_arrays(file, ("timesteps", "results"), limit)
    except InvalidInput:
        raise
    except KeyError as error:
        raise InvalidInput(f"{file} has no array {short(error)}: it is not an evaluations.npz") from error
    except (OSError, ValueError, EOFError, BadZipFile, NotImplementedError, zlib.error) as error:
        raise InvalidInput(f"{file} cannot be read: {short(error)}") from error
    if steps.dtype.kind not in "iuf" or results.dtype.kind not in "iuf":
        raise InvalidInput(f"{file}: timesteps are {steps.dtype} and results {results.dtype}, not numbers")
    if steps.ndim != 1 or results.ndim != 2 or len(steps) != len(results):
        raise InvalidInput(f"{file}: timesteps {steps.shape} and results {results.shape} do not belong together")
    if not results.size:
        raise InvalidInput(f"{file} holds no records: no evaluation had finished")
    values = pl.DataFrame({"step": steps, "score": results.mean(axis=1)})
    return ImportedResults(typed(_labelled(values, _from_folders(file)), file), "stable-baselines3")


def _on_schedule(table: pl.DataFrame, arguments: dict[str, str | int]) -> tuple[pl.DataFrame, tuple[str, ...]]:
    """The evaluations of a PFRL run at the steps when they were due, so that runs share them.

    Its evaluator waits for the end of an episode, and then counts on from the multiple of `eval_interval` before it.
    """
    interval = arguments.get("eval_interval")
    if not isinstance(interval, int) or interval < 1:
        return table, ()
    due = table["step"] // interval * interval
    if due.is_duplicated().any() or (due == table["step"]).all():
        return table, ()
    return table.with_columns(due.alias("step")), (PFRL_STEPS,)


def _from_folders(file: Path) -> dict[str, Any]:
    """Algorithm, environment and seed from .../ALGORITHM/ENV/SEED/ or .../ALGORITHM/ENV_NUMBER/."""
    *_, third, second, last = ("", "", "", *file.resolve().parent.parts)
    if match := re.fullmatch(r"(?:seed[-_]?)?(\d+)", last):
        algorithm, env, seed = third, second, match[1]
    elif match := re.fullmatch(r"(.+)_(\d+)", last):
        algorithm, env, seed = second, match[1], match[2]
    else:
        algorithm = env = seed = ""
    if not (algorithm.strip("/") and env.strip("/")):
        raise InvalidInput(
            f"{file} does not name its algorithm, environment and seed: put it into a folder ALGORITHM/ENVIRONMENT/SEED"
        )
    return {"algorithm": algorithm, "env": env, "seed": int(seed)}


def _script(file: Path) -> str | None:
    """The algorithm in the name of the script in PFRL's `command.txt`: train_dqn.py."""
    try:
        with file.with_name("command.txt").open(encoding="utf-8") as opened:
            script = (opened.read(2**16).split() or [""])[0]
    except (OSError, UnicodeDecodeError):
        return None
    match = re.fullmatch(r"train_(\w+?)(_ale|_gym|_atari)?", Path(script).stem)
    return match[1] if match else None


def _labelled(values: pl.DataFrame, identity: dict[str, Any]) -> pl.DataFrame:
    return values.with_columns(pl.lit(value).alias(name) for name, value in identity.items())


def _refuse_monitor(file: Path) -> None:
    """Refuse a log of Stable-Baselines3's Monitor, which begins with a comment of JSON."""
    try:
        with file.open("rb") as opened:
            is_monitor = opened.read(len(MONITOR)) == MONITOR
    except OSError:  # `read_table` reports it
        return
    if is_monitor:
        raise InvalidInput(
            f"{file} is a Monitor log of Stable-Baselines3, with training episodes and no algorithm and seed: give the "
            "evaluations.npz of its EvalCallback, or a CSV with environment, algorithm, seed, step, score"
        )


def _wanted_columns(missing: Sequence[str], columns: Sequence[str]) -> str:
    """The missing columns, and which of those that there are to rename, or all that there are."""
    wanted = ["environment" if name == "env" else name for name in missing]
    found = {
        ours: column
        for ours in missing
        for column in columns
        if column.strip().lower().replace(" ", "_") in OTHER_COLUMNS[ours]
    }
    if not found:
        return f"{wanted[0]!r}: it has {printable(shorten_list(columns, 12), 160)}"
    renames = [f"{printable(column, 60)} to {ours}" for ours, column in found.items()]
    left = [name for name in wanted if ("env" if name == "environment" else name) not in found]
    add = f", and add {', '.join(left)}" if left else ""
    return f"{', '.join(map(repr, wanted))}: rename {', '.join(renames)}{add}"


def _require(table: pl.DataFrame, columns: Sequence[str], file: Path, hint: str) -> None:
    """Refuse a file without one of these columns."""
    for name in columns:
        if name not in table.columns:
            raise InvalidInput(f"{file} has no column {name!r}: {hint}")


def _renamed(table: pl.DataFrame, file: Path) -> pl.DataFrame:
    """The table with this package's column names, in upper or lower case."""
    lowered = (name.strip().lower() for name in table.columns)
    names = [ALIASES.get(name, name) for name in lowered]
    twice = [column for column, name in zip(table.columns, names, strict=True) if names.count(name) > 1]
    if twice:
        raise InvalidInput(
            f"{file} has {printable(shorten_list(twice), 160)}, which map to the same column: keep one of them"
        )
    return table.rename(dict(zip(table.columns, names, strict=True)))


def _run_notes(agents: pl.DataFrame, records: pl.DataFrame, config: dict[str, Any] | None) -> tuple[str, ...]:
    """Notes on agents without records, on those that are not finished, and on those that diverged."""
    notes = []
    last = agents.join(records.group_by("agent").agg(pl.col("step").max().alias("last")), on="agent", how="left")
    without = last["last"].null_count()
    if without:
        notes.append(f"{without:,} of {agents.height:,} agents have no records yet")
    for env, settings in (config or {}).get("settings", {}).items():
        planned, env_agents = settings.get("steps", 0), last.filter(pl.col("env") == env)
        short = env_agents.filter(pl.col("last") < planned)
        if not short.is_empty():
            notes.append(
                f"{short.height:,} of {env_agents.height:,} agents on {env} are not finished: step "
                f"{min(short['last'].to_list()):,} of {planned:,}"
            )
    if count := records.filter(diverged(records))["agent"].n_unique():
        notes.append(f"{count:,} of {agents.height:,} agents diverged; their scores are of frozen weights")
    return tuple(notes)


def _json(file: Path, *, finite: bool = True) -> dict[str, Any] | None:
    """JSON beside results; None where it cannot be read."""
    try:
        return read_object(file, finite=finite)
    except (OSError, Invalid):
        return None
