"""The examples of docs/statistics.md run, and answer what they say."""

import re
from pathlib import Path
from typing import Any

import polars as pl
import pytest

PAGE = Path(__file__).parents[2] / "docs" / "statistics.md"


@pytest.fixture(scope="module")
def names() -> dict[str, Any]:
    """The names that the page's examples have defined by its end; the first one needs a run folder."""
    _, *blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    defined: dict[str, Any] = {}
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), defined)
    return defined


def test_the_examples_answer_what_the_page_says(names: dict[str, Any]) -> None:
    assert names["iqm"]([0.0, 1.0, 2.0, 30.0]) == 1.5
    assert names["reached"].step == 3_000
    assert names["reached"].fraction == 0.75
    assert names["estimate"].table.columns == [
        *("algorithm", "k", "value", "ci95_low", "ci95_high", "games", "runs", "left_out")
    ]


def test_every_public_name_has_an_example() -> None:
    import valueshare.analysis as analysis

    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    calls = set(re.findall(r"(\w+)\(", "\n".join(blocks)))
    types = {"Results", "Estimate"}
    assert set(analysis.__all__) - types <= calls
    assert all(getattr(analysis, name) is not None for name in analysis.__all__)
    assert set(analysis.__all__) <= set(dir(analysis))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = analysis.nothing


def test_the_published_iqm_is_what_the_page_says(names: dict[str, Any]) -> None:
    text = " ".join(PAGE.read_text(encoding="utf-8").split())
    published: pl.DataFrame = names["published"]
    for (agent,), own in published.group_by("algorithm"):
        level = names["iqm"](own["human_normalized"].to_numpy())
        assert f"{agent} {level:.2f}" in text
