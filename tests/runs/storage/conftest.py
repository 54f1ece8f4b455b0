"""A URL for tests of storage, and leases that expire soon."""

from collections.abc import Iterator
from importlib import import_module

import pytest

from valueshare.runs.storage import leases
from valueshare.runs.storage.locations import Url


@pytest.fixture
def url() -> Iterator[Url]:
    """A URL in memory, empty before and after."""
    found = Url("memory://somewhere/run")
    files = import_module("fsspec").filesystem("memory")
    yield found
    if files.exists("/somewhere"):
        files.rm("/somewhere", recursive=True)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leases are renewed after 50 ms and expire after a second."""
    for name, seconds in (("RENEW", 0.05), ("LEASE", 1.0), ("SETTLE", 0.05), ("POLL", 0.02)):
        monkeypatch.setattr(leases, f"{name}_SECONDS", seconds)
