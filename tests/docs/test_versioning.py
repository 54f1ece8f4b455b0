"""docs/versioning.md says what the package does: the format of run folders, and the lines that others get."""

from pathlib import Path

import pytest

from valueshare.errors import InvalidInput
from valueshare.schema import FORMAT, check_format

PAGE = (Path(__file__).parents[2] / "docs" / "versioning.md").read_text(encoding="utf-8")


def test_the_format() -> None:
    assert f'`"format": {FORMAT}`' in PAGE
    rows = [f"\n| {FORMAT} | 0.2.0.dev0 and later | reads", f"\n| 1 to {FORMAT - 1} |", f"\n| {FORMAT + 1} and later |"]
    assert all(row in PAGE for row in rows)


@pytest.mark.parametrize(("name", "found", "version"), [("old", FORMAT - 1, "0.1.0"), ("new", FORMAT + 1, "0.3.0")])
def test_what_another_format_gets(name: str, found: int, version: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        check_format(Path("runs") / name, {"format": found, "valueshare": version})
    assert f"    valueshare: {refused.value}\n" in PAGE
