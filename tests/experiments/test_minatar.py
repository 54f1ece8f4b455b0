"""The MinAtar study: its table, its options, the smoke scale from command to page, and reports on DQN's scale."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from undrawn import undrawn

from valueshare.analysis.importers.results import Results
from valueshare.cli import main
from valueshare.envs.minatar import MINATAR_GAMES
from valueshare.errors import InvalidInput
from valueshare.experiments.study import make_study
from valueshare.population.presets import minatar
from valueshare.report.data import report_data
from valueshare.report.figure_registry import draw_figures
from valueshare.report.findings import compare_all


def test_the_small_scale_is_ten_seeds_of_eight_agents_on_five_games() -> None:
    (plan,) = make_study("minatar", "small").runs.values()
    settings = plan.settings["Breakout-MinAtar"]
    assert plan.agents.height == 8 * 5 * 10
    assert settings == minatar().settings
    assert settings.steps == 1_000_000
    assert plan.agents["env"].unique().sort().to_list() == [f"{game}-MinAtar" for game in MINATAR_GAMES]
    assert plan.agents.select("algorithm", "k").unique(maintain_order=True).rows() == [
        *(("dqn", 0.0), ("double-dqn", 0.0), ("dueling-dqn", 0.0), ("ib-dqn", 1.0), ("ib-dqn", 6.0)),
        *(("rdq", 0.0), ("iqn", 0.0), ("ib-iqn", 6.0)),
    ]
    assert set(plan.agents.select("algorithm", "step_size").iter_rows()) == {
        *((name, 5e-4) for name in ("dqn", "double-dqn", "ib-dqn", "rdq", "iqn", "ib-iqn")),
        ("dueling-dqn", 2.5e-4),
    }
    assert plan.agents["agent"].to_list() == list(range(400))
    (full,) = make_study("minatar", "full").runs.values()
    assert (full.agents.height, full.settings["Breakout-MinAtar"].steps) == (8 * 5 * 30, 5_000_000)


def test_the_numbers_of_actions_are_stored_so_that_k_may_be_n() -> None:
    for name, scale in (("minatar", "smoke"), ("lunarlander", "smoke"), ("lunarlander-actions", "small")):
        (plan,) = make_study(name, scale).runs.values()
        # As the environments themselves have them; the small study's bins are 3, 7 and 15 per engine.
        counts = {"LunarLander-v3": 4, **{f"LunarLanderContinuous-v3-bins{n}x{n}": n * n for n in (3, 7, 15)}}
        assert plan.actions == {env: counts.get(env, 6) for env in plan.agents["env"].unique()}


def test_step_sizes_are_tried_on_other_seeds() -> None:
    sizes = (1e-4, 1e-3)
    study = make_study(
        "minatar", "small", env=["breakout"], algorithm=["iqn"], step_size=sizes, seeds=3, first_seed=100
    )
    (plan,) = study.runs.values()
    assert sorted(plan.agents.select("step_size", "seed").iter_rows()) == [
        (s, n) for s in sizes for n in (100, 101, 102)
    ]
    assert plan.agents["env"].unique().to_list() == ["Breakout-MinAtar"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"env": ["Pong"]}, "no MinAtar game 'Pong': write one of Asterix"),
        ({"algorithm": ["sarsa"]}, "there is no algorithm 'sarsa': write one of dqn"),
        ({"algorithm": ["ib-double-dqn"]}, "the study has no ib-double-dqn: write one of dqn"),
        ({"seeds": 0}, "`seeds = 0`: write a number >= 1"),
        ({"first_seed": -1}, "first_seed = -1"),
        ({"first_seed": 2**63, "seeds": 2}, f"write a whole number from 0 to {2**63 - 2}"),
        ({"steps": 0}, "steps = 0"),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message) as refusal:
        make_study("minatar", "small", **options)
    assert "\n" not in str(refusal.value)


def test_from_the_command_to_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [
        "reproduce",
        "minatar",
        "--scale",
        "smoke",
        "--algorithm",
        "dqn",
        "ib-dqn",
        "--out",
        str(tmp_path / "run"),
    ]
    main(words)
    out = capsys.readouterr().out
    assert "12 agents in 1 population" in out  # 3 agents x 2 games x 2 seeds share tensors
    assert "Of 2 comparisons with DQN" in out
    assert (tmp_path / "run" / "report" / "report.html").is_file()
    records = pl.read_parquet(tmp_path / "run" / "records" / "*.parquet")
    assert records["step"].unique().sort().to_list() == [0, 60, 120]
    with undrawn():
        main(words)  # finished already
    assert "Of 2 comparisons with DQN" in capsys.readouterr().out


def results() -> Results:
    """Two games with different scales; IB-DQN(6) ends with twice DQN's gain in both."""
    rng, rows = np.random.default_rng(0), []
    for env, low, gain in (("Breakout-MinAtar", 0.5, 10.0), ("Seaquest-MinAtar", 2.0, 100.0)):
        for algorithm, k, factor in (("dqn", 0.0, 1.0), ("ib-dqn", 6.0, 2.0)):
            for seed in range(5):
                for step in range(5):
                    score = low + factor * gain * step / 4 * (1 + 0.02 * rng.standard_normal())
                    rows.append((env, algorithm, k, seed, 1_000 * step, score))
    names = ["env", "algorithm", "k", "seed", "step", "score"]
    return Results(pl.DataFrame(rows, names, orient="row"), (), ())


def test_games_are_averaged_on_dqns_scale() -> None:
    data = report_data(results(), 500)
    (comparison,) = compare_all(data).comparisons
    assert comparison.x.style.label == "IB-DQN(n)"
    assert comparison.quantity == "IQM of the DQN-normalized AUC"
    # DQN's final score is the mean of steps 2,000 to 4,000: 3/4 of its gain. Its AUC is 1/2 of the gain, so 2/3.
    assert comparison.values == pytest.approx((4 / 3, 2 / 3), abs=0.05)
    assert comparison.direction == 1
    drawn = {one.name: one for one in draw_figures(data, ("iqm", "performance-profile", "auc-change"))}
    assert drawn["iqm"].figure.axes[0].get_ylabel() == "IQM of the DQN-normalized score"
    assert "DQN-normalized score" in drawn["performance-profile"].caption
    assert any("1 the mean final score of DQN" in note for note in drawn["auc-change"].notes)
