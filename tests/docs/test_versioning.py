"""Versions agree in all files, and docs/versioning.md says what the package does with run folders of other formats."""

import re
import runpy
import tomllib
from datetime import date
from pathlib import Path

import pytest

import valueshare
from valueshare.errors import InvalidInput
from valueshare.schema import FORMAT, check_format

ROOT = Path(__file__).parents[2]


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


PAGE = read("docs/versioning.md")


def test_the_format() -> None:
    assert f'`"format": {FORMAT}`' in PAGE
    rows = ["\n| this one | 0.2.0 and later | reads", "\n| lower |", "\n| higher |"]
    assert all(row in PAGE for row in rows)


@pytest.mark.parametrize(("name", "found", "version"), [("old", FORMAT - 1, "0.1.0"), ("new", FORMAT + 1, "0.3.0")])
def test_what_another_format_gets(name: str, found: int, version: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        check_format(Path("runs") / name, {"format": found, "valueshare": version})
    assert f"    valueshare: {refused.value}\n" in PAGE


@pytest.mark.parametrize("version", ["\x1b[2J", "x" * 1_000, 7, None])
def test_a_version_that_is_none_is_not_shown(version: object) -> None:
    with pytest.raises(InvalidInput, match=rf"^run was written by a newer version, in run-folder format {FORMAT + 1};"):
        check_format(Path("run"), {"format": FORMAT + 1, "valueshare": version})


def test_one_version_and_date_in_all_files() -> None:
    dates = re.findall(rf"^## {re.escape(valueshare.__version__)} \((.+)\)$", read("CHANGELOG.md"), re.MULTILINE)
    (version,) = re.findall(r"^version: (.+)$", read("CITATION.cff"), re.MULTILINE)
    assert version == valueshare.__version__
    assert re.findall(r"^date-released: (.+)$", read("CITATION.cff"), re.MULTILINE) == dates
    assert [date.fromisoformat(day) for day in dates], "no dated section of this version"
    assert f"| this one | {version} and later |" in PAGE
    assert tomllib.loads(read("pyproject.toml"))["project"]["dynamic"] == ["version"]  # from _version.py


def test_every_extra_is_tried_before_a_release() -> None:
    extras = tomllib.loads(read("pyproject.toml"))["project"]["optional-dependencies"]
    assert set(runpy.run_path(str(ROOT / "tools" / "release_check.py"))["USES"]) == set(extras)
