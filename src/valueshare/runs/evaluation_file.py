"""`evaluations.parquet` of a run folder: episodes that its agents played after training, one row each."""

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import polars as pl

from valueshare.analysis.held_out import FEW_SEEDS
from valueshare.analysis.intervals import mean_intervals
from valueshare.errors import InvalidInput, one_line
from valueshare.files import remove_temporary_files
from valueshare.records import EVALUATIONS, write_table
from valueshare.result_files import TRUSTED_LIMIT, SizeLimit, Unreadable, read_parquet
from valueshare.runs.locks import EVALUATIONS_LOCK, locked
from valueshare.runs.storage.remote import RunStorage
from valueshare.runs.variants import label, variant_columns
from valueshare.text import format_number, interval_text, pluralize

SCHEMA = pl.Schema(
    {
        "agent": pl.Int64(),
        "step": pl.Int64(),  # for which it has learned
        "seed": pl.Int64(),  # of the environment
        "epsilon": pl.Float64(),
        "episode_limit": pl.Int64(),
        "score": pl.Float64(),  # return, undiscounted and unscaled
        "overestimation": pl.Float64(),  # null where action-values are not finite
    }
)
UPLOAD_SECONDS = 2.0  # until a file that is being uploaded is read again
KEY = ("agent", "step", "seed", "epsilon", "episode_limit")  # identifies an episode


@contextmanager
def only_writer(folder: Path) -> Iterator[None]:
    """Hold the lock of the file; a run that is being trained may be evaluated meanwhile."""
    with locked(folder / EVALUATIONS_LOCK, f"{folder} is being evaluated by another process: wait for it to finish"):
        remove_temporary_files(folder, re.compile(re.escape(EVALUATIONS)))
        yield


def read_evaluations(folder: Path, agents: pl.DataFrame) -> pl.DataFrame:
    """All episodes that were played after training, maybe none. `agents` is the run's table."""
    path = folder / EVALUATIONS
    try:
        table = read_parquet(path, SizeLimit(TRUSTED_LIMIT))
    except FileNotFoundError:
        return SCHEMA.to_frame()
    except (OSError, pl.exceptions.PolarsError, Unreadable) as error:
        raise _damaged(path, one_line(error)) from error
    if table.schema != SCHEMA:
        raise _damaged(path, "it has other columns than it should")
    required = [name for name in SCHEMA if name != "overestimation"]
    if table.select(required).null_count().sum_horizontal().item():
        raise _damaged(path, "values are missing")
    numbers = pl.col("score", "overestimation")
    if not table.select(pl.all_horizontal(numbers.is_finite().fill_null(True)).all()).item():
        raise _damaged(path, "a score is not finite")
    ranges = (
        pl.col("agent").is_in(agents["agent"].to_list()),
        pl.col("step") >= 0,
        pl.col("seed") >= 0,
        pl.col("episode_limit") >= 1,
        pl.col("epsilon").is_between(0, 1),
    )
    if not table.select(pl.all_horizontal(ranges).all()).item() or table.select(KEY).is_duplicated().any():
        raise _damaged(path, "an episode cannot be of this run, or occurs twice")
    return table


def fetch_evaluations(storage: RunStorage, agents: pl.DataFrame) -> pl.DataFrame:
    """All episodes of a run that may be at a URL, maybe none.

    Not every store replaces a file in one step: one that is damaged may be in the middle of an upload, and is fetched
    once more.
    """
    if storage.is_remote:
        storage.store.get(EVALUATIONS, storage.folder / EVALUATIONS)
        with suppress(InvalidInput):
            return read_evaluations(storage.folder, agents)
        time.sleep(UPLOAD_SECONDS)
        storage.store.get(EVALUATIONS, storage.folder / EVALUATIONS)
    return read_evaluations(storage.folder, agents)


def add_episodes(folder: Path, before: pl.DataFrame, played: pl.DataFrame) -> None:
    """Write the file with new episodes; they replace those of the same agents, seeds and options."""
    table = pl.concat([before.join(played, on=KEY, how="anti"), played])
    write_table(folder / EVALUATIONS, table.sort("agent", "step", "seed"))


def evaluation_lines(agents: pl.DataFrame, episodes: pl.DataFrame) -> list[str]:
    """One line per variant: the mean over its agents, each the mean of its episodes, with a 95 % interval.

    A note follows where an interval is of few agents.
    """
    columns = variant_columns(agents)
    scores = episodes.group_by("agent").agg(pl.col("score").mean(), pl.len().alias("episodes"))
    table = agents.select("agent", *columns).join(scores, on="agent", maintain_order="left")
    count = pluralize(int(scores["episodes"].max()), "episode")  # type: ignore[arg-type]
    order = table.select(columns).unique(maintain_order=True)
    lines, fewest = [], FEW_SEEDS
    for row in order.join(mean_intervals(table, columns, "score"), on=columns, maintain_order="left").to_dicts():
        if row["ci95_low"] is None:
            text = f"{format_number(row['mean'])} (no interval)"
        else:
            text = interval_text(row["mean"], row["ci95_low"], row["ci95_high"])
            fewest = min(fewest, row["agents"])
        lines.append(f"{row['env']} {label(row)}: mean score {text}, {pluralize(row['agents'], 'agent')}, {count} each")
    if fewest < FEW_SEEDS:
        lines.append(f"note: intervals of {fewest} agents are too narrow: train at least {FEW_SEEDS} seeds")
    return lines


def _damaged(path: Path, why: str) -> InvalidInput:
    return InvalidInput(f"{path} is damaged ({why}): delete it, and evaluate again")
