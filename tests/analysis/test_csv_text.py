"""Names in CSV files begin no spreadsheet formula, and are read back as they were."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from valueshare.analysis.csv_text import csv_text, without_guards
from valueshare.analysis.importers.results import read_results
from valueshare.report.figures.variants import find_variants
from valueshare.report.page.elements import asset
from valueshare.report.tables import ScoreTable, to_csv

EVIL = ["=HYPERLINK(A1)", "+1", "-1+cmd", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "'=1", "''-x"]
# What a spreadsheet may remove before it looks, and other signs that it may take for these.
EVIL += [
    " =1",
    "  \t@x",
    "\xa0=1",
    "\u3000+1",
    "\u200b=1",
    "\ufeff=1",
    "\u2060 -1",
    "\u202e=1",
    "\x00=1",
    "' =1",
    "\x0b=1",
]
EVIL += [f"{one}=1" for one in "\u3164\u115f\u1160\uffa0\u2800\u061c\ufe00\ufe0f\u180e"]
EVIL += ["＝1", "＋1", "－1", "＠x", " \u200b＝1", "﹦1"]
FINE = ["Pong", "'tis", "a=b", "IB-DQN(18)", "'", "ä", " Pong", " '=1", "−1", "日本", "a＝b"]


def test_text_is_guarded_and_numbers_are_not() -> None:
    table = pl.DataFrame({"=name": [*EVIL, *FINE], "x": [-1.5] * (len(EVIL) + len(FINE))})
    back = pl.read_csv(csv_text(table).encode())
    assert back.columns == ["'=name", "x"]
    assert back["'=name"].to_list() == [*(f"'{name}" for name in EVIL), *FINE]
    assert back["x"].to_list() == table["x"].to_list()
    assert without_guards(back).equals(table)


@given(st.lists(st.text("=+-@\t\r\n'a,\" \u200b\ufeff\xa0＝", min_size=1, max_size=5), min_size=1, max_size=5))
def test_the_way_back(names: list[str]) -> None:
    table = pl.DataFrame({"name": names}, {"name": pl.String})
    back = pl.read_csv(csv_text(table).encode(), schema={"name": pl.String})
    assert not any(re.match(r"[\t\r\n]|[\s\u200b\ufeff]*[=+\-@＝]", name) for name in back["name"])
    assert without_guards(back)["name"].to_list() == names


def test_a_table_of_scores() -> None:
    rows = pl.DataFrame({"env": ["=cmd|x"], "algorithm": ["@evil"], "k": [0.0], "score": [-3.5]})
    who = tuple(find_variants(rows))
    head, row = to_csv(ScoreTable(("=cmd|x",), who, ((-3.5,),))).splitlines()
    assert head.startswith("environment,'@evil")
    assert row == "'=cmd|x,-3.5"


def test_our_own_csv_is_read_with_the_names_as_they_were(tmp_path: Path) -> None:
    rows = [("=Env", "-algo", seed, step, -2.5) for seed in (0, 1) for step in (0, 10)]
    columns = ["env", "algorithm", "seed", "step", "score"]
    table = pl.DataFrame(rows, columns, orient="row")
    (tmp_path / "x.csv").write_text(csv_text(table))
    assert "'=Env,'-algo,0,0,-2.5" in (tmp_path / "x.csv").read_text()
    read = read_results(tmp_path / "x.csv").table
    assert read.select(columns).sort("seed", "step").rows() == rows


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not here")
def test_the_csv_of_the_page_is_guarded_alike() -> None:
    """The page's button writes a CSV in the browser."""
    found = re.search(r"const removed = .*?const quoted = [^;]*;", asset("elements.js"), re.DOTALL)
    assert found is not None
    program = f"{found[0]} console.log(JSON.stringify({json.dumps([*EVIL, *FINE])}.map(quoted)))"
    said = subprocess.run(["node", "-e", program], capture_output=True, text=True, check=True)
    wanted = [*(f"'{name}" for name in EVIL), *FINE]
    assert json.loads(said.stdout) == [f'"{name}"' for name in wanted]
