"""What is printed before and after a run, and folders that are refused."""

import shlex
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from replaced_options import replaced

from valueshare.cli import make_app
from valueshare.errors import InvalidInput
from valueshare.population.settings import PER_AGENT
from valueshare.report.tables import FINAL
from valueshare.runs.planning import make_plan
from valueshare.runs.run_folder import UsedOptions, create_run_folder, refuse_existing_run
from valueshare.runs.variants import summary
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
    lines = summary(agents, records)
    assert lines[0] == f"CartPole-v1 ib-dqn k=4: {LAST_SCORE} 15.0 (step 100, mean of 2 agents)"
    one = summary(agents, records.with_columns(score=pl.when(pl.col("agent") == 0).then("score")))  # agent 1 has none
    assert one[0] == f"CartPole-v1 ib-dqn k=4: {LAST_SCORE} 10.0 (step 100, mean of 1 of 2 agents)"
    behind = summary(agents, records.head(3))  # agent 1 ended at step 50, with 0: (10 + 0) / 2
    assert behind[0] == f"CartPole-v1 ib-dqn k=4: {LAST_SCORE} 5 (steps 50 to 100, mean of 2 agents)"
    assert FINAL_SCORE in lines[-1]
    assert FINAL_SCORE in FINAL
    assert LAST_SCORE in FINAL


def test_a_plan_is_printed_with_a_note_on_a_folder_that_the_run_would_refuse(tmp_path: Path, cli: Cli) -> None:
    words = (*TINY, "--out", tmp_path / "run")
    assert cli(*words, "--plan")[0] == 0
    assert not (tmp_path / "run").exists()
    assert cli(*words)[0] == 0
    other = tmp_path / "notes"
    other.mkdir()
    (other / "mine.txt").write_text("x")
    # The run itself, finished; another one; and something else.
    for taken in (words, (*words, "--step-size", "0.01"), (*TINY, "--out", other)):
        code, _, err = cli(*taken)
        assert code == 2
        code, out, nothing = cli(*taken, "--plan")
        assert (code, nothing) == (0, "")
        assert "  --batch-size 4\n" in out
        assert out.endswith("note: " + err.removeprefix("valueshare: "))


def test_a_longer_run_in_the_folder_of_a_shorter_one_is_refused_with_the_command_that_extends_it(
    tmp_path: Path, cli: Cli
) -> None:
    constant = [*TINY, "--step-size-schedule", "constant", "--out", str(tmp_path / "run")]
    assert cli(*constant)[0] == 0
    code, _, err = cli(*replaced(constant, ["--steps", "90"]))
    assert (code, err.count("\n")) == (2, 1)
    command = f"valueshare extend {tmp_path / 'run'} --steps 90"
    differs = "--steps of CartPole-v1 is 60 in the existing run, 90 now"
    assert err.endswith(f"{differs}): choose another --out, or continue it: {command}\n")
    for other in ("--steps 30", "--steps 90 --batch-size 8", "--steps 90 --seeds 2"):
        code, _, err = cli(*replaced(constant, other.split()))
        assert (code, "valueshare extend" in err) == (2, False), err
    assert cli(*command.split()[1:])[0] == 0
    assert pl.read_parquet(tmp_path / "run" / "records")["step"].max() == 90


def test_an_unfinished_run_is_not_extended(tmp_path: Path, cli: Cli) -> None:
    constant = [*TINY, "--step-size-schedule", "constant", "--out", str(tmp_path / "run")]
    assert cli(*constant)[0] == 0
    for manifest in (tmp_path / "run").glob("checkpoints/*/*.json"):
        manifest.unlink()
    code, _, err = cli(*replaced(constant, ["--steps", "90"]))
    assert (code, "valueshare extend" in err) == (2, False), err


def test_extending_comes_with_a_warning_where_the_step_size_has_fallen_to_0(tmp_path: Path, cli: Cli) -> None:
    """CartPole's preset has a linear step size."""
    run = tmp_path / "run"
    assert cli(*TINY, "--out", run)[0] == 0
    code, _, err = cli(*replaced([*TINY], ["--steps", "90", "--out", str(run)]))
    remark = "(but its step size has fallen linearly to 0, and stays there)"
    assert (code, err.endswith(f", or continue it {remark}: valueshare extend {run} --steps 90\n")) == (2, True), err


def test_of_two_processes_that_start_one_run_the_second_is_told_of_the_first(tmp_path: Path) -> None:
    """Both have found no folder, and one of them makes it."""
    plan, used = make_plan("CartPole-v1", seeds=1, steps=60), UsedOptions({})
    busy = "run is being trained by another process: wait for it to finish"
    with create_run_folder(tmp_path / "run", plan, "first", used):
        with pytest.raises(InvalidInput, match=busy), create_run_folder(tmp_path / "run", plan, "second", used):
            pass
        with pytest.raises(InvalidInput, match=busy):
            refuse_existing_run(tmp_path / "run", plan)
    with pytest.raises(InvalidInput, match="holds this run, unfinished: write valueshare resume"):
        refuse_existing_run(tmp_path / "run", plan)


@pytest.mark.parametrize(("study", "run"), [("lunarlander", ""), ("atari-rmsprop", "dqn")])
def test_a_plan_of_a_study_refuses_the_folder_of_another_run(tmp_path: Path, cli: Cli, study: str, run: str) -> None:
    assert cli(*TINY, "--out", tmp_path / "out" / run)[0] == 0
    words = ("reproduce", study, "--scale", "smoke", "--out", tmp_path / "out")
    refused = cli(*words)
    assert refused[0] == 2
    assert "holds a run with other settings" in refused[2]
    assert cli(*words, "--plan") == refused


def test_a_run_says_where_its_settings_come_from_and_ends_with_the_commands_that_show_it(
    tmp_path: Path, cli: Cli
) -> None:
    folder = tmp_path / "a run"
    code, out, _ = cli(*TINY, "--out", folder)
    assert (code, out.count("settings: preset of CartPole-v1\n")) == (0, 1)
    assert "settings: preset of CartPole-v1\n" in cli(*TINY, "--out", tmp_path / "other", "--plan")[1]
    last = out.splitlines()[-4:]
    assert last[0] == "next:"
    commands = [shlex.split(line)[1:] for line in last[1:]]
    assert [words[:2] for words in commands] == [[name, str(folder)] for name in ("report", "watch", "play")]
    for words in commands:
        make_app().parse_args(words, exit_on_error=False, print_error=False)
    assert cli("resume", folder)[1].splitlines()[-4:] == last


def test_a_shard_is_not_shown_alone(tmp_path: Path, cli: Cli) -> None:
    code, out, _ = cli(*replaced([*TINY], ["--seeds", "2", "--shard", "1/2", "--out", str(tmp_path / "run")]))
    assert (code, "next:" in out) == (0, False)


def test_diverged_agents_are_counted_with_a_remedy() -> None:
    agents = pl.DataFrame({"agent": [0, 1], "env": "CartPole-v1", "algorithm": "ib-dqn", "k": 4.0, "seed": [0, 1]})
    agents = agents.with_columns(pl.lit(0.1).alias(name) for name in PER_AGENT)
    records = pl.DataFrame({"agent": [0, 1], "step": 50, "score": 0.0, "diverged_at": [None, 30]})
    lines = summary(agents, records)
    assert lines[1] == "1 of 2 agents diverged and were frozen: try a smaller --step-size or --k"
