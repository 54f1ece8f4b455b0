"""Results of other programs, and of this one: read as one table, or refused by file."""

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from run_configs import write_config

from valueshare import InvalidInput
from valueshare.analysis import read_results
from valueshare.files import file_digest
from valueshare.population.run_config import RESTORE
from valueshare.report.data import report_data, with_runs_apart
from valueshare.report.notes import short_names, shortened
from valueshare.report.page.live import PageUpdater
from valueshare.schema import FORMAT, body_checksum

HEADER = "environment,algorithm,seed,step,score\n"


def run_folder(folder: Path, *, steps: int = 20, seeds: int = 2, **settings: Any) -> Path:
    """A run folder of CartPole: `seeds` agents, evaluated at 0 and 10, planned to `steps`."""
    (folder / "records").mkdir(parents=True)
    first = settings.pop("first_seed", 0)
    env = settings.pop("env", "CartPole-v1")
    agents = pl.DataFrame(
        {
            "agent": range(seeds), "env": [env] * seeds,
            "algorithm": ["ib-dqn"] * seeds, "k": [4.0] * seeds, "step_size": [0.001] * seeds,
            "seed": range(first, first + seeds),
        }
    )  # fmt: skip
    agents.write_parquet(folder / "agents.parquet")
    for step in (0, 10):
        scores = [float(step + agent) for agent in range(seeds)]
        pl.DataFrame(
            {"agent": range(seeds), "step": [step] * seeds, "score": scores, "overestimation": 0.5}
        ).write_parquet(folder / "records" / f"population-0-{step:06d}.parquet")
    write_config(folder, {env: {"steps": steps, **settings}})
    return folder


@pytest.fixture
def text(tmp_path: Path) -> Callable[..., Path]:
    def write(content: str, *names: str) -> Path:
        file = tmp_path.joinpath(*(names or ("results.csv",)))
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
        return file

    return write


def test_a_run_folder(tmp_path: Path) -> None:
    results = read_results(run_folder(tmp_path / "run"))
    assert results.table.columns[:7] == [*("agent", "env", "algorithm", "k", "seed", "step", "score")]
    shown = results.table.select("agent", "seed", "k", "step", "score", "overestimation").rows()
    assert shown == [
        (0, 0, 4.0, 0, 0.0, 0.5), (0, 0, 4.0, 10, 10.0, 0.5),
        (1, 1, 4.0, 0, 1.0, 0.5), (1, 1, 4.0, 10, 11.0, 0.5),
    ]  # fmt: skip
    assert results.notes == (f"{tmp_path / 'run'}: 2 of 2 agents on CartPole-v1 are not finished: step 10 of 20",)
    (source,) = results.sources
    assert (source.kind, source.runs, source.path) == ("run", 2, str(tmp_path / "run"))
    assert source.config is not None
    assert source.config["settings"]["CartPole-v1"]["steps"] == 20


def test_a_run_folder_has_the_time_of_its_evaluations_where_it_is_known(tmp_path: Path) -> None:
    run = run_folder(tmp_path / "run")
    assert "seconds" not in read_results(run).table.columns
    (run / "progress").mkdir()
    (run / "progress" / "population-0.json").write_text('{"evaluations": [[10, 2.5], [10, 2.5], [20, 9.0]]}')
    table = read_results(run).table
    assert table.select("agent", "step", "seconds").rows() == [(0, 0, 0.0), (0, 10, 2.5), (1, 0, 0.0), (1, 10, 2.5)]
    table.write_csv(tmp_path / "again.csv")
    assert read_results(tmp_path / "again.csv").table["seconds"].to_list() == table["seconds"].to_list()
    table.with_columns(seconds=-1.0).write_csv(tmp_path / "again.csv")
    with pytest.raises(InvalidInput, match=r"row 1: seconds is -1.0, not a finite number >= 0"):
        read_results(tmp_path / "again.csv")
    (run / "progress" / "population-0.json").write_text('{"evaluations": [[20, 9.0]]}')  # of a run that was resumed
    assert read_results(run).table["seconds"].to_list() == [0.0, None, 0.0, None]


@pytest.mark.parametrize("number", ["NaN", "-Infinity", "1e999"])
def test_provenance_with_what_json_cannot_say_is_not_used(tmp_path: Path, number: str) -> None:
    run = run_folder(tmp_path / "run")
    (run / "provenance.json").write_text(f'{{"libraries": [null, {number}]}}')
    (source,) = read_results(run).sources
    assert source.provenance is None


def test_agents_without_records_are_said(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run", steps=10, seeds=2)
    for file in (folder / "records").iterdir():
        pl.read_parquet(file).head(1).write_parquet(file)
    assert read_results(folder).notes == (f"{folder}: 1 of 2 agents have no records yet",)


def test_several_run_folders_are_numbered_on(tmp_path: Path) -> None:
    """Given one by one, or by the folder they are in; named twice, read once."""
    one = run_folder(tmp_path / "runs" / "a")
    other = run_folder(tmp_path / "runs" / "b", first_seed=2)
    results = read_results([one, other, one])
    assert results.table["agent"].unique().sort().to_list() == [0, 1, 2, 3]
    assert results.table.select("agent", "seed").unique().sort("agent")["seed"].to_list() == [*(0, 1, 2, 3)]
    assert read_results(tmp_path / "runs").table.equals(results.table)
    assert set(results.table["source"]) == {str(one), str(other)}


def test_tidy_csv_and_parquet(text: Callable[..., Path], tmp_path: Path) -> None:
    file = text(HEADER + "Pong,DQN,0,100,1.5\nPong,DQN,1,100,\nPong,DQN,0,200,3\n")
    table = read_results(file).table
    assert table.select("agent", "env", "k", "seed", "step", "score").rows() == [
        (0, "Pong", 0.0, 0, 100, 1.5), (0, "Pong", 0.0, 0, 200, 3.0), (1, "Pong", 0.0, 1, 100, None)
    ]  # fmt: skip
    table.drop("agent", "source").rename({"env": "game"}).write_parquet(tmp_path / "a.parquet")
    again = read_results(tmp_path / "a.parquet").table
    assert again.drop("source").equals(table.drop("source"))
    table.write_csv(tmp_path / "whole.csv")  # what was read can be written and read again
    assert read_results(tmp_path / "whole.csv").table.drop("source").equals(table.drop("source"))


def test_empty_lines_of_a_csv_are_no_rows(text: Callable[..., Path]) -> None:
    file = text(HEADER + "Pong,DQN,0,100,1.5\n\nPong,DQN,0,200,\n,,,,\n\n")
    assert read_results(file).table.select("step", "score").rows() == [(100, 1.5), (200, None)]


def test_columns_in_other_letters_and_scores_that_are_whole_at_first(
    text: Callable[..., Path],
) -> None:
    rows = [f"Pong,DQN,0,{step},{step if step < 400 else step + 0.5}" for step in range(500)]
    table = read_results(text("Game,Algorithm,Seed,Step,Score\n" + "\n".join(rows))).table
    assert table["score"].to_list() == [*range(400), *(step + 0.5 for step in range(400, 500))]


def test_tables_beside_runs_are_not_read_and_said(tmp_path: Path, text: Callable[..., Path]) -> None:
    run = run_folder(tmp_path / "run", steps=10)
    file = text(HEADER + "CartPole-v1,dqn,0,10,7\n")
    results = read_results(tmp_path)
    assert results.notes == (f"{tmp_path}: beside runs, and not read unless named: results.csv",)
    assert [source.path for source in results.sources] == [str(run)]
    assert read_results([tmp_path, file]).notes == ()


def test_a_phase_counts_when_a_manifest_names_its_records(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run")
    population = folder / "checkpoints" / "population-0"
    population.mkdir(parents=True)
    assert refused(folder) == f"{folder / 'records'} holds no records: train first"
    first = "population-0-000000.parquet"
    named = {"phase": 0, "records": {first: file_digest(folder / "records" / first)}}
    written = {"checksum": body_checksum(named), **named}
    (population / "checkpoint-000000.json").write_text(json.dumps(written))
    assert read_results(folder).table["step"].to_list() == [0, 0]  # that of step 10 is to come


def test_the_same_runs_with_another_optimizer(text: Callable[..., Path], tmp_path: Path) -> None:
    rows = "Pong,dqn,0,10,1,Adam\nPong,dqn,0,10,2,RMSprop\n"
    table = read_results(text(HEADER[:-1] + ",optimizer\n" + rows)).table
    assert table.select("agent", "optimizer", "score").rows() == [
        (0, "Adam", 1.0), (1, "RMSprop", 2.0)
    ]  # fmt: skip
    one, other = (run_folder(tmp_path / name, optimizer=name) for name in ("adam", "rmsprop"))
    both = read_results([one, other]).table
    assert both["optimizer"].to_list() == ["adam"] * 4 + ["rmsprop"] * 4
    untold = run_folder(tmp_path / "untold")  # which may be either
    assert "ib-dqn k=4 env=CartPole-v1 seed=0 step=0 occurs twice" in refused(one, untold)


def test_pfrl_told_by_its_arguments(text: Callable[..., Path]) -> None:
    """PFRL writes tab-separated columns, of which `mean` is the score."""
    rows = "steps\tepisodes\telapsed\tmean\tmedian\tstdev\tmax\tmin\taverage_q\n"
    rows += "250\t3\t1.5\t-20.5\t-21\t0.7\t-20\t-21\tnan\n500\t6\t3.1\t2.0\t2\t0\t2\t2\t0.3\n"
    file = text(rows, "results", "20250101T000000", "scores.txt")
    text(
        json.dumps({"env": "PongNoFrameskip-v4", "seed": 3, "gpu": 0}),
        *file.parts[-3:-1],
        "args.txt",
    )
    text("examples/train_dqn_ale.py --seed 3", *file.parts[-3:-1], "command.txt")
    results = read_results(file.parent)
    assert results.table.select("env", "algorithm", "seed", "step", "score").rows() == [
        ("PongNoFrameskip-v4", "dqn", 3, 250, -20.5), ("PongNoFrameskip-v4", "dqn", 3, 500, 2.0)
    ]  # fmt: skip
    assert results.sources[0].kind == "pfrl"


def test_pfrl_is_evaluated_when_an_episode_ends(text: Callable[..., Path]) -> None:
    """Due at 250, 500 and 1,000, when an episode took longer; every seed has steps of its own."""
    for seed, steps in enumerate(((250, 503, 1_210), (255, 500, 1_000))):
        where = ("pfrl", str(seed))
        text("steps\tmean\n" + "".join(f"{t}\t1\n" for t in steps), *where, "scores.txt")
        told = {"env": "Pong-v4", "seed": seed, "agent": "dqn", "eval_interval": 250}
        file = text(json.dumps(told), *where, "args.txt")
    results = read_results(file.parents[1])
    assert results.table["step"].to_list() == [250, 500, 1_000] * 2
    (note,) = results.notes
    assert note.startswith("PFRL evaluates when the episode under way has ended")
    told["eval_interval"] = 1_000  # by which two would be one
    text(json.dumps(told), *where, "args.txt")
    assert read_results(file.parent).table["step"].to_list() == [255, 500, 1_000]


def test_pfrl_told_by_its_folders(text: Callable[..., Path]) -> None:
    text("steps\tmean\n250\t1.0\n", "Rainbow", "Pong", "7", "scores.txt")
    file = text("steps\tmean\n250\t2.0\n", "Rainbow", "Pong", "seed-8", "scores.txt")
    table = read_results(file.parents[2]).table
    assert table.select("algorithm", "env", "seed", "score").rows() == [
        ("Rainbow", "Pong", 7, 1.0), ("Rainbow", "Pong", 8, 2.0)
    ]  # fmt: skip


def test_evaluations_of_stable_baselines3(tmp_path: Path) -> None:
    """The score of an evaluation is the mean of its episodes: (1 + 3) / 2 and (4 + 8) / 2."""
    folder = tmp_path / "dqn" / "CartPole-v1_2"
    folder.mkdir(parents=True)
    np.savez(
        folder / "evaluations.npz",
        timesteps=np.array([1_000, 2_000]),
        results=np.array([[1.0, 3.0], [4.0, 8.0]]),
        ep_lengths=np.array([[1, 3], [4, 8]]),
    )
    results = read_results(tmp_path)
    assert results.table.select("algorithm", "env", "seed", "step", "score").rows() == [
        ("dqn", "CartPole-v1", 2, 1_000, 2.0), ("dqn", "CartPole-v1", 2, 2_000, 6.0)
    ]  # fmt: skip
    assert results.sources[0].kind == "stable-baselines3"


def test_all_kinds_together(tmp_path: Path, text: Callable[..., Path]) -> None:
    run = run_folder(tmp_path / "run")
    file = text(HEADER + "CartPole-v1,dqn,0,10,7\n")
    table = read_results([run, file]).table
    assert table["agent"].to_list() == [0, 0, 1, 1, 2]
    assert table.filter(pl.col("agent") == 2)["overestimation"].to_list() == [None]


# Bad input: one line that names the file.


def refused(*paths: Path, metric: str = "score") -> str:
    with pytest.raises(InvalidInput) as caught:
        read_results(paths, metric)
    line = str(caught.value)
    assert "\n" not in line
    return line


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (HEADER, "has a header and no rows"),
        (HEADER + "\n\n", "has a header and no rows"),
        (HEADER + ",,,,\n", "has a header and no rows"),
        ("environment,algorithm,seed,step\nPong,dqn,0,1\n", "has no column 'score'"),
        ("algorithm,seed,step,score\ndqn,0,1,1\n", "has no column 'environment'"),
        (
            "environment,algo,seed,timestep,return\nPong,dqn,0,1,2\n",
            "no column 'algorithm', 'step', 'score': rename algo to algorithm, timestep to step, return to score",
        ),
        (
            "algo,Total Timesteps,episode_return\ndqn,0,1\n",
            "rename algo to algorithm, Total Timesteps to step, episode_return to score, and add environment, seed",
        ),
        (
            '#{"t_start": 1.0, "env_id": "CartPole-v1"}\nr,l,t\n10.0,10,0.5\n',
            "is a Monitor log of Stable-Baselines3, with training episodes and no algorithm and seed: give the",
        ),
        (HEADER + "Pong,dqn,0,10,nan\n", "row 1: score is nan"),
        (HEADER + "Pong,dqn,0,10,1\nPong,dqn,0,20,inf\n", "row 2: score is inf"),
        (HEADER + "Pong,dqn,0,10,high\n", "row 1: score is 'high', not a number"),
        (HEADER + "Pong,dqn,0,10.5,1\n", "row 1: step is 10.5, not a whole number"),
        (HEADER + "Pong,dqn,,10,1\n", "row 1: seed is None, not a whole number"),
        (HEADER + "Pong,dqn,0,10,\n", "no evaluation has a score"),
        (HEADER + "Pong,dqn,0,10,1\nPong,dqn,0,10,2\n", "dqn k=0 env=Pong seed=0 step=10 occurs twice"),
        (HEADER[:-1] + ",loss\nPong,dqn,0,10,1,2\n", "unknown column 'loss'"),
        (HEADER + "Pong,dqn,0,10,1e200\n", "row 1: score is 1e+200, not a score"),
        (HEADER + "Pong,dqn,0,-10,1\n", "row 1: step is -10, not a number >= 0"),
        (HEADER[:-1] + ",k\nPong,dqn,0,10,1,nan\n", "row 1: k is nan, not a finite number >= 0"),
        (HEADER[:-1] + ",k\nPong,dqn,0,10,1,-1\n", "row 1: k is -1.0, not a finite number >= 0"),
        (HEADER[:-1] + ",step_size\nPong,dqn,0,10,1,big\n", "step_size is 'big', not a number"),
        (HEADER[:-1] + ",env\nPong,dqn,0,10,1,Pong\n", "has environment, env, which map to the same column"),
        (
            "\n\n" + HEADER + "\nPong,dqn,0,10,1\n\n,,,,\nPong,dqn,0,20,inf\n",
            "row 2: score is inf",
        ),
        (
            HEADER.replace("score", "score,source") + 'Pong,dqn,0,10,1,"a\nb"\r\n\r\nPong,dqn,0,20,inf,c\n',
            "row 2: score is inf",
        ),
        (HEADER + '"Po\nng",dqn,0,10,1\n', "row 1: env is 'Po\\nng', not a name"),
        ("\0\1\2\n", "has no column 'environment': it has \\x00\\x01\\x02"),
        ("", "cannot be read"),
    ],
)
def test_bad_tables(text: Callable[..., Path], content: str, said: str) -> None:
    file = text(content)
    line = refused(file)
    assert said in line
    assert str(file) in line


@pytest.mark.parametrize("name", ["step", "score", "k", "seconds"])
def test_a_column_of_structures_is_refused(name: str, tmp_path: Path) -> None:
    rows = {"environment": "Pong", "algorithm": "dqn", "seed": 0, "step": 10, "score": 1.0, "k": 0.0, "seconds": 1.0}
    pl.DataFrame([{**rows, name: {"mean": 1.0}}]).write_parquet(tmp_path / "results.parquet")
    assert f"results.parquet: {name} is of type Struct" in refused(tmp_path / "results.parquet")


def test_rows_of_other_tables(tmp_path: Path) -> None:
    file = tmp_path / "results.parquet"
    rows = {"environment": "Pong", "algorithm": "dqn", "seed": 0, "step": [0, 10]}
    pl.DataFrame({**rows, "score": [1.0, math.inf]}).write_parquet(file)
    assert f"{file}, row 2: score is inf" in refused(file)


def test_a_run_without_its_agents_is_named(tmp_path: Path) -> None:
    """The table of evaluations that a run has is not taken for results of another program."""
    (tmp_path / "config.json").write_text('{"kind": "training", "settings": {}}')
    pl.DataFrame({"agent": [0], "step": [0], "score": [1.0]}).write_parquet(tmp_path / "evaluations.parquet")
    line = refused(tmp_path)
    assert line == f"{tmp_path / 'agents.parquet'} is missing: {RESTORE}"


def test_places_without_results(tmp_path: Path, text: Callable[..., Path]) -> None:
    assert f"{tmp_path} holds no records" in refused(tmp_path)
    assert "does not exist" in refused(tmp_path / "nothing")
    assert "is not a file of results" in refused(text("hello", "notes.txt"))
    with pytest.raises(InvalidInput, match="no results are given"):
        read_results([])


def test_a_tabular_study_is_shown_by_report_alone(tmp_path: Path) -> None:
    study = tmp_path / "a study"
    study.mkdir()
    (study / "config.json").write_text('{"kind": "tabular"}')
    assert refused(study) == f"{study} is a tabular study: valueshare report '{study}' shows it"
    with pytest.raises(InvalidInput, match="is a tabular study"):
        PageUpdater([study])
    for number in (1, 2):
        shard = tmp_path / "in shards" / f"shard-{number}-of-2"
        shard.mkdir(parents=True)
        (shard / "config.json").write_text(f'{{"kind": "tabular", "shard": "{number}/2"}}')
    which = f"{tmp_path} holds tabular studies (a study, in shards), each with its own report"
    assert refused(tmp_path) == f"{which}: valueshare report '{study}'"


def test_of_a_folder_of_runs_those_that_cannot_be_read_are_left_out(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    for name in ("begun", "damaged", "sound"):
        run_folder(runs / name, steps=10)
    for file in (runs / "begun" / "records").iterdir():
        file.unlink()
    (runs / "damaged" / "agents.parquet").write_bytes(b"PAR1")
    (runs / "without").mkdir()
    (runs / "without" / "config.json").write_text('{"kind": "training", "settings": {}}')
    PageUpdater([runs])  # watch leaves them out too
    results = read_results(runs)
    assert [source.path for source in results.sources] == [str(runs / "sound")]
    assert results.left_out == tuple(str(runs / name) for name in ("begun", "damaged", "without"))
    begun, damaged, without = results.notes
    assert begun == f"{runs / 'begun'} is left out: {runs / 'begun' / 'records'} holds no records: train first"
    assert damaged.startswith(f"{runs / 'damaged'} is left out: {runs / 'damaged' / 'agents.parquet'} ")
    missing = runs / "without" / "agents.parquet"
    assert without == f"{missing.parent} is left out: {missing} is missing: {RESTORE}"
    (note,) = shortened([begun], short_names(results.paths))  # pages go to other people
    assert note == "begun is left out: begun/records holds no records: train first"
    for named in ((runs / "sound", runs / "damaged"), (runs, runs / "damaged"), (runs / "damaged", runs)):
        assert "damaged/agents.parquet" in refused(*named)
    with pytest.raises(InvalidInput, match=r"damaged/agents\.parquet"):
        PageUpdater([runs / "damaged"])
    with pytest.raises(InvalidInput, match="`max_result_size = 1MB`"):
        read_results(runs, max_result_size=100)
    shutil.rmtree(runs / "sound")
    assert refused(runs) == f"{runs / 'begun' / 'records'} holds no records: train first"


def test_run_folders_that_are_none(tmp_path: Path) -> None:
    empty = run_folder(tmp_path / "empty")
    for file in (empty / "records").iterdir():
        file.unlink()
    assert refused(empty) == f"{empty / 'records'} holds no records: train first"
    damaged = run_folder(tmp_path / "damaged")
    (damaged / "records" / "population-0-000000.parquet").write_bytes(b"PAR1")
    wanted = "is damaged, and no checkpoint is from before it: start the run again in a new folder"  # there are none
    assert refused(damaged).endswith(f"population-0-000000.parquet {wanted}")
    unknown = run_folder(tmp_path / "unknown")
    (unknown / "config.json").write_text('{"format": ')  # what is unfinished is known by it alone
    assert "config.json is damaged (it is not valid JSON" in refused(unknown)
    strange = run_folder(tmp_path / "strange")
    pl.read_parquet(strange / "agents.parquet").head(1).write_parquet(strange / "agents.parquet")
    assert f"{strange}: config.json and agents.parquet are not of one run (the table of agents has" in refused(strange)
    write_config(strange, {"CartPole-v1": {"steps": 20}})
    assert "2 records are of agents not in agents.parquet" in refused(strange)


@pytest.mark.parametrize("shard", ["x/y", "1/", "1/2/3", "1", 7, ["1/2"]])
def test_a_shard_that_cannot_be_is_refused(shard: object, tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"shard": shard}))
    assert f"{folder / 'config.json'} is damaged (" in refused(folder)


def told_format(folder: Path, value: object) -> None:
    """As a run folder says it, with the version that wrote it."""
    file = folder / "config.json"
    told = json.loads(file.read_text()) | {"format": value, "valueshare": "9.0"}
    file.write_text(json.dumps(told))


def test_a_run_folder_of_another_format_is_refused(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run")
    write_config(folder, {"CartPole-v1": {"steps": 20}}, kind="tabular")
    assert "config.json is damaged (Invalid enum value 'tabular'" in refused(folder)
    (folder / "config.json").write_text(json.dumps({"format": FORMAT}))
    assert "config.json is damaged: it has no kind of results" in refused(folder)
    told_format(folder, FORMAT + 1)
    (folder / "agents.parquet").write_bytes(b"of the future")  # whatever else is new in it
    for given in (folder, tmp_path):
        assert refused(given) == (
            f"{folder} was written by a newer version (valueshare 9.0), in run-folder format "
            f"{FORMAT + 1}; this one reads format {FORMAT}: upgrade valueshare"
        )
    told_format(folder, FORMAT - 1)
    assert refused(folder) == (
        f"{folder} was written by an earlier version (valueshare 9.0), in run-folder format "
        f"{FORMAT - 1}; this one reads format {FORMAT}: use that version"
    )
    told_format(folder, "one")
    assert f"{folder / 'config.json'} is damaged: its format is 'one', not {FORMAT}" in refused(folder)


def test_a_metric_that_is_not_there(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run")
    read_results(folder, "overestimation")
    assert f"{folder} has no metric 'action_gap': choose one of agent" in refused(folder, metric="action_gap")


def test_agents_that_diverged_are_said(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run", steps=10)
    for file in (folder / "records").iterdir():
        at = pl.when((pl.col("agent") == 1) & (pl.col("step") == 10)).then(7)
        pl.read_parquet(file).with_columns(diverged_at=at).write_parquet(file)
    (note,) = read_results(folder).notes
    assert note == f"{folder}: 1 of 2 agents diverged; their scores are of frozen weights"


def test_the_same_run_from_two_places(tmp_path: Path) -> None:
    one, other = run_folder(tmp_path / "a"), run_folder(tmp_path / "b")
    line = refused(one, other)
    assert line.startswith(f"{one} and {other}: ib-dqn k=4 env=CartPole-v1 seed=0 step=0")
    assert line.endswith("give one of the two")


def test_runs_with_other_settings_are_read_together_and_said(tmp_path: Path) -> None:
    one = run_folder(tmp_path / "a", steps=10, batch_size=32)
    other = run_folder(tmp_path / "b", steps=10, batch_size=64, first_seed=2)
    (note,) = read_results([one, other]).notes
    assert note.startswith(f"{other} was trained with other settings on CartPole-v1 than {one} ")
    assert "(--batch-size is 64 instead of 32)" in note
    # A setting that the older of two did not have yet was at its default.
    later = run_folder(tmp_path / "c", steps=10, batch_size=32, kappa=1.0, first_seed=4)
    assert not read_results([one, later]).notes


def test_other_settings_are_options_and_words(tmp_path: Path) -> None:
    """As a user writes them, and null and true in words; of more than three, the rest are counted."""
    given: dict[str, Any] = {"batch_size": 32, "delayed_actor": False, "hidden": [64, 64], "kappa": 1.0}
    other: dict[str, Any] = {"batch_size": 64, "delayed_actor": True, "hidden": [32], "kappa": 2.0}
    given |= {"step_size_schedule": "linear", "step_size_steps": 50_000}
    other |= {"step_size_schedule": "linear", "step_size_steps": 50_000}
    one = run_folder(tmp_path / "a", steps=10, **given)
    (note,) = read_results([one, run_folder(tmp_path / "b", steps=10, first_seed=2, **other)]).notes
    assert (
        "(--batch-size is 64 instead of 32, --delayed-actor is on instead of off, --hidden is 32 instead of 64 64 "
        "and 1 more)"
    ) in note
    more = run_folder(tmp_path / "c", steps=10, first_seed=4, **(given | {"step_size_steps": None}))
    (note,) = read_results([one, more]).notes
    assert "(--step-size-steps is not set instead of 50000)" in note


def learners(*folders: Path) -> list[str]:
    """The names of what a report compares."""
    return report_data(read_results(list(folders))).table["algorithm"].unique().sort().to_list()


def test_agents_that_learned_with_other_settings_are_not_pooled(tmp_path: Path) -> None:
    """One mean over two batch sizes is of no algorithm. Those with the same settings stay together."""
    one = run_folder(tmp_path / "a", steps=10, batch_size=32)
    more = run_folder(tmp_path / "c", steps=10, batch_size=32, first_seed=2)
    other = run_folder(tmp_path / "b", steps=10, batch_size=64, first_seed=4)
    assert learners(one, more) == ["ib-dqn"]
    assert learners(one, other) == ["ib-dqn run=a", "ib-dqn run=b"]
    assert learners(one, other, more) == ["ib-dqn run=a+c", "ib-dqn run=b"]
    (note,) = read_results([one, other]).notes
    assert note.endswith("(--batch-size is 64 instead of 32): they are separate groups")
    winners = with_runs_apart(read_results([one, other, more]).table, read_results([one, other, more]).sources)
    assert winners.group_by("algorithm").agg(pl.col("seed").n_unique()).sort("algorithm").rows() == [
        ("ib-dqn run=a+c", 4),
        ("ib-dqn run=b", 2),
    ]
    many = [run_folder(tmp_path / f"m{i}", steps=10, batch_size=8, first_seed=10 * i) for i in range(1, 5)]
    assert learners(one, *many) == ["ib-dqn run=a", "ib-dqn run=m1+3-more"]


def test_how_often_agents_are_evaluated_does_not_separate_them(tmp_path: Path) -> None:
    one = run_folder(tmp_path / "a", steps=10, eval_interval=10, checkpoint_interval=10)
    longer = run_folder(tmp_path / "b", steps=20, eval_interval=20, checkpoint_interval=20, first_seed=2)
    assert learners(one, longer) == ["ib-dqn"]
    assert "they count as one group" in read_results([one, longer]).notes[-1]
    linear: dict[str, Any] = {"step_size_schedule": "linear", "step_size_steps": None}
    one, longer = (run_folder(tmp_path / f"linear-{n}", steps=n, first_seed=n, **linear) for n in (10, 20))
    assert learners(one, longer) == ["ib-dqn run=linear-10", "ib-dqn run=linear-20"]


def test_runs_of_different_environments_or_algorithms_need_no_names(tmp_path: Path) -> None:
    """None of their agents would be pooled."""
    one = run_folder(tmp_path / "a", steps=10, batch_size=32)
    assert learners(one, run_folder(tmp_path / "b", steps=10, batch_size=64, env="Acrobot-v1")) == ["ib-dqn"]


def test_two_protocols_are_not_mixed(tmp_path: Path) -> None:
    one = run_folder(tmp_path / "a", env="Pong", atari_protocol="machado-2018")
    same = run_folder(tmp_path / "b", env="Alien", atari_protocol="machado-2018")
    without = run_folder(tmp_path / "c")  # no Atari, no protocol
    read_results([one, same, without])
    other = run_folder(tmp_path / "d", env="Freeway", first_seed=4, atari_protocol="nature-2015")
    line = refused(one, same, other)
    assert line.startswith(f"{other} has another Atari protocol than {one} (")
    assert "(nature-2015 instead of machado-2018)" in line


def test_pickles_and_other_archives(tmp_path: Path) -> None:
    folder = tmp_path / "dqn" / "CartPole-v1_1"
    folder.mkdir(parents=True)
    file = folder / "evaluations.npz"
    steps = np.array([1])
    np.savez(file, timesteps=steps, results=np.array([[{"a": 1}]], dtype=object))
    assert f"{file} cannot be read without pickle" in refused(file)
    np.savez(file, timesteps=steps)
    assert f"{file} has no array" in refused(file)
    np.savez(file, timesteps=steps, results=np.zeros((2, 3)))
    assert "do not belong together" in refused(file)
    np.savez(file, timesteps=np.zeros(0), results=np.zeros((0, 3)))
    assert "holds no records" in refused(file)
    np.savez(file, timesteps=steps, results=np.array([[np.nan, 1.0]]))
    assert f"{file}, row 1: score is nan" in refused(file)
    for kind in (np.array([["a"]]), np.array([[1j]])):
        np.savez(file, timesteps=steps, results=kind)
        assert f"{file}: timesteps are int64 and results " in refused(file)
    with file.open("wb") as handle:
        np.save(handle, steps)
    assert f"{file} is not an NPZ archive: it holds one array" in refused(file)
    file.write_bytes(b"PK\x03\x04 and nothing more")
    assert f"{file} cannot be read" in refused(file)


def test_files_that_do_not_say_what_they_are_of(tmp_path: Path, text: Callable[..., Path]) -> None:
    file = text("steps\tmean\n1\t2\n", "somewhere", "scores.txt")
    assert f"{file} does not name its algorithm, environment and seed" in refused(file)
    text('{"env": 3, "seed": "x", "agent": ["q"]}', "dqn", "Pong", "4", "args.txt")
    told = text("steps\tmean\n1\t2\n", "dqn", "Pong", "4", "scores.txt")
    assert f"{told}, row 1: seed is 'x', not a whole number" in refused(told)
    assert "has no column 'mean'" in refused(text("steps\n1\n", "a", "b", "1", "scores.txt"))
    assert "holds no records" in refused(text("steps\tmean\n", "a", "b", "2", "scores.txt"))
