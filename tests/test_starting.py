"""What is printed before and after a run, and folders that are refused before anything is printed."""

from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from valueshare.population.settings import PER_AGENT
from valueshare.report.tables import FINAL
from valueshare.runs.run import Run
from valueshare.starting import summary
from valueshare.text import FINAL_SCORE, LAST_SCORE

Cli = Callable[..., tuple[int, str, str]]
TINY = (
    *("train", "--env", "CartPole-v1", "--steps", "60", "--eval-interval", "30", "--eval-episodes", "1"),
    *("--eval-episode-limit", "10", "--hidden", "8", "--batch-size", "4", "--learning-starts", "10", "--seeds", "1"),
)


def test_the_end_says_which_score_it_shows_in_the_words_of_the_report() -> None:
    """Agents 0 and 1 end with 10 and 20; before that they had 0."""
    agents = pl.DataFrame({"agent": [0, 1], "env": "CartPole-v1", "algorithm": "ib-dqn", "k": 4.0, "seed": [0, 1]})
    agents = agents.with_columns(pl.lit(0.1).alias(name) for name in PER_AGENT)
    records = pl.DataFrame(
        {"agent": [0, 0, 1, 1], "step": [50, 100] * 2, "score": [0.0, 10.0, 0.0, 20.0], "diverged_at": None}
    )
    lines = summary(Run(Path("run"), agents, records, finished=True))
    assert lines[0] == f"CartPole-v1 ib-dqn k=4: {LAST_SCORE} 15.0 (step 100, mean of 2 agents)"
    assert FINAL_SCORE in lines[-2]
    assert FINAL_SCORE in FINAL
    assert LAST_SCORE in FINAL


def test_a_plan_refuses_a_folder_as_the_run_would(tmp_path: Path, cli: Cli) -> None:
    words = (*TINY, "--out", tmp_path / "run")
    assert cli(*words, "--plan")[0] == 0
    assert not (tmp_path / "run").exists()
    assert cli(*words)[0] == 0
    for more in ((), ("--step-size", "0.01")):  # the run itself, finished, and another one
        refused = cli(*words, *more)
        assert refused[0] == 2
        assert cli(*words, *more, "--plan") == refused
    other = tmp_path / "notes"
    other.mkdir()
    (other / "mine.txt").write_text("x")
    assert cli(*TINY, "--out", other, "--plan") == cli(*TINY, "--out", other)


@pytest.mark.parametrize(("study", "run"), [("lunarlander", ""), ("atari-rmsprop", "dqn")])
def test_a_plan_of_a_study_refuses_the_folder_of_another_run(tmp_path: Path, cli: Cli, study: str, run: str) -> None:
    assert cli(*TINY, "--out", tmp_path / "out" / run)[0] == 0
    words = ("reproduce", study, "--scale", "smoke", "--out", tmp_path / "out")
    refused = cli(*words)
    assert refused[0] == 2
    assert "holds a run with other settings" in refused[2]
    assert cli(*words, "--plan") == refused
