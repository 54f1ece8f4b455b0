"""The `config.json` of a run folder that a test has made by hand."""

import json
from pathlib import Path
from typing import Any

import polars as pl

from valueshare import __version__
from valueshare.population.agents import table_digest
from valueshare.schema import FORMAT


def write_config(folder: Path, settings: dict[str, dict[str, Any]], **others: Any) -> None:
    """A valid configuration of the agents in the folder, from settings by environment, with `others` in it."""
    values = {
        "format": FORMAT,
        "kind": "training",
        "valueshare": __version__,
        "settings": settings,
        "backends": dict.fromkeys(settings, "gymnasium"),
        "device": "cpu",
        "compile": False,
        "network": None,
        "agents": table_digest(pl.read_parquet(folder / "agents.parquet")),
    }
    (folder / "config.json").write_text(json.dumps(values | others))
