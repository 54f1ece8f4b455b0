"""Weights & Biases as a target of a run's curves: the same as TensorBoard's, one per variant and measure.

Nothing is sent unless it was asked for in this very command: a run folder may come from somebody else.
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
from valueshare.runs.events import curve_points
from valueshare.runs.plan import Plan, config
from valueshare.runs.provenance import stored_provenance
from valueshare.runs.storage.remote import PROVENANCE

PROJECT = "valueshare"  # unless WANDB_PROJECT names another
STEP = "step"


def require_wandb() -> Any:
    """The package, an optional dependency."""
    with importing("Weights & Biases", "wandb", ", or leave out --log wandb"):
        return import_module("wandb")


class WandbLog:
    """Writes the records of phases; a run that is there already continues, and a new one gets all records so far."""

    def __init__(self, folder: Path, plan: Plan, records: pl.DataFrame, say: Callable[[str], object]) -> None:
        library, settings = require_wandb(), config(plan)
        project = os.environ.get("WANDB_PROJECT") or PROJECT
        run_options = {"project": project, "name": folder.name, "id": run_id(folder, settings), "resume": "allow"}
        try:
            self._run: Any = library.init(config=settings, **run_options)
            # Populations run one after the other, so steps do not only grow: they are a metric, not W&B's own step.
            self._run.define_metric(STEP)
            self._run.define_metric("*", step_metric=STEP)
        except Exception as error:
            raise InvalidInput(
                f"Weights & Biases cannot begin ({first_line(error)}): write `wandb login`, set WANDB_MODE=offline, or "
                "leave out --log wandb; the same command continues the run"
            ) from error
        self._agents, self._say, self._works = plan.agents, say, True
        if not getattr(self._run, "resumed", False):
            self.write(records)

    def write(self, records: pl.DataFrame) -> None:
        """Send the means of each variant; if that fails, training continues without it."""
        rows: dict[int, dict[str, float]] = {}
        for curve, step, value in curve_points(self._agents, records):
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


def run_id(folder: Path, settings: dict[str, Any]) -> str:
    """The name by which a resumed or extended run is the same: of its table of agents, and when it was started."""
    started = stored_provenance(folder / PROVENANCE).get("started")
    return checksum(json.dumps([settings["agents"], started]).encode()).hexdigest()[:16]
