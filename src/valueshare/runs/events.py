"""TensorBoard events of a run: one curve per variant and measure, the mean over its agents."""

from importlib import import_module
from pathlib import Path
from typing import Any

import polars as pl

from valueshare.extras import importing
from valueshare.records import TENSORBOARD
from valueshare.runs.variants import label, variant_columns

MEASURES = ("score", "train_score", "overestimation", "action_gap", "relative_action_gap")


def require_tensorboard() -> Any:
    """The class that writes events, from an optional dependency."""
    with importing("TensorBoard", "tensorboard", ", or leave out --log tensorboard"):
        return import_module("torch.utils.tensorboard").SummaryWriter


class Events:
    """Writes the records of phases, and first those of a resumed run from before."""

    def __init__(self, folder: Path, agents: pl.DataFrame, records: pl.DataFrame) -> None:
        # Events from step 0 on replace those of earlier processes: an unfinished phase may have been reported, and runs
        # again.
        self._writer = require_tensorboard()(str(folder / TENSORBOARD), purge_step=0)
        self._agents = agents
        self.write(records)

    def close(self) -> None:
        self._writer.close()

    def write(self, records: pl.DataFrame) -> None:
        for curve, step, value in curve_points(self._agents, records):
            self._writer.add_scalar(curve, value, step)
        self._writer.flush()


def curve_points(agents: pl.DataFrame, records: pl.DataFrame) -> list[tuple[str, int, float]]:
    """Name, step and value of every point: the mean over the agents of a variant, of each measure that it has."""
    columns = variant_columns(agents)
    means = (
        records.join(agents.select("agent", *columns), on="agent")
        .group_by(*columns, "step")
        .agg(pl.col(MEASURES).mean())
        .sort(*columns, "step")
    )
    return [
        (f"{measure}/{row['env']} {label(row)}", row["step"], row[measure])
        for row in means.to_dicts()
        for measure in MEASURES
        if row[measure] is not None
    ]
