"""Results as one tidy table: this package's run folders, and other libraries' files."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from valueshare.analysis.importers.formats import read_run_folder, read_tidy
from valueshare.analysis.importers.sources import FILES, find_sources, tables_not_read
from valueshare.analysis.tidy import AGENT_SETTINGS, RUN_COLUMNS, VARIANT, group_label
from valueshare.errors import InvalidInput
from valueshare.population.run_config import read_agents
from valueshare.result_files import SizeLimit, TooLarge
from valueshare.text import shorten_list

FIRST = ("agent", "env", "algorithm", "k", "seed", "step", "score")
MAX_ACTIONS = 10**6  # of an environment: larger numbers in a file are not used
PROTOCOL = "atari_protocol"
# Settings of how long, where, and how often evaluated: they do not change what an agent has learned at a step.
NOT_OF_LEARNING = {
    *("steps", "checkpoint_interval", "replay_device", "tf32"),
    *("eval_interval", "eval_episodes", "eval_timesteps", "eval_envs"),
}
# The run folders of each shard number, by parent folder and number of shards.
Shards = dict[tuple[Path, int], dict[int, list[Path]]]


class Source(NamedTuple):
    """A file or folder of results."""

    path: str  # as in the table's column `source`
    kind: str  # "run", "table", "pfrl" or "stable-baselines3"
    runs: int
    config: dict[str, Any] | None  # of a run folder, checked when it was read
    provenance: dict[str, Any] | None

    @property
    def settings(self) -> dict[str, dict[str, Any]]:
        """The training settings of a run folder, by environment."""
        settings: dict[str, dict[str, Any]] = (self.config or {}).get("settings", {})
        return settings

    @property
    def actions(self) -> dict[str, int]:
        """The numbers of actions by environment, as far as a run folder has them."""
        stored: dict[str, int] = (self.config or {}).get("actions", {})
        return {env: count for env, count in stored.items() if count <= MAX_ACTIONS}


class Results(NamedTuple):
    """Everything that was read, as one table."""

    table: pl.DataFrame
    notes: tuple[str, ...]
    sources: tuple[Source, ...]
    left_out: tuple[str, ...] = ()  # paths that could not be read, as in the notes

    @property
    def paths(self) -> list[str]:
        """Every file or folder of results, read or not."""
        return [*(source.path for source in self.sources), *self.left_out]


def read_results(
    paths: str | Path | Iterable[str | Path],
    metric: str = "score",
    *,
    max_result_size: int | str | None = None,
    repeated: bool = False,
) -> Results:
    """Read run folders and files, or folders of them, into one tidy table.

    Reads this package's run folders, finished or not; tidy CSV and Parquet (`environment, algorithm, seed, step,
    score`, and `k`, `optimizer` and other metrics where there are any); PFRL's `scores.txt`; Stable-Baselines3's
    `evaluations.npz`, without pickle. `metric` must be there. Sizes are read from the files' metadata first; more than
    `max_result_size` (bytes, or a size like "4GB"; None: 2 GB) is refused. An agent with the same settings and seed in
    two of them is refused too, unless agents may be `repeated`: their column `source` tells them apart. Of a folder
    that holds several, those that cannot be read are left out with a note.
    """
    limit = SizeLimit(max_result_size)
    named_paths = [paths] if isinstance(paths, str | Path) else list(paths)
    named = list(map(Path, named_paths))
    found = list(dict.fromkeys(source for path in named for source in find_sources(path)))
    if not found:
        raise InvalidInput("no results are given: name run folders or files")
    tables, notes, sources, first_agent = [], tables_not_read(named, found), list[Source](), 0
    left_out: dict[str, InvalidInput] = {}
    for path in found:
        reader = read_run_folder if path.is_dir() else FILES.get(path.name, read_tidy)
        try:
            imported = reader(path, limit)
        except InvalidInput as error:
            if path in named or isinstance(error, TooLarge):
                raise
            left_out[str(path)] = error
            continue
        if metric not in imported.table.columns:
            known = ", ".join(imported.table.columns)
            raise InvalidInput(f"{path} has no metric {metric!r}: choose one of {known}")
        table, first_agent = _numbered(imported.table, first_agent)
        tables.append(table.with_columns(source=pl.lit(str(path))))
        notes += [f"{path}: {note}" for note in imported.notes]
        notes += [rule for rule in imported.rules if rule not in notes]
        runs = table["agent"].n_unique()
        sources.append(Source(str(path), imported.kind, runs, imported.config, imported.provenance))
    if not tables:
        raise next(iter(left_out.values()))
    notes += [f"{path} is left out: {error}" for path, error in left_out.items()]
    shards = _shards(sources)
    table = pl.concat(tables, how="diagonal_relaxed")
    _each_once(table, repeated=repeated)
    notes += [*_check_settings(sources, table), *_check_shards(shards)]
    if table[metric].is_null().all():
        names = sources[0].path if len(sources) == 1 else f"{sources[0].path} and {len(sources) - 1} more"
        raise InvalidInput(f"{names}: no evaluation has a {metric}, so there is no result")
    order = [name for name in FIRST if name in table.columns]
    rest = [name for name in table.columns if name not in order]
    return Results(table.select(*order, *rest).sort("agent", "step"), tuple(notes), tuple(sources), tuple(left_out))


def _shards(sources: Sequence[Source]) -> Shards:
    shards: Shards = {}
    for source in sources:
        if (stored := (source.config or {}).get("shard")) is None:
            continue
        path = Path(source.path)
        number, count = map(int, stored.split("/"))  # it was checked when it was read
        shards.setdefault((path.parent, count), {}).setdefault(number, []).append(path)
    return shards


def _check_shards(shards: Shards) -> list[str]:
    """Notes on folders that lack some of their shards.

    Shards that cannot be parts of one table are refused: every agent's number is in one of them.
    """
    notes = []
    for (folder, count), paths in shards.items():
        numbers = pl.concat([read_agents(path)["agent"].cast(pl.Int64) for shard in paths.values() for path in shard])
        misplaced, where = numbers.filter(numbers.is_duplicated()).to_list(), "two"
        if not misplaced and len(paths) == count:
            misplaced, where = sorted(set(range(numbers.len())) - set(numbers)), "none"
        if misplaced:
            raise InvalidInput(
                f"{folder}: its shards are of different tables (agent {min(misplaced)} is in {where} "
                "of them): give those of one table"
            )
        if len(paths) < count:
            present = shorten_list([f"{number}/{count}" for number in sorted(paths)])
            verb = "is" if len(paths) == 1 else "are"
            notes.append(f"{folder}: of the shards 1/{count} to {count}/{count} only {present} {verb} here")
    return notes


def _numbered(table: pl.DataFrame, first: int) -> tuple[pl.DataFrame, int]:
    """The table with its agents numbered from `first`, and the next number."""
    if "agent" not in table.columns:
        run_columns = [name for name in RUN_COLUMNS if name in table.columns]
        table = table.with_columns((pl.struct(run_columns).rank("dense") - 1).cast(pl.Int64).alias("agent"))
    numbered = table.with_columns(pl.col("agent") + first)
    last = numbered["agent"].max()
    return numbered, first if not isinstance(last, int) else last + 1


def _check_settings(sources: Sequence[Source], table: pl.DataFrame) -> list[str]:
    """Notes on runs of one environment with different settings; different Atari protocols are refused."""
    notes, first = list[str](), dict[str, tuple[str, Any]]()
    alike = "where algorithm, k and the settings per agent are the same, they count as one group"
    repeated, mixed = not repeats(table).is_empty(), mixes_settings(table, sources)
    for source in sources:
        for env, settings in source.settings.items():
            if (protocol := settings.get(PROTOCOL)) is not None:
                path, known = first.setdefault(PROTOCOL, (source.path, protocol))
                if protocol != known:
                    raise InvalidInput(
                        f"{source.path} has another Atari protocol than {path} ({_differences(protocol, known)}): give "
                        "results of one protocol"
                    )
            path, known = first.setdefault(env, (source.path, settings))
            if changed := _changed(settings, known):
                differences = _differences(
                    *({_option(name): each[name] for name in changed} for each in (settings, known))
                )
                separate = repeated or (mixed and bool(_changed(_of_learning(settings), _of_learning(known))))
                notes.append(
                    f"{source.path} was trained with other settings on {env} than {path} ({differences}): "
                    f"{'they are separate groups' if separate else alike}"
                )
    return notes


def mixes_settings(table: pl.DataFrame, sources: Sequence[Source]) -> bool:
    """Whether agents with the same name, k and settings per agent learned with different other settings."""
    groups = settings_groups(sources)
    known = table.filter(pl.col("source").is_in(list(groups)))
    learner = [name for name in ("env", *VARIANT, *AGENT_SETTINGS, "optimizer") if name in known.columns]
    counts = known.group_by(learner).agg(pl.col("source").replace_strict(groups, return_dtype=pl.Int64).n_unique())
    return bool((counts["source"] > 1).any())


def settings_groups(sources: Sequence[Source]) -> dict[str, int]:
    """A number for each run folder: the same for those that learned with the same settings where environments meet."""
    groups, known = dict[str, int](), list[dict[str, dict[str, Any]]]()
    for source in filter(lambda source: source.settings, sources):
        settings = {env: _of_learning(of_env) for env, of_env in source.settings.items()}
        number = next((i for i, other in enumerate(known) if _agree(settings, other)), len(known))
        if number == len(known):
            known.append({})
        known[number] = settings | known[number]
        groups[source.path] = number
    return groups


def _agree(one: dict[str, dict[str, Any]], other: dict[str, dict[str, Any]]) -> bool:
    return not any(_changed(one[env], other[env]) for env in one.keys() & other.keys())


def _changed(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """The settings that both have and that differ. One that is lacking was added later: its default was in force."""
    return [name for name in one.keys() & other.keys() if one[name] != other[name]]


def _of_learning(settings: dict[str, Any]) -> dict[str, Any]:
    scheduled = settings.get("step_size_schedule") == "linear" and settings.get("step_size_steps") is None
    kept = {"steps"} if scheduled else set[str]()  # the last step of the schedule
    return {name: value for name, value in settings.items() if name in kept or name not in NOT_OF_LEARNING}


def _option(name: str) -> str:
    """The option of a setting, as the command line has it."""
    return f"--{name.replace('_', '-')}"


def _differences(one: Any, other: Any) -> str:
    if isinstance(one, dict) and isinstance(other, dict):
        names = [name for name in sorted({*one, *other}) if one.get(name) != other.get(name)]
        differences = [
            f"{name} is {_in_words(one.get(name))} instead of {_in_words(other.get(name))}" for name in names
        ]
        more = len(differences) - 3
        return ", ".join(differences[:3]) + (f" and {more} more" if more > 0 else "")
    return f"{_in_words(one)} instead of {_in_words(other)}"


def _in_words(value: Any) -> str:
    """A value of a setting as a user writes it: null is not set, true is on."""
    if value is None or isinstance(value, bool):
        return "not set" if value is None else "on" if value else "off"
    return " ".join(map(_in_words, value)) if isinstance(value, list) else str(value)


def repeats(table: pl.DataFrame, *within: str) -> pl.DataFrame:
    """The rows of agents that are there more than once, or more than once within groups."""
    keys = [*within, *_identity(table)]
    twice = pl.struct(keys).is_duplicated()
    if "optimizer" in table.columns:  # an unknown one may be any
        alike = pl.struct(*keys, "optimizer").is_duplicated()
        twice &= alike | pl.col("optimizer").is_null().any().over(keys)
    return table.filter(twice)


def _identity(table: pl.DataFrame) -> list[str]:
    return [name for name in (*RUN_COLUMNS, "step") if name in table.columns and name != "optimizer"]


def _each_once(table: pl.DataFrame, *, repeated: bool) -> None:
    """Refuse agents that are there twice; where they may be `repeated`, those that are twice in one source."""
    keys = _identity(table)
    again = repeats(table, *(("source",) if repeated else ())).sort(keys)
    if again.is_empty():
        return
    row = again.row(0, named=True)
    evaluation = {name: row[name] for name in ("algorithm", "k", "env", "seed", "step")}
    same = again.join(again.select(keys).head(1), on=keys, how="semi", nulls_equal=True)
    sources = sorted(set(same["source"]))
    way = "give one of the two" if len(sources) > 1 else "give each run once"
    raise InvalidInput(f"{' and '.join(sources)}: {group_label(evaluation)} occurs twice; {way}")
