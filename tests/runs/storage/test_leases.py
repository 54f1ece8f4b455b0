"""Leases: one driver per run at a URL."""

import time
from pathlib import Path
from threading import Event, Semaphore, Thread
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import structs

from valueshare.errors import InvalidInput
from valueshare.runs.storage import leases
from valueshare.runs.storage.leases import LEASE, leased
from valueshare.runs.storage.locations import Url
from valueshare.runs.storage.stores import Store, Unreachable


@pytest.mark.usefixtures("quick")
def test_a_second_driver_is_refused_and_a_third_is_not(url: Url) -> None:
    store, said = Store(url), list[str]()
    with leased(store, said.append) as lease:
        assert said == []
        with (  # it was seen to be renewed, or it would have run out
            pytest.raises(InvalidInput, match=f"{url} is being trained by another process"),
            leased(Store(url), said.append),
        ):
            pass
        assert not lease.lost
    assert LEASE not in store.sizes()
    assert len(said) == 1
    with leased(store, said.append):
        pass
    assert len(said) == 1


@pytest.mark.usefixtures("quick")
def test_a_lease_runs_out_when_its_owner_is_killed(url: Url) -> None:
    store = Store(url)
    leases.Lease(store).write()  # and never again
    began = time.monotonic()
    with leased(store, lambda line: None):
        assert time.monotonic() - began >= 1.0
    store.write(LEASE, b"")  # cut off while it was written: nothing is known of it
    damaged = leases._read(store)
    assert damaged is not None
    assert damaged.token == ""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(leases, "POLL_SECONDS", 0.0)
        looks = iter([damaged, damaged, structs.replace(damaged, token="x", beat=1)])
        patch.setattr(leases, "_read", lambda store: next(looks))
        with pytest.raises(InvalidInput, match="another process"):
            leases._wait_for(store, lambda line: None)
    values: dict[str, Any] = {"token": "x", "beat": 1, "seconds": 100, "renewed": 0}
    store.write(LEASE, str(values).replace("'", '"').encode())
    began = time.monotonic()
    with leased(store, lambda line: None):  # of 1970: no need to wait for 100 seconds
        assert time.monotonic() - began < 50


@pytest.mark.usefixtures("quick")
def test_a_lease_is_given_back_by_a_driver_that_is_stopped_while_it_takes_it(
    url: Url, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("time.sleep", stopped)
    with pytest.raises(KeyboardInterrupt), leased(Store(url), lambda line: None):
        pass
    assert LEASE not in Store(url).sizes()


@pytest.mark.usefixtures("quick")
def test_a_lease_outlives_a_store_that_fails_now_and_then(url: Url, monkeypatch: pytest.MonkeyPatch) -> None:
    """Renewing asks once and continues: with the pauses of other files it would be late."""
    read, asked = Store.read, list[bool]()

    def failing(self: Store, name: str, *, retry: bool = True) -> bytes | None:
        asked.append(retry)
        if len(asked) % 2:
            raise Unreachable(5, "throttled")
        return read(self, name, retry=retry)

    store = Store(url)
    with leased(store, lambda line: None) as lease:
        monkeypatch.setattr(Store, "read", failing)
        for _ in range(3_000):
            if len(asked) >= 4:
                break
            time.sleep(0.02)
        monkeypatch.undo()
        assert not lease.lost
        assert len(asked) >= 4
        assert not any(asked)
    assert LEASE not in store.sizes()


def test_each_thread_has_a_connection_of_its_own(tmp_path: Path) -> None:
    """As FTP's need it; local:// has one a thread as well."""
    store, found = Store(Url(f"local://{tmp_path}")), list[object]()
    thread = Thread(target=lambda: found.append(store._files))
    thread.start()
    thread.join()
    assert store._files is store._files
    assert found[0] is not store._files


@pytest.mark.usefixtures("quick")
def test_an_owner_that_was_silent_for_too_long_learns_of_it(url: Url) -> None:
    store = Store(url)
    with leased(store, lambda line: None) as lease:
        other = leases.Lease(store)
        other.write()
        for _ in range(3_000):
            time.sleep(0.02)
            if lease.lost:
                break
        assert lease.lost
    assert other.is_held()  # and its lease is not the first one's to give back


def test_an_owner_that_cannot_renew_stops_before_another_may_take_it(url: Url, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lease is anybody's after 60 seconds, and its owner stops 10 seconds before."""

    def unreachable(*_: object, **__: object) -> None:
        raise Unreachable(5, "no network")

    now = 1_000.0
    monkeypatch.setattr(leases, "time", SimpleNamespace(monotonic=lambda: now, time=time.time))
    lease = leases.Lease(Store(url))
    lease.write()
    now += 40
    lease.renew()
    with monkeypatch.context() as patch:
        patch.setattr(Store, "write", unreachable)
        now += 49
        lease.renew()
        assert not lease.lost
        now += 2
        lease.renew()
        assert lease.lost
    lease.renew()
    assert lease.lost  # for good: the run is being stopped


@pytest.mark.usefixtures("quick")
def test_of_two_at_the_same_moment_one_gets_it(url: Url) -> None:
    won, ready, refused = list[int](), Event(), Semaphore(0)

    def take(number: int) -> None:
        ready.wait()
        try:
            with leased(Store(url), lambda line: None):
                won.append(number)
                for _ in range(3):  # it keeps the lease until all others have asked
                    refused.acquire(timeout=20)
        except InvalidInput:
            refused.release()

    threads = [Thread(target=take, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    ready.set()
    for thread in threads:
        thread.join()
    assert len(won) == 1
