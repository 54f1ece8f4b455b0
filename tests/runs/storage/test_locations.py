"""Locations of runs: folders and URLs, shown without secrets."""

import os
from pathlib import Path

import pytest

from valueshare.errors import InvalidInput
from valueshare.runs.storage.locations import Url, resolve_location


def test_where_a_run_can_be() -> None:
    assert resolve_location("file:///a/b") == resolve_location(Path("file:///a/b")) == Path("/a/b")
    assert resolve_location("runs/a:b") == Path("runs/a:b")
    assert resolve_location("C:/runs") == Path("C:/runs")
    for text, shown in (
        ("s3://bucket/runs/a/", "s3://bucket/runs/a"),
        ("S3://bucket/a", "s3://bucket/a"),
        ("hdfs:///user/a", "hdfs:///user/a"),
        ("local:///tmp/a", "local:///tmp/a"),
        ("abfs://box@account.dfs.core.windows.net/a", "abfs://box@account.dfs.core.windows.net/a"),
    ):
        assert str(resolve_location(text)) == shown
    for text in ("s3://bucket/a", "memory://run", "local:///tmp/a"):  # a path loses a slash
        assert resolve_location(Path(text)) == resolve_location(text)
    for text, message in (
        ("s3://", "not a location of a run: write s3://BUCKET/RUN"),
        ("s3:///a", "s3:///a is not a location of a run: write s3://BUCKET/RUN"),
        ("sftp:///a", "sftp:///a is not a location of a run: write sftp://HOST/RUN"),
        ("sftp://me:hunter2@/a", "sftp:///a is not a location of a run: write sftp://HOST/RUN"),
        ("sftp://:21/a", "sftp://:21/a is not a location of a run: write sftp://HOST/RUN"),
        ("simplecache::s3://bucket/a", "one URL, not a chain"),
        ("s3://bucket/a?token=hunter2", "cannot contain"),
    ):
        with pytest.raises(InvalidInput, match=message) as said:
            resolve_location(text)
        assert "hunter2" not in str(said.value)


def test_the_home_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    # A shell leaves --out=~/runs as it is, and so does Python.
    monkeypatch.setenv("HOME", "/home/somebody")
    assert resolve_location("~/runs/a") == Path("/home/somebody/runs/a")
    assert resolve_location(Path("~/runs")) == Path("/home/somebody/runs")
    assert resolve_location("~runs") == Path("~runs")  # the name of a folder


def test_a_name_that_is_not_utf8_is_refused() -> None:
    """Polars cannot write there."""
    name = os.fsdecode(b"run\xff")
    for folder in (name, Path(name), Path("Läufe") / name):
        with pytest.raises(InvalidInput, match=r"run\\udcff' has bytes that are not UTF-8: choose a folder with"):
            resolve_location(folder)
    assert resolve_location("Läufe/\U0001f3ae") == Path("Läufe/\U0001f3ae")


def test_an_address_is_shown_without_its_secrets() -> None:
    url = resolve_location("sftp://me:hunter2@host:21/runs/a")
    assert isinstance(url, Url)
    assert str(url / "records") == "sftp://host:21/runs/a/records"
    for shown in (repr(url), f"{url}", repr([url]), repr((url,))):
        assert "hunter2" not in shown
        assert "me" not in shown
    said = url.redact(f"no route to {url.full}; login me:hunter2 failed for hunter2")
    assert "hunter2" not in said
    assert "sftp://host:21/runs/a" in said
    coded = resolve_location("sftp://me:p%40ss@host")  # said as it is written, or as it is meant
    assert isinstance(coded, Url)
    assert coded.name == "host"  # it becomes a folder's name
    assert "ss" not in coded.redact("login p%40ss or p@ss")


def test_a_user_name_without_a_password_leaves_other_words_as_they_are() -> None:
    for secret in ("a", "a:"):
        url = Url(f"sftp://{secret}@host/run")
        said = url.redact(f"cannot read a file of {url.full}: {secret}@host has no path /data")
        assert said == "cannot read a file of sftp://host/run: host has no path /data"
    assert Url("s3://bucket/run").redact("me@host") == "me@host"
