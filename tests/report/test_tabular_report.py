"""A tabular study that is drawn again from its files."""

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from valueshare.cli.report import report
from valueshare.errors import InvalidInput
from valueshare.report.tabular import headlines


def test_a_tabular_study_is_drawn_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    study = tmp_path / "study"
    (study / "records").mkdir(parents=True)
    rows = [
        {"step_reward": None, "regime": 500, "k": k, "increase_percent": 10 * k, "ci95_low": 0.0}
        | {"ci95_high": 20.0, "best_step_size": 0.1, "mean_episodes": 3.0}
        for k in (0.0, 1.0)
    ]
    (study / "config.json").write_text('{"kind": "tabular"}')
    summary = {"figure": rows, "figure_held_out": rows, "notes": ["read me"]}
    (study / "summary.json").write_text(json.dumps(summary))
    norms: dict[str, list[Any]] = {"step_reward": [None], "k": [1.0], "step": [0]}
    names = ("norm_q", "norm_u", "norm_z")
    norms |= {name: [1.0] for name in (*names, *(f"{n}_error" for n in names))}
    pl.DataFrame(norms, schema_overrides={"step_reward": pl.Float64}).write_parquet(study / "records" / "norms.parquet")
    report((study,), figures=("increase",))
    assert (study / "report" / "figures" / "increase.svg").is_file()
    assert "note: read me" in capsys.readouterr().out
    for name in ("iqm", "iqn"):
        with pytest.raises(InvalidInput, match="this study has increase, norms"):
            report((study,), figures=(name,))
    with pytest.raises(InvalidInput, match="report it alone"):
        report((study, study))
    with pytest.raises(InvalidInput, match="it has no verdict for --compare"):
        report((study,), compare=("a,b",))
    # No checksum covers the summary: what does not fit is refused, by `tabular` as well.
    first, second = rows
    for changed in (
        summary | {"figure": [first | {"k": "1"}, second]},
        summary | {"figure": [first | {"regime": -1}, second]},
        summary | {"figure": [first | {"ci95_low": float("inf")}, second]},
        summary | {"figure": [first]},
        summary | {"figure": []},
        summary | {"notes": 5},
        {name: value for name, value in summary.items() if name != "figure_held_out"},
    ):
        (study / "summary.json").write_text(json.dumps(changed))
        for read in (lambda: report((study,)), lambda: headlines(study)):
            with pytest.raises(InvalidInput, match=r"study is damaged \(.*\): run its study again"):
                read()
    (study / "summary.json").unlink()
    with pytest.raises(InvalidInput, match="damaged"):
        report((study,))
    (study / "summary.json").write_text(json.dumps(summary))
    pl.DataFrame(norms | {"k": ["one"]}).write_parquet(study / "records" / "norms.parquet")
    with pytest.raises(InvalidInput, match=r"study is damaged \("):
        report((study,))
