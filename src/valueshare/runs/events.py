"""TensorBoard events of a run: one curve a group and measure, the mean over its agents."""

from importlib import import_module
from pathlib import Path
from typing import Any

import polars as pl

from valueshare.errors import InvalidInput
from valueshare.extras import install_command
from valueshare.records import TENSORBOARD
from valueshare.runs.groups import group_columns, label

MEASURES = ("score", "train_score", "overestimation", "action_gap", "relative_action_gap")


def require_tensorboard() -> Any:
    """The class that writes events, from the extra that has it."""
    try:
        return import_module("torch.utils.tensorboard").SummaryWriter
    except ImportError as missing:
        raise InvalidInput(
            f"TensorBoard is not installed: {install_command('tensorboard')}, or leave out "
            "--tensorboard"
        ) from missing


class Events:
    """Writes what phases report, and first what a resumed run reported before."""

    def __init__(self, folder: Path, agents: pl.DataFrame, records: pl.DataFrame) -> None:
        # Events from step 0 on replace those of earlier processes: a phase that was cut off may
        # have been reported, and is run again.
        self._writer = require_tensorboard()(str(folder / TENSORBOARD), purge_step=0)
        self._agents = agents
        self._write(records)

    def on_phase(self, records: pl.DataFrame) -> None:
        self._write(records)

    def close(self) -> None:
        self._writer.close()

    def _write(self, records: pl.DataFrame) -> None:
        columns = group_columns(self._agents)
        means = (
            records.join(self._agents.select("agent", *columns), on="agent")
            .group_by(*columns, "step")
            .agg(pl.col(MEASURES).mean())
            .sort(*columns, "step")
        )
        for row in means.to_dicts():
            for measure in MEASURES:
                if row[measure] is not None:
                    curve = f"{measure}/{row['env']} {label(row)}"
                    self._writer.add_scalar(curve, row[measure], row["step"])
        self._writer.flush()
