"""Curves of a run for TensorBoard and Weights & Biases: one per variant and measure, the mean over its agents.

Nothing is sent to Weights & Biases unless this very command asks for it: a run folder may come from somebody else.
"""

import json
import os
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import polars as pl

from valueshare.errors import InvalidInput, first_line
from valueshare.extras import importing
from valueshare.files import checksum
from valueshare.records import TENSORBOARD
from valueshare.runs.plan import Plan, to_config
from valueshare.runs.provenance import stored_provenance
from valueshare.runs.storage.remote import PROVENANCE
from valueshare.runs.variants import label, variant_columns

LOGGED_METRICS = ("score", "train_score", "overestimation", "action_gap", "relative_action_gap")
PROJECT = "valueshare"  # in Weights & Biases, unless WANDB_PROJECT names another
STEP = "step"


def require_tensorboard() -> Any:
    """The class that writes events, from an optional dependency."""
    with importing("TensorBoard", "tensorboard", ", or leave out `log = 'tensorboard'`"):
        return import_module("torch.utils.tensorboard").SummaryWriter


def require_wandb() -> Any:
    """The package of Weights & Biases, an optional dependency."""
    with importing("Weights & Biases", "wandb", ", or leave out `log = 'wandb'`"):
        return import_module("wandb")


class TensorBoardLog:
    """Writes the records of phases as events, and first those of a resumed run from before."""

    def __init__(self, folder: Path, agents: pl.DataFrame, records: pl.DataFrame) -> None:
        # Events from step 0 on replace those of earlier processes: an unfinished phase may have been reported, and runs
        # again.
        self._writer = require_tensorboard()(str(folder / TENSORBOARD), purge_step=0)
        self._curves = Curves(agents, records.clear())
        self.write(records)

    def close(self) -> None:
        self._writer.close()

    def write(self, records: pl.DataFrame) -> None:
        for curve, step, value in self._curves.points(records):
            self._writer.add_scalar(curve, value, step)
        self._writer.flush()


class WandbLog:
    """Writes the records of phases; a run that is there already continues, and a new one gets all records so far."""

    def __init__(
        self,
        folder: Path,
        plan: Plan,
        records: pl.DataFrame,
        stored: pl.DataFrame,
        say: Callable[[str], object],
    ) -> None:
        """`records` end at the last checkpoints; those `stored` beyond were sent already, and are made again."""
        library, settings = require_wandb(), to_config(plan)
        project = os.environ.get("WANDB_PROJECT") or PROJECT
        # A resumed or extended run is the same by its table of agents, and when it was started.
        identity = [settings["agents"], stored_provenance(folder / PROVENANCE).get("started")]
        run_id = checksum(json.dumps(identity).encode()).hexdigest()[:16]
        try:
            self._run: Any = library.init(config=settings, project=project, name=folder.name, id=run_id, resume="allow")
            # Populations run one after the other, so steps do not only grow: they are a metric, not W&B's own step.
            self._run.define_metric(STEP)
            self._run.define_metric("*", step_metric=STEP)
        except Exception as error:
            raise InvalidInput(
                f"Weights & Biases cannot begin ({first_line(error)}): write `wandb login`, set WANDB_MODE=offline, or "
                "leave out `log = 'wandb'`; the same command continues the run"
            ) from error
        self._say, self._works = say, True
        resumed = getattr(self._run, "resumed", False)
        self._curves = Curves(plan.agents, stored if resumed else records.clear())
        if not resumed:
            self.write(records)

    def write(self, records: pl.DataFrame) -> None:
        """Send the means of each variant; if that fails, training continues without it."""
        rows: dict[int, dict[str, float]] = {}
        for curve, step, value in self._curves.points(records):
            rows.setdefault(step, {})[curve] = value
        for step, values in sorted(rows.items()):
            self._try(partial(self._run.log, {STEP: step, **values}))

    def close(self) -> None:
        self._try(lambda: self._run.finish())

    def _try(self, call: Callable[[], object]) -> None:
        if not self._works:
            return
        try:
            call()
        except Exception as error:
            self._works = False
            self._say(f"note: Weights & Biases failed ({first_line(error)}): nothing more is sent there")


class Curves:
    """The points of all curves, each made once: when all agents of a variant, of any population, have their records."""

    def __init__(self, agents: pl.DataFrame, records: pl.DataFrame) -> None:
        """Points that `records` complete were made before, and are not made again."""
        self._columns, self._records = variant_columns(agents), records
        self._agents = agents.select("agent", *self._columns, pl.len().over(self._columns).alias("agents"))

    def points(self, records: pl.DataFrame) -> list[tuple[str, int, float]]:
        """Name, step and value of the points that `records` complete: means over the agents that have the measure."""
        earlier = self._records.join(records, on="step", how="semi")
        new = records.join(earlier, on=["agent", "step"], how="anti")  # a phase may run again
        self._records = pl.concat([self._records, new], rechunk=True)
        means = (
            pl.concat([earlier.with_columns(is_new=False), new.with_columns(is_new=True)])
            .join(self._agents, on="agent")
            .group_by(*self._columns, "step")
            .agg(pl.col(LOGGED_METRICS).mean(), pl.col("is_new").any(), complete=pl.len() == pl.col("agents").first())
            .filter("is_new", "complete")
            .sort(*self._columns, "step")
        )
        return [
            (f"{measure}/{row['env']} {label(row)}", row["step"], row[measure])
            for row in means.to_dicts()
            for measure in LOGGED_METRICS
            if row[measure] is not None
        ]
