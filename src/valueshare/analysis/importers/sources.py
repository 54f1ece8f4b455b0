"""Which run folders and files of results there are at a path."""

import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path

from valueshare.analysis.importers.formats import read_evaluations, read_scores_txt
from valueshare.errors import InvalidInput
from valueshare.schema import CONFIG, read_config
from valueshare.text import shorten_list

FILES = {"scores.txt": read_scores_txt, "evaluations.npz": read_evaluations}
TABLES = (".csv", ".parquet")


def find_sources(path: Path) -> list[Path]:
    """The run folders and files at a path."""
    if path.is_file():
        if path.name in FILES or path.suffix in TABLES:
            return [path]
        kinds = ", ".join((*FILES, *TABLES))
        raise InvalidInput(f"{path} is not a file of results: give a run folder, or one of {kinds}")
    if not path.is_dir():
        raise InvalidInput(f"{path} does not exist: give a run folder or a file of results")
    if (path / "agents.parquet").is_file():
        return [path]
    refuse_tabular(path)
    if _is_training_run(path):
        return [path]  # without a table of agents: refused when it is read
    without_agents = (file.parent for file in path.rglob(CONFIG) if _is_training_run(file.parent))
    runs = sorted({*(file.parent for file in path.rglob("agents.parquet")), *without_agents})
    files = sorted(file for name in FILES for file in path.rglob(name))
    sources = [*runs, *files] or _tables(path)
    if not sources and (studies := _tabular_below(path)):
        names = shorten_list([str(study.relative_to(path)) for study in studies])
        first = f"valueshare report {shlex.quote(str(studies[0]))}"
        raise InvalidInput(f"{path} holds tabular studies ({names}), each with its own report: {first}")
    if not sources:
        raise InvalidInput(
            f"{path} holds no records: give a run folder, or one with {', '.join(FILES)} or a tidy CSV or Parquet"
        )
    return sources


def _is_training_run(folder: Path) -> bool:
    return (read_config(folder, skip_damaged=True) or {}).get("kind") == "training"


def refuse_tabular(folder: Path) -> None:
    """Refuse the folder of a tabular study: its records are of other columns."""
    if (read_config(folder, skip_damaged=True) or {}).get("kind") == "tabular":
        raise InvalidInput(f"{folder} is a tabular study: valueshare report {shlex.quote(str(folder))} shows it")


def _tabular_below(folder: Path) -> list[Path]:
    """The folders of the tabular studies in a folder; of one in shards, the folder of the shards."""
    configs = {file.parent: read_config(file.parent, skip_damaged=True) or {} for file in sorted(folder.rglob(CONFIG))}
    tabular = {path: values for path, values in configs.items() if values.get("kind") == "tabular"}
    return list(dict.fromkeys(path.parent if "shard" in values else path for path, values in tabular.items()))


def _tables(folder: Path) -> list[Path]:
    return sorted(file for file in folder.iterdir() if file.suffix in TABLES)


def tables_not_read(named_paths: Iterable[Path], sources: Sequence[Path]) -> list[str]:
    """Notes on tables beside runs: they may be anything, and are read only where they are named."""
    notes = []
    for folder in named_paths:
        beside = folder.is_dir() and not (folder / "agents.parquet").is_file()
        left = [file.name for file in _tables(folder) if file not in sources] if beside else []
        if left:
            notes.append(f"{folder}: beside runs, and not read unless named: {shorten_list(left)}")
    return notes
