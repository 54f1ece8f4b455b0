"""The numbers of a report as plain JSON: those behind its figures, and the choices among swept settings."""

from collections.abc import Sequence
from typing import Any

import polars as pl
import polars.selectors as cs

from valueshare.analysis.tidy import AGENT_SETTINGS
from valueshare.report import action_sets
from valueshare.report.data import ReportData
from valueshare.report.swept_settings import HeldOutChoice, settings_map

METRICS = ("score", "overestimation", "relative_action_gap")
EVALUATION = (
    *("env", "algorithm", "k", *AGENT_SETTINGS, "optimizer", "seed", "agent", "step", "seconds", "episodes"),
    *(*METRICS, "diverged_at"),
)


def numbers(data: ReportData, chosen: Sequence[HeldOutChoice]) -> dict[str, Any]:
    """What a report has of them: means by k, maps of two swept settings, gains against the number of actions."""
    tables: dict[str, Any] = {}
    if len(data.envs) == 1 and len(data.ks) > 2:
        tables["by_k"] = {name: _rows(data.by_k(name).table) for name in METRICS if data.has(name)}
    if chosen:
        tables["swept_settings"] = [_choice(one) for one in chosen]
    if action_sets.has_action_sets(data):
        tables["action_sets"] = _rows(action_sets.gains_of(data).table)
    return tables


def evaluations(table: pl.DataFrame) -> pl.DataFrame:
    """A row per agent and evaluation, with the columns of a tidy table that are there."""
    return table.select(name for name in EVALUATION if name in table.columns)


def _choice(one: HeldOutChoice) -> dict[str, Any]:
    return {
        "env": one.grid.env,
        "algorithm": one.grid.algorithm,
        "settings": one.grid.settings,
        "score": one.grid.score,
        "cells": _rows(settings_map(one.grid).cells),
        "chosen": _rows(one.table),
        "pair": None if one.pair is None else one.pair._asdict(),
    }


def _rows(table: pl.DataFrame) -> list[dict[str, Any]]:
    """The rows of a table; JSON has no NaN and no infinity."""
    return table.with_columns(pl.when(cs.float().is_finite()).then(cs.float())).to_dicts()
