"""The table of agents as it is: its checksum, and the populations that its rows form. Without PyTorch, for readers."""

import hashlib
import json
from collections.abc import Mapping

import polars as pl


def populations(table: pl.DataFrame, family: Mapping[str, str] | None = None) -> list[pl.DataFrame]:
    """The rows that can share tensors: same environment, same network and same loss.

    `family` names the kind of each environment: those of one kind have the same settings and specs,
    and share populations. Where there is none, each environment is a kind of its own.

    DQN and IB-DQN are one population, because k = 0 is DQN; Double DQN is another one, because
    its loss is. The order of agents within a population is that of the table.
    """
    families = {env: env if family is None else family[env] for env in table["env"].unique()}
    keyed = table.with_columns(
        architecture=pl.col("algorithm").str.strip_prefix("ib-"),  # tested to be that of `ALGORITHMS`
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
