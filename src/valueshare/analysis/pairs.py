"""Two algorithms side by side: the runs of both on their common environments."""

from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from valueshare.analysis.tidy import (
    CI95,
    Estimate,
    Selection,
    finite,
    group_values,
    require,
    select,
    selection_name,
)
from valueshare.errors import InvalidInput
from valueshare.text import shorten_list

Floats = NDArray[np.float64]
Sizes = NDArray[np.int64]


class PairSide(NamedTuple):
    """The runs of one algorithm, environment after environment. Shapes: [n], [S]."""

    values: Floats
    sizes: Sizes

    def by_env(self) -> list[Floats]:
        """The runs of each environment."""
        return np.split(self.values, np.cumsum(self.sizes)[:-1])


class Pair(NamedTuple):
    """The runs of x and of y on the environments that have values of both."""

    names: tuple[str, str]
    envs: list[str]  # [S]
    x: PairSide
    y: PairSide
    notes: tuple[str, ...]

    @property
    def varied(self) -> bool:
        """Whether resamples of both sides vary; otherwise an interval would be too narrow."""
        return bool(min(self.x.sizes.max(), self.y.sizes.max()) > 1)

    def estimate(self, numbers: dict[str, object]) -> Estimate:
        """One row: `x, y`, the numbers, `games, runs_x, runs_y`."""
        row = {"x": self.names[0], "y": self.names[1], **numbers, "games": len(self.envs)}
        row |= {"runs_x": len(self.x.values), "runs_y": len(self.y.values)}
        ends = dict.fromkeys(CI95, pl.Float64)
        return Estimate(pl.DataFrame([row], schema_overrides=ends), self.notes)


def paired(table: pl.DataFrame, x: Selection, y: Selection, column: str) -> Pair:
    """The runs of two algorithms; a row of the table is one run."""
    names, rows = _sides(table, x, y, column)
    envs = [set(side.drop_nulls(column)["env"]) for side in rows]
    shared = envs[0] & envs[1]
    if not shared:
        raise InvalidInput(f"{names[0]} and {names[1]} have no environment in common: compare others")
    notes = [
        f"left out, because {name} alone has them: {shorten_list(sorted(side_envs - shared))}"
        for name, side_envs in zip(names, envs, strict=True)
        if side_envs - shared
    ]
    both = [side.with_columns(pl.lit(name).alias("algorithm")) for name, side in zip(names, rows, strict=True)]
    groups = group_values(pl.concat(both).filter(pl.col("env").is_in(shared)), ("algorithm",), column)
    parts = [groups.table.filter(pl.col("algorithm") == name) for name in names]
    sides = [PairSide(*arrays(part)) for part in parts]
    return Pair(names, sorted(shared), sides[0], sides[1], (*notes, *groups.notes))


def shared_evaluations(table: pl.DataFrame, x: Selection, y: Selection, column: str = "score") -> Estimate:
    """The rows of x and y at the evaluations that both have, environment by environment.

    One may be far ahead of the other while they train, or evaluated more often: their curves are compared where both
    have a value of any run. Environments that share no evaluation are left out, and notes name what is removed.
    """
    names, rows = _sides(table, x, y, column)
    points = [side.drop_nulls(column).select("env", "step").unique() for side in rows]
    shared = points[0].join(points[1], on=["env", "step"])
    every = pl.concat(points).unique().group_by("env").agg(pl.len().alias("all"))
    kept = shared.group_by("env").agg(pl.len().alias("kept"))
    in_both = every.filter(*(pl.col("env").is_in(side_points["env"].implode()) for side_points in points))
    cut = in_both.join(kept, on="env", how="left").with_columns(pl.col("kept").fill_null(0))
    cut = cut.filter(pl.col("kept") < pl.col("all")).sort("env")
    notes = []
    if not cut.is_empty():
        counts = [f"{env} {few:,} of {most:,}" for env, most, few in cut.iter_rows()]
        notes.append(
            f"{names[0]} and {names[1]} are compared at the evaluations that both have: {shorten_list(counts)}"
        )
    kept = pl.concat(rows).join(shared, on=["env", "step"], how="semi", maintain_order="left")
    return Estimate(kept, tuple(notes))


def arrays(cell: pl.DataFrame) -> tuple[Floats, Sizes]:
    """Values and sizes of a table of one cell. Shapes: [n], [S]."""
    return cell["values"][0].to_numpy(), cell["sizes"][0].to_numpy()


def _sides(table: pl.DataFrame, x: Selection, y: Selection, column: str) -> tuple[tuple[str, str], list[pl.DataFrame]]:
    require(table, "env", "seed", column)
    names = selection_name(x), selection_name(y)
    if names[0] == names[1]:
        raise InvalidInput(f"{names[0]} is compared with itself: name two different ones")
    return names, [finite(select(table, selection), column) for selection in (x, y)]
