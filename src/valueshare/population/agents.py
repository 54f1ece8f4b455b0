"""The table of agents: one row per agent, more rows a sweep. Without PyTorch, for readers of run folders.

Settings that may differ between the agents of one population are columns here; shared ones are in
`settings.py`. `agent` numbers the rows of the whole table and is what records refer to.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import islice, product
from typing import Any, TypeVar

import polars as pl

from valueshare.algorithm_info import LAYER_PREFIX, info_named, unread_settings
from valueshare.errors import InvalidInput
from valueshare.population.settings import PER_AGENT, SETTINGS, AgentSettings
from valueshare.setting import as_float, as_int, refuse_repeated
from valueshare.text import exact

T = TypeVar("T")

MAX_SEEDS = 100_000
MAX_SEED = 2**63 - 1
MAX_AGENTS = 1_000_000  # rows of a table
MAX_K = 1e30  # times a value it is still finite in float32

SCHEMA: dict[str, type[pl.DataType]] = {
    "agent": pl.Int64,
    "env": pl.String,
    "algorithm": pl.String,
    "k": pl.Float64,
    **{name: pl.Int64 if SETTINGS[name].kind is int else pl.Float64 for name in PER_AGENT},
    "seed": pl.Int64,
}


def agent_table(
    env: str | Sequence[str],
    algorithm: str | Sequence[str],
    *,
    seeds: Iterable[int],
    k: float | Sequence[float] = 0.0,
    agent_settings: AgentSettings | Sequence[AgentSettings] = AgentSettings(),  # noqa: B008 (frozen)
) -> pl.DataFrame:
    """One row per combination of the given values; seeds vary fastest.

    An algorithm without k has one value, k = 0. A setting that an algorithm does not read, like beta, has its first
    value only.
    """
    seeds = seed_list(seeds)
    k_values = as_list(k)
    if not k_values:
        raise InvalidInput("no `k` is given: write at least one number, or n")
    for value in k_values:
        _check_k(value)
    all_settings: list[AgentSettings] = as_list(agent_settings)
    envs: list[str] = as_list(env)
    algorithms: list[str] = as_list(algorithm)
    groups = [
        {"env": e, "algorithm": a, "k": value, **asdict(settings)}
        for e, a in product(envs, algorithms)
        for value in (k_values if "k" in info_named(a).reads else [0.0])
        for settings in _distinct(all_settings, a)
    ]
    check_agent_count(len(groups) * len(seeds))
    columns = {name: kind for name, kind in SCHEMA.items() if name not in ("agent", "seed")}
    numbers = pl.DataFrame({"seed": seeds}, schema={"seed": pl.Int64})
    table = pl.DataFrame(groups, schema=columns).join(numbers, how="cross", maintain_order="left_right")
    table = table.with_row_index("agent").cast({"agent": pl.Int64}).select(*SCHEMA)
    refuse_repeated("k", k_values)
    if len(set(all_settings)) < len(all_settings) or table.drop("agent").is_duplicated().any():
        raise InvalidInput("duplicate agents: give each environment, algorithm and value of a setting once")
    return table


def _distinct(all_settings: Sequence[AgentSettings], algorithm: str) -> list[AgentSettings]:
    """Settings without duplicates for this algorithm: those that it does not read have their first value."""
    first = {name: getattr(all_settings[0], name) for name in unread_settings(algorithm).intersection(PER_AGENT)}
    return list(dict.fromkeys(replace(settings, **first) for settings in all_settings))


def seed_list(seeds: int | Iterable[int], first_seed: int = 0) -> list[int]:
    """The seeds of agents, given as how many, from the first one on, or as a list."""
    first_seed = as_int("first_seed", first_seed)
    if isinstance(seeds, str) or not isinstance(seeds, Iterable):
        count = as_int("seeds", seeds)
        if not 1 <= count <= MAX_SEEDS:
            raise InvalidInput(f"`seeds = {count}`: write how many, at least 1 and at most {MAX_SEEDS:,}")
        largest = MAX_SEED - count + 1
        if not 0 <= first_seed <= largest:
            raise InvalidInput(f"`first_seed = {first_seed}`: write a whole number from 0 to {largest}")
        return list(range(first_seed, first_seed + count))
    if first_seed:
        raise InvalidInput("`first_seed` cannot be combined with a list of `seeds`")
    given: list[int] = as_list(seeds, "seeds")
    numbers = [as_int("seeds", number) for number in given]  # NumPy's too
    if not numbers:
        raise InvalidInput("no seeds: give at least 1")
    ((repeated, times),) = Counter(numbers).most_common(1)
    if times > 1:
        raise InvalidInput(f"`seeds`: {repeated} is given more than once; give each seed once")
    for seed in (min(numbers), max(numbers)):
        if not 0 <= seed <= MAX_SEED:
            raise InvalidInput(f"`seeds = {seed}`: seeds are whole numbers from 0 to {MAX_SEED}")
    return numbers


def check_agent_count(count: int) -> None:
    """Refuse a table of more agents than any machine trains, before it is made."""
    if count > MAX_AGENTS:
        raise InvalidInput(f"{count:,} agents: at most {MAX_AGENTS:,} in one table; give fewer seeds or values")


def concat_agents(tables: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Tables of agents as one, with consecutive numbers."""
    return pl.concat(tables).with_columns(agent=pl.int_range(pl.len(), dtype=pl.Int64))


def populations(table: pl.DataFrame, family: Mapping[str, str] | None = None) -> list[pl.DataFrame]:
    """The rows that can share tensors: same environment, and the same algorithm but for the layer.

    `family` names the kind of each environment: those of one kind have the same settings and specs,
    and share populations. Where there is none, each environment is a kind of its own.

    DQN and IB-DQN are one population, because k = 0 is DQN; they have one network and one loss. The order of agents
    within a population is that of the table.
    """
    families = {env: env if family is None else family[env] for env in table["env"].unique()}
    keyed = table.with_columns(
        architecture=pl.col("algorithm").str.strip_prefix(LAYER_PREFIX),
        family=pl.col("env").replace_strict(families, return_dtype=pl.String),
    )
    return [
        group.drop("architecture", "family")
        for group in keyed.partition_by("family", "architecture", maintain_order=True)
    ]


def table_digest(table: pl.DataFrame) -> str:
    """The checksum of a table's values, whatever file it is in."""
    digest = hashlib.blake2b(b"[", digest_size=16)
    for i, rows in enumerate(table.iter_slices(10_000)):  # never all rows as Python's objects
        text = json.dumps(rows.to_dicts(), sort_keys=True)[1:-1]
        digest.update((f", {text}" if i else text).encode())
    digest.update(b"]")
    return digest.hexdigest()


def check_table(table: pl.DataFrame) -> None:
    """Refuse a table that `agent_table` cannot have made; run folders are untrusted."""
    wanted = {name: kind() for name, kind in SCHEMA.items()}
    if dict(table.schema) != wanted or table.null_count().sum_horizontal().item():
        raise InvalidInput("the table of agents has other columns than it should, or missing values")
    if not table.height or table["agent"].is_duplicated().any():
        raise InvalidInput("the table of agents is empty, or names an agent twice")
    for row in table.select("algorithm", "k", *PER_AGENT).unique().iter_rows(named=True):
        info_named(row.pop("algorithm"))
        _check_k(row.pop("k"))
        AgentSettings(**row)


def _check_k(k: float) -> None:
    if not (0 <= as_float("k", k) <= MAX_K):
        raise InvalidInput(f"`k = {exact(k)}`: write a finite number >= 0, at most 1e30")


def as_list(value: T | Iterable[T], name: str = "a list") -> list[T]:
    """One value, or several, as a list; a string is one. Messages call it `name`."""
    given: Any = value.tolist() if hasattr(value, "tolist") else value  # the elements of a tensor are tensors
    if isinstance(given, Iterable) and not isinstance(given, str):
        several = list(islice(given, MAX_SEEDS + 1))  # from Python, it may have no end
        if len(several) > MAX_SEEDS:
            raise InvalidInput(f"{name} has more than {MAX_SEEDS:,} values: give fewer")
        return several
    return [given]
