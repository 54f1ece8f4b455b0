"""How to install what the package does without until it is needed."""

import shlex
import sys
from pathlib import Path

CLONE = Path(__file__).resolve().parents[2]  # the repository's, if the package runs from one


def install_command(*extras: str) -> str:
    """The command that installs these extras; in a clone, in the versions that it is tested with."""
    wanted = f"[{','.join(extras)}]"
    versions = CLONE / "constraints.txt"
    if not versions.is_file():
        return shlex.join(["pip", "install", f"valueshare{wanted}"])
    python, clone = _from_here(Path(sys.executable)), _from_here(CLONE)
    if "/" not in python:  # a shell would search its PATH for that name
        python = sys.executable
    words = ["-m", "pip", "install", "-c", _from_here(versions), "-e", f"{clone}{wanted}"]
    return shlex.join([python, *words])


def _from_here(path: Path) -> str:
    try:
        here = Path.cwd()
    except OSError:  # it was removed
        return str(path)
    return str(path.relative_to(here) if path.is_relative_to(here) else path)
