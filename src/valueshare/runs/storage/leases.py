"""Leases of runs at URLs: stores have no locks, so the one driver of a run renews a lease.

The lease is a small file that its owner writes again every `RENEW_SECONDS`. A process that finds one waits. If the file
changes, the process is refused; if it stays the same for `LEASE_SECONDS`, the owner has ended and the process takes the
lease. An owner that could not renew it stops before that. Clocks of machines are compared only for a lease that is an
hour old. Of two processes that take it at once, the last one to write has it.
"""

import json
import math
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Event, Thread

from valueshare.errors import InvalidInput
from valueshare.runs.storage.stores import Store, Unreachable
from valueshare.schema import StoredLease, validate_as

LEASE = "lease.json"
RENEW_SECONDS = 10.0
LEASE_SECONDS = 60.0
SETTLE_SECONDS = 2.0
POLL_SECONDS = 1.0
LONG_AGO_SECONDS = 3_600.0  # more than clocks are apart


class Lease:
    """A lease that this process holds while it renews it."""

    def __init__(self, store: Store) -> None:
        self._store, self._token, self._beat = store, secrets.token_hex(8), 0
        self._written, self._lost = time.monotonic(), False

    @property
    def lost(self) -> bool:
        """Whether this process did not renew it in time: another one has taken it, or soon may."""
        self._lost = self._lost or time.monotonic() - self._written > LEASE_SECONDS - RENEW_SECONDS
        return self._lost

    def write(self, *, retry: bool = False) -> None:
        self._beat += 1
        began = time.monotonic()  # another process may see it from now on
        now = round(time.time())
        values = {"token": self._token, "beat": self._beat, "seconds": LEASE_SECONDS, "renewed": now}
        self._store.write(LEASE, json.dumps(values).encode(), retry=retry)
        self._written = began

    def is_held(self, *, retry: bool = False) -> bool:
        stored = _read(self._store, retry=retry)
        return stored is not None and stored.token == self._token

    def renew(self) -> None:
        """Write the lease again; a store that fails for a moment is not an error."""
        with suppress(Unreachable):
            if self.is_held():
                self.write()
            else:
                self._lost = True

    def release(self) -> None:
        if not self.lost and self.is_held():
            self._store.delete(LEASE)


@contextmanager
def leased(store: Store, on_note: Callable[[str], None]) -> Iterator[Lease]:
    """Hold the run at a URL while it is written to; refused where another process does."""
    _wait_for(store, on_note)
    lease, ended = Lease(store), Event()

    def renew() -> None:
        while not ended.wait(RENEW_SECONDS) and not lease.lost:
            lease.renew()

    thread = Thread(target=renew, daemon=True)
    try:
        lease.write(retry=True)
        time.sleep(SETTLE_SECONDS)
        if not lease.is_held(retry=True):
            raise _refusal(store)
        thread.start()
        yield lease
    finally:
        ended.set()
        if thread.ident is not None:  # it was started
            thread.join()
        with suppress(Unreachable):  # then it expires
            lease.release()


def remove_abandoned(store: Store, on_note: Callable[[str], None]) -> None:
    """Delete the lease of a process that was killed, and what is left of its uploads; nothing if it is alive."""
    with suppress(InvalidInput, Unreachable):
        if _read(store) is not None:
            _wait_for(store, on_note)
            store.delete(LEASE)
            store.delete_partial_files()


def _wait_for(store: Store, on_note: Callable[[str], None]) -> None:
    """Wait until the lease that is there, if any, is released or has expired."""
    first = _read(store)
    if first is None or time.time() - first.renewed > LONG_AGO_SECONDS:
        return
    deadline = time.monotonic() + first.seconds
    on_note(f"{store.url} has a lease: waiting up to {first.seconds:.0f} s to see whether its owner is alive")
    while time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
        now = _read(store)
        if now is None:
            return
        if now != first:
            raise _refusal(store)


def _refusal(store: Store) -> InvalidInput:
    return InvalidInput(f"{store.url} is being trained by another process: wait for it to finish")


def _read(store: Store, *, retry: bool = True) -> StoredLease | None:
    """The lease, of nobody where it is incomplete or damaged; None where there is none."""
    text = store.read(LEASE, retry=retry)
    if text is None:
        return None
    try:
        return validate_as(json.loads(text), StoredLease)
    except ValueError:
        return StoredLease(token="", beat=0, seconds=LEASE_SECONDS, renewed=math.inf)
