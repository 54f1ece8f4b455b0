"""Optional dependencies, which the package does without until they are needed: how to install them."""

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from valueshare.errors import InvalidInput
from valueshare.host_memory import refuse_without_memory

CLONE = Path(__file__).resolve().parents[2]  # the repository's, if the package runs from one


@contextmanager
def importing(library: str, extra: str, instead: str = "") -> Iterator[None]:
    """If the import of a library fails, say how to install it, and what else to do."""
    try:
        yield
    except ImportError as missing:
        refuse_without_memory(library, missing)
        raise InvalidInput(f"{library} is not installed: {install_command(extra)}{instead}") from missing


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
