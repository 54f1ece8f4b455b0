"""The origin of a result: version, commit, machine and libraries; no paths, no environment."""

import platform
import subprocess
from contextlib import suppress
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from valueshare._version import __version__
from valueshare.cores import available_cores
from valueshare.schema import Invalid, read_object

DEVIATIONS = "deviations"  # how a study deviates from what is published, one sentence each
LIBRARIES = ("numpy", "numba", "polars", "torch", "gymnasium", "envpool", "ale-py", "jax", "gymnax", "matplotlib")


def stored_provenance(file: Path) -> dict[str, Any]:
    """The content of a run's `provenance.json`; empty where it cannot be read, since no number depends on it."""
    try:
        return read_object(file)
    except (OSError, Invalid):
        return {}


def provenance(command: str) -> dict[str, Any]:
    """Everything needed to reproduce a result; `command` holds no paths."""
    return {
        "command": command,
        "valueshare": __version__,
        "commit": source_commit(),
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "machine": machine(),
        "libraries": library_versions(),
    }


def library_versions() -> dict[str, str]:
    """Versions of the installed libraries, found without importing them."""
    versions = {}
    for name in LIBRARIES:
        with suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return versions


def machine() -> dict[str, Any]:
    return {
        "system": platform.system(),
        "architecture": platform.machine(),
        "processor": _processor(),
        "cores": available_cores(),
    }


def machine_line() -> str:
    """The machine in one line, as benchmarks print it."""
    about = machine()
    return f"{about['processor']}, {about['cores']} cores, {about['system']} {about['architecture']}"


def source_commit() -> str | None:
    """The commit of the source tree this package runs from, marked if the tree has changes."""
    if _git("ls-files", "--error-unmatch", "_version.py") is None:
        return None  # installed somewhere inside another project's repository
    commit, changes = _git("rev-parse", "HEAD"), _git("status", "--porcelain", "--", ".")
    return None if commit is None else commit + ("+changes" if changes else "")


def _git(*arguments: str) -> str | None:
    """The output of a git command in the package's folder; None where it fails."""
    command = ["git", "-C", str(Path(__file__).parents[1]), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
