"""The numbers of a report as plain JSON: those behind its figures, and the choices among swept settings."""

from typing import Any

import polars as pl
import polars.selectors as cs

from valueshare.analysis.tidy import RUN_COLUMNS
from valueshare.report import action_sets
from valueshare.report.data import ReportData
from valueshare.report.swept_settings import find_tuned, settings_map

METRICS = ("score", "overestimation", "relative_action_gap")
EVALUATION = (*RUN_COLUMNS, "agent", "step", "seconds", "episodes", *METRICS, "diverged_at")


def numbers(data: ReportData) -> dict[str, Any]:
    """Tables that the results allow: means by k, maps of two swept settings, gains against the number of actions."""
    tables: dict[str, Any] = {}
    if len(data.envs) == 1 and len(data.ks) > 2:
        tables["by_k"] = {name: finite_floats(data.by_k(name).table).to_dicts() for name in METRICS if data.has(name)}
    if chosen := find_tuned(data):
        tables["swept_settings"] = [
            {
                "env": choice.grid.env,
                "algorithm": choice.grid.algorithm,
                "settings": choice.grid.settings,
                "score": choice.grid.score,
                "cells": finite_floats(settings_map(choice.grid).cells).to_dicts(),
                "chosen": finite_floats(choice.table).to_dicts(),
                "pair": None if choice.pair is None else choice.pair._asdict(),
            }
            for choice in chosen
        ]
    if action_sets.has_action_sets(data):
        tables["action_sets"] = finite_floats(action_sets.gains_of(data).table).to_dicts()
    return tables


def evaluations(table: pl.DataFrame) -> pl.DataFrame:
    """A row per agent and evaluation, with the columns of a tidy table that are there."""
    return table.select(name for name in EVALUATION if name in table.columns)


def finite_floats(table: pl.DataFrame) -> pl.DataFrame:
    """The table with null for NaN and infinity, which JSON lacks."""
    return table.with_columns(pl.when(cs.float().is_finite()).then(cs.float()))
