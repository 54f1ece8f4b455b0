"""An address for tests of storage."""

from collections.abc import Iterator
from importlib import import_module

import pytest

from valueshare.runs.storage.locations import Url


@pytest.fixture
def url() -> Iterator[Url]:
    """An address in memory, empty before and after."""
    found = Url("memory://somewhere/run")
    files = import_module("fsspec").filesystem("memory")
    yield found
    if files.exists("/somewhere"):
        files.rm("/somewhere", recursive=True)
