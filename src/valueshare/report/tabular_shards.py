"""Shards of a tabular study: what each leaves behind, and all of them as the study they are.

    config.json              the studies, and which shard it is
    records/runs.parquet     its rows of the whole study's, in their order
    summary.json             timesteps and seconds
    provenance.json          command, version, commit, machine, libraries

Step sizes are chosen, and norms followed, when all of them are there.
"""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from valueshare.errors import InvalidInput
from valueshare.experiments.studies import KIND, results_config, studies_of
from valueshare.experiments.tabular import TabularResult, concluded
from valueshare.files import write_json
from valueshare.records import write_table
from valueshare.result_files import SizeLimit, Unreadable, read_parquet
from valueshare.runs.directory import results_folder
from valueshare.runs.launcher_options import Shard, parse_shard
from valueshare.runs.provenance import provenance
from valueshare.schema import read_config, read_object

RUNS = Path("records") / "runs.parquet"


class StoredShard(NamedTuple):
    """A shard on disk."""

    folder: Path
    shard: Shard
    config: dict[str, Any]


def write_shard(
    runs: pl.DataFrame, folder: Path, timesteps: int, seconds: float, *, command: str
) -> None:
    """Fill the results folder of a shard."""
    (folder / RUNS).parent.mkdir()
    write_table(folder / RUNS, runs)
    write_json(folder / "provenance.json", provenance(command))
    write_json(folder / "summary.json", {"timesteps": timesteps, "seconds": round(seconds, 3)})


def tabular_shards(paths: Iterable[Path]) -> list[StoredShard]:
    """The shards of a tabular study in these folders; none where they are something else."""
    by_path = {path: _shards_in(path) for path in paths}
    found = [each for own in by_path.values() for each in own]
    others = [path for path, own in by_path.items() if not own]
    if found and others:
        raise InvalidInput(
            f"{found[0].folder} is a shard of a tabular study and {others[0]} is not: report the "
            "shards alone"
        )
    return sorted(found, key=lambda each: each.shard.number)


def _shards_in(path: Path) -> list[StoredShard]:
    return [
        StoredShard(folder, parse_shard(config["shard"]), config)
        for folder in (path, *sorted(path.glob("shard-*-of-*")))
        for config in [read_config(folder, skip_damaged=True) or {}]
        if config.get("kind") == KIND and "shard" in config
    ]


def merged(shards: Sequence[StoredShard], limit: SizeLimit | None = None) -> TabularResult:
    """The study that the shards are, to the bit what it is in one go."""
    first = shards[0]
    for each in shards[1:]:
        if each.config["studies"] != first.config["studies"] or each.shard.of != first.shard.of:
            raise InvalidInput(
                f"{each.folder} is no shard of the same study as {first.folder}: report the shards "
                "of one"
            )
    numbers = [each.shard.number for each in shards]
    twice = [each.folder for each in shards if numbers.count(each.shard.number) > 1]
    if twice:
        raise InvalidInput(f"{twice[0]} and {twice[1]} are the same shard: give one of the two")
    missing = [f"{i}/{first.shard.of}" for i in range(1, first.shard.of + 1) if i not in numbers]
    if missing:
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        raise InvalidInput(
            f"shard {', '.join(missing[:3])}{more} of {first.folder.parent} is missing: step sizes "
            "are chosen when all are there"
        )
    limit = SizeLimit() if limit is None else limit
    runs, seconds = zip(*(_read(each.folder, limit) for each in shards), strict=True)
    return concluded(studies_of(first.config), pl.concat(runs), sum(seconds))


def write_merged(
    shards: Sequence[StoredShard], out: Path, limit: SizeLimit | None = None
) -> TabularResult:
    """The results folder of the whole study, made of its shards."""
    from valueshare.report.tabular import write_results

    result = merged(shards, limit)
    # What a run in one go would be called; machine and commit are those of this process.
    command = re.sub(r" --shard \S+$", "", _command(shards[0].folder))
    with results_folder(out, results_config(result.studies), overwrite=True) as folder:
        write_results(result, folder, command=command)
        origins = [_json(each.folder / "provenance.json") for each in shards]
        whole = {**_json(folder / "provenance.json"), "shards": origins}
        write_json(folder / "provenance.json", whole)
    return result


def _read(folder: Path, limit: SizeLimit) -> tuple[pl.DataFrame, float]:
    try:
        seconds = float(_json(folder / "summary.json")["seconds"])
        return read_parquet(folder / RUNS, limit), seconds
    except (OSError, ValueError, KeyError, TypeError, pl.exceptions.PolarsError) as error:
        if isinstance(error, InvalidInput) and not isinstance(error, Unreadable):
            raise  # too large
        raise InvalidInput(f"{folder} is damaged: run this shard again, --overwrite") from error


def _command(folder: Path) -> str:
    return str(_json(folder / "provenance.json").get("command", ""))


def _json(file: Path) -> dict[str, Any]:
    return read_object(file)
