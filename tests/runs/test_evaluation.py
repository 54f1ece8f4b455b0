"""Episodes after training, against a plain Gymnasium loop; their file is untrusted, and leaves the run as it is."""

import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import polars as pl
import pytest
from episodes import SHORT
from polars.testing import assert_frame_equal
from torch import Tensor

import valueshare
from valueshare import InvalidInput
from valueshare.analysis.importers.results import read_results
from valueshare.analysis.intervals import mean_intervals
from valueshare.nn import operators
from valueshare.population.agents import agent_table
from valueshare.population.checkpoints import loading
from valueshare.population.checkpoints.files import verify
from valueshare.runs.evaluation import EvaluationOptions, evaluate_run
from valueshare.runs.locks import lock_run
from valueshare.runs.run import Run
from valueshare.runs.storage.locations import Url
from valueshare.runs.storage.stores import Store
from valueshare.runs.variants import evaluation_lines

LIMIT = 60


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    out = tmp_path_factory.mktemp("evaluation") / "run"
    sizes: dict[str, Any] = {"hidden": [8], "eval_episode_limit": LIMIT, "steps": 300, "step_size": 1e-2}
    return valueshare.train(
        "CartPole-v1", ["ib-dqn", "rdq"], k=[0, 3], seeds=2, out=out, backend="gymnasium", **{**SHORT, **sizes}
    )


def contents(folder: Path) -> dict[str, bytes]:
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and "evaluations" not in path.name]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def plain_return(run: Run, agent: int, seed: int) -> float:
    policy, env = run.agent(agent), gymnasium.make("CartPole-v1", max_episode_steps=LIMIT)
    observation, _ = env.reset(seed=seed)
    total, over = 0.0, False
    while not over:
        observation, reward, terminated, truncated, _ = env.step(policy(observation))
        total, over = total + float(reward), terminated or truncated
    return total


def test_returns_are_those_of_a_plain_loop_on_the_same_seeds(run: Run) -> None:
    before = contents(run.folder)  # type: ignore[arg-type]
    played = run.evaluate(episodes=13, seeds_from=500, agent=[0, 3, 5], progress=False)  # 10 at once, then 3
    assert contents(run.folder) == before  # type: ignore[arg-type]
    expected = [(agent, 500 + i, plain_return(run, agent, 500 + i)) for agent in (0, 3, 5) for i in range(13)]
    assert played.select("agent", "seed", "score").rows() == expected
    assert len({row[2] for row in expected}) > 5  # episodes differ
    assert played["step"].unique().to_list() == [300]
    assert played["episode_limit"].unique().to_list() == [LIMIT]


def test_episodes_are_added_and_those_of_the_same_seeds_are_replaced(run: Run) -> None:
    (run.folder / "evaluations.parquet").unlink(missing_ok=True)  # type: ignore[union-attr]
    assert run.evaluations.height == 0
    one = run.evaluate(episodes=4, seeds_from=0, agent=np.int64(1), progress=False)  # type: ignore[arg-type]
    both = run.evaluate(episodes=4, seeds_from=2, agent=[1, 2], progress=False)
    assert run.evaluations.select("agent", "seed").rows() == [
        *((1, seed) for seed in range(6)),
        *((2, seed) for seed in range(2, 6)),
    ]
    shared = run.evaluations.filter(pl.col("agent") == 1)["score"].to_list()
    assert shared == [*one["score"][:2], *both.filter(agent=1)["score"]]
    assert one["score"][2:].to_list() == both.filter(agent=1)["score"][:2].to_list()  # neighbours change nothing
    random = run.evaluate(episodes=4, seeds_from=0, agent=[1], epsilon=1.0, episode_limit=9, progress=False)
    assert random["score"].max() <= 9  # type: ignore[operator]
    assert run.evaluations.height == 14  # another epsilon and limit: other episodes


@pytest.mark.parametrize(("algorithm", "epsilon"), [("dqn", 0.5), ("iqn", 0.0)])
def test_the_episode_of_a_seed_does_not_depend_on_the_range(tmp_path: Path, algorithm: str, epsilon: float) -> None:
    """Not with random actions, nor with the random quantiles of IQN."""
    short = {**SHORT, "hidden": [8, 8], "eval_episode_limit": LIMIT}
    run = valueshare.train("CartPole-v1", algorithm, seeds=2, out=tmp_path / "run", **short)

    def scores(first: int, episodes: int) -> list[dict[str, Any]]:
        played = run.evaluate(episodes=episodes, seeds_from=first, epsilon=epsilon, progress=False)
        return played.filter(pl.col("seed").is_between(17, 20)).drop("step", "epsilon").to_dicts()

    expected = scores(17, 4)
    assert [row["seed"] for row in expected] == [17, 18, 19, 20] * 2
    assert len({row["overestimation"] for row in expected}) == 8
    assert scores(0, 30) == scores(14, 12) == expected
    assert scores(20, 1) == [row for row in expected if row["seed"] == 20]


def test_a_run_that_trains_meanwhile_is_read_from_a_newer_checkpoint(run: Run, tmp_path: Path) -> None:
    folder = shutil.copytree(run.folder, tmp_path / "run")  # type: ignore[arg-type]
    old, trained = sorted(folder.glob("checkpoints/population-1/state-*")), False

    def train_on() -> None:  # while the first population plays
        nonlocal trained
        if not trained:
            trained = True
            valueshare.extend(folder, steps=400, progress=False)

    options = EvaluationOptions(episodes=2, seeds_from=30, progress=False, on_step=train_on)
    played = evaluate_run(folder, options).episodes
    assert not any(file.exists() for file in old)
    assert (
        played.group_by("agent").agg(pl.col("step").unique()).sort("agent")["step"].to_list()
        == [[300]] * 4 + [[400]] * 2
    )
    later = valueshare.open_run(folder)
    expected = [plain_return(later, agent, 30 + i) for agent in (4, 5) for i in range(2)]
    assert played.filter(pl.col("agent") >= 4)["score"].to_list() == expected


def test_agents_of_an_older_checkpoint_are_said_to_be_so_once(
    run: Run, tmp_path: Path, cli: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    folder = shutil.copytree(run.folder, tmp_path / "run")  # type: ignore[arg-type]
    newest = sorted(folder.glob("checkpoints/population-1/state-*"))[-1]
    newest.write_bytes(b"")
    code, said, _ = cli("evaluate", folder, "--episodes", 1, "--episode-limit", 5)
    assert code == 0
    steps = [line.split(", ")[-3] for line in said.splitlines() if ": mean score " in line]
    assert steps[0] == "step 300"
    assert steps[-1] != "step 300"
    again = f"): using the checkpoint before it; valueshare resume {folder} makes it again"
    assert [record.getMessage().endswith(again) for record in caplog.records] == [True]
    assert cli("resume", folder)[0] == 0
    caplog.clear()
    assert cli("evaluate", folder, "--episodes", 1, "--episode-limit", 5)[0] == 0
    assert caplog.records == []


def test_kernels_that_fail_are_left_out_here_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """On a GPU that has no such kernels: this CPU."""
    small: dict[str, Any] = {**SHORT, "hidden": [8, 8], "quantiles": 4, "target_quantiles": 4, "acting_quantiles": 4}
    trained = valueshare.train("CartPole-v1", "iqn", seeds=1, out=tmp_path / "run", backend="gymnasium", **small)
    expected = trained.evaluate(episodes=3, progress=False)
    left_out: list[Tensor] = []
    monkeypatch.setattr(operators, "available", lambda weight: not left_out)
    monkeypatch.setattr(operators, "leave_out", left_out.append)
    assert_frame_equal(trained.evaluate(episodes=3, progress=False), expected)
    assert len(left_out) == 1
    assert "PyTorch's own products are used" in caplog.text


def test_an_agent_without_a_checkpoint_needs_one(run: Run, tmp_path: Path, cli: Callable[..., Any]) -> None:
    folder = shutil.copytree(run.folder, tmp_path / "run")  # type: ignore[arg-type]
    shutil.rmtree(folder / "checkpoints")
    line = f"valueshare: agent 0 has no checkpoint: valueshare resume {folder} first\n"
    assert tuple(cli("evaluate", folder)) == (2, "", line)
    with lock_run(folder):
        assert "is being trained by another process: wait for it to finish" in cli("evaluate", folder).err


def test_a_policy_is_read_from_the_checkpoint_that_replaced_the_newest_one(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = shutil.copytree(run.folder, tmp_path / "run")  # type: ignore[arg-type]
    own, replaced = verify, False

    def train_on(path: Path, digest: str) -> None:  # once the newest checkpoint is chosen
        nonlocal replaced
        own(path, digest)
        if not replaced:
            replaced = True
            valueshare.extend(folder, steps=400, progress=False)

    monkeypatch.setattr(loading, "verify", train_on)
    assert valueshare.open_run(folder).agent(0).steps == 400


def test_the_command_prints_a_line_per_variant_with_its_interval(run: Run, cli: Callable[..., Any]) -> None:
    code, out, err = cli("evaluate", run.folder, "--episodes", "5", "--seeds-from", "70")
    assert (code, err) == (0, "")
    *lines, note, last = out.splitlines()
    assert note == "note: intervals of 2 agents are too narrow: train at least 10 seeds"
    assert last == f"episodes: {run.folder}/evaluations.parquet"
    assert [line.split(": ")[0] for line in lines] == [
        f"CartPole-v1 {name}" for name in ("ib-dqn k=0", "ib-dqn k=3", "rdq")
    ]
    mine = [np.mean([plain_return(run, agent, 70 + i) for i in range(5)]) for agent in (2, 3)]
    table = pl.DataFrame({"k": 3.0, "value": mine})
    row = mean_intervals(table, ["k"]).row(0, named=True)
    number = lines[1].split("score ")[1].split(" [")[0]
    assert float(number) == pytest.approx(np.mean(mine), abs=0.06)
    low, high = lines[1].split("[")[1].split("]")[0].split(", ")
    assert (float(low), float(high)) == pytest.approx((row["ci95_low"], row["ci95_high"]), abs=0.06)
    assert lines[1].endswith("2 agents, 5 episodes each")
    _, out, _ = cli("evaluate", run.folder, "--episodes", 5, "--agent", 0)
    assert "(no interval), step 300, 1 agent, 5 episodes each\nepisodes: " in out  # no interval is no narrow one
    agents = agent_table("CartPole-v1", "dqn", seeds=range(10))
    episodes = agents.select("agent", score=pl.col("agent").cast(pl.Float64), step=100)
    assert len(evaluation_lines(agents, episodes)) == 1
    assert len(evaluation_lines(agents.head(9), episodes.head(9))) == 2


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--agent", "9"], "there is no agent 9 in .*: its agents are 0 to 5"),
        (["--agent", "0", "1", "0"], "valueshare: --agent: 0 is given more than once; write each value once"),
        (["--episodes", "0"], "--episodes 0: write a number >= 1"),
        (["--episodes", "1e9"], "--episodes 1,000,000,000: write a number <= 1,000,000"),
        (["--seeds-from", "999999999999"], "--seeds-from 999999999999: write a number <= 999,999,999,900, with 100 ep"),
        (["--seeds-from", "-1"], "valueshare: --seeds-from -1: write a number >= 0"),
        (["--epsilon", "2"], "valueshare: --epsilon 2.0: write a number from 0 to 1"),
        (["--episode-limit", "0"], "valueshare: --episode-limit 0: write a number >= 1"),
        (["--agent", "0.5"], "--agent: invalid value '0.5': write a whole number"),
        (["--device", "tpu"], "--device tpu: write auto, cpu"),
    ],
)
def test_bad_input_is_refused_in_one_line(run: Run, cli: Callable[..., Any], words: list[str], line: str) -> None:
    assert isinstance(run.folder, Path)
    before = {path.name for path in run.folder.iterdir()}
    code, out, err = cli("evaluate", run.folder, *words)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert re.search(line, err)
    assert {path.name for path in run.folder.iterdir()} - before <= {".evaluations.lock"}


def test_a_wrong_agent_is_refused_by_the_name_of_the_option(run: Run) -> None:
    with pytest.raises(InvalidInput, match=r"^`agent = '0'`: write a whole number"):
        run.evaluate(agent=["0"], progress=False)  # type: ignore[list-item]
    with pytest.raises(InvalidInput, match=r"^`agent = 'all'`: write a whole number"):
        run.evaluate(agent="all", progress=False)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match=r"^`agent = 1.5`: write a whole number"):
        run.evaluate(agent=1.5, progress=False)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match=r"or leave `agent` out for all$"):
        run.evaluate(agent=[], progress=False)


def test_episodes_without_an_end_need_the_option_of_the_command(tmp_path: Path, cli: Callable[..., Any]) -> None:
    """The run itself is evaluated by timesteps."""
    gymnasium.register("tests/Unlimited-v0", entry_point="gymnasium.envs.classic_control:CartPoleEnv")
    short = {**SHORT, "hidden": [8], "eval_episodes": 0, "eval_timesteps": 40, "eval_episode_limit": None}
    run = valueshare.train("tests/Unlimited-v0", seeds=1, out=tmp_path / "run", **short)
    code, out, err = cli("evaluate", run.folder)
    assert (code, out) == (2, "")
    assert err == (
        "valueshare: tests/Unlimited-v0 has no episode limit, so an episode may never end: write --episode-limit N\n"
    )
    assert cli("evaluate", run.folder, "--episode-limit", 9, "--episodes", 2).code == 0


def test_a_folder_without_a_run_is_refused(tmp_path: Path, cli: Callable[..., Any]) -> None:
    code, _, err = cli("evaluate", tmp_path / "none")
    assert (code, err.count("\n")) == (2, 1)
    assert err == f"valueshare: {tmp_path / 'none'} does not exist: give the folder of a run\n"
    assert "there is no training run in" in cli("evaluate", tmp_path)[2]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda t: t.drop("seed"), "other columns"),
        (lambda t: t.with_columns(agent=pl.lit(99, pl.Int64)), "cannot be of this run"),
        (lambda t: t.with_columns(score=pl.lit(float("inf"))), "not finite"),
        (lambda t: t.with_columns(score=pl.lit(None, pl.Float64)), "missing"),
        (lambda t: pl.concat([t, t]), "occurs twice"),
    ],
)
def test_a_third_party_file_is_checked(run: Run, change: Callable[[pl.DataFrame], pl.DataFrame], why: str) -> None:
    assert isinstance(run.folder, Path)
    path = run.folder / "evaluations.parquet"
    path.unlink(missing_ok=True)
    played = run.evaluate(episodes=1, agent=[0], progress=False)
    change(played).write_parquet(path)
    with pytest.raises(InvalidInput, match=rf"evaluations.parquet is damaged \(.*{why}.*\): delete it"):
        _ = run.evaluations
    with pytest.raises(InvalidInput, match="is damaged"):
        run.evaluate(episodes=1, progress=False)
    path.write_bytes(b"PAR1 nothing")
    with pytest.raises(InvalidInput, match="is damaged") as refused:
        _ = run.evaluations
    assert str(refused.value).count(path.name) == 1
    path.unlink()
    path.symlink_to("/etc/hostname")
    with pytest.raises(InvalidInput, match="is a symbolic link"):
        run.evaluate(episodes=1, progress=False)
    path.unlink()


def test_report_and_resume_do_not_see_them(run: Run, cli: Callable[..., Any]) -> None:
    before = read_results([run.folder])  # type: ignore[list-item]
    run.evaluate(episodes=2, progress=False)
    after = read_results([run.folder])  # type: ignore[list-item]
    assert after.table.equals(before.table)
    assert after.notes == before.notes
    code, out, _ = cli("resume", run.folder)
    assert (code, "this run is finished" in out) == (0, True)
    assert valueshare.open_run(run.folder).records.equals(run.records)  # type: ignore[arg-type]


def test_a_run_at_an_address(run: Run) -> None:
    assert isinstance(run.folder, Path)
    there = valueshare.open_run(f"local://{run.folder}")
    (run.folder / "evaluations.parquet").unlink(missing_ok=True)
    played = there.evaluate(episodes=2, agent=[4], progress=False)
    assert there.evaluations.equals(played)
    assert run.evaluations.equals(played)


def test_a_file_in_the_middle_of_an_upload_is_read_again(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(run.folder, Path)
    run.evaluate(episodes=2, agent=[4], progress=False)
    file = run.folder / "evaluations.parquet"
    whole, there = file.read_bytes(), valueshare.open_run(f"local://{run.folder}")
    monkeypatch.setattr(time, "sleep", lambda seconds: file.write_bytes(whole))  # the upload ends meanwhile
    file.write_bytes(whole[:100])
    assert there.evaluations.equals(run.evaluations)
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    file.write_bytes(whole[:100])
    with pytest.raises(InvalidInput, match="is damaged"):
        _ = there.evaluations
    file.write_bytes(whole)


@pytest.mark.parametrize("kept", [True, False])
def test_two_evaluations_at_an_address_lose_nothing(run: Run, kept: bool) -> None:
    """The second one begins and ends while the first one plays; with and without episodes from before."""
    assert isinstance(run.folder, Path)
    (run.folder / "evaluations.parquet").unlink(missing_ok=True)
    there = Url(f"local://{run.folder}")

    def evaluate(agent: int, on_step: Callable[[], object] = lambda: None) -> pl.DataFrame:
        return evaluate_run(
            there, EvaluationOptions(episodes=2, agent=[agent], progress=False, on_step=on_step)
        ).episodes

    before = [evaluate(0)] if kept else []
    meanwhile: list[pl.DataFrame] = []

    def once() -> None:
        if not meanwhile:
            meanwhile.append(evaluate(5))

    played = evaluate(3, once)
    assert run.evaluations.equals(pl.concat([*before, played, *meanwhile]))


def test_weights_of_other_agents_are_not_downloaded(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    names, get = [], Store.get

    def noted(self: Store, name: str, path: Path) -> bool:
        names.append(name)
        return get(self, name, path)

    monkeypatch.setattr(Store, "get", noted)
    valueshare.open_run(f"local://{run.folder}").evaluate(episodes=1, agent=[5], progress=False)
    assert {name.split("/")[1] for name in names if "/state-" in name} == {"population-1"}
