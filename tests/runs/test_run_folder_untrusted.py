"""A run folder of somebody else: nothing outside it is written or deleted, nothing is run.

docs/security.md says what is promised; here is each attack that it was tried with.
"""

import io
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import gymnasium
import polars as pl
import pytest
from episodes import rendered_clip
from forged_parquet import changed
from undrawn import undrawn

import valueshare
from valueshare.children import REFUSED
from valueshare.errors import InvalidInput
from valueshare.files import file_digest
from valueshare.population.checkpoints.saving import remove_partial_files
from valueshare.records import CheckpointPaths
from valueshare.report.page.clips import Clips
from valueshare.report.page.live import PageUpdater
from valueshare.runs.storage.locations import Url
from valueshare.runs.storage.stores import Store
from valueshare.schema import body_checksum

Cli = Callable[..., tuple[int, str, str]]
LINKED = "is a symbolic link: a run folder must hold its own files; replace it by a copy"
MARKING = """
import pathlib
import gymnasium

pathlib.Path(__file__).with_name("imported").touch()
maker = "gymnasium.envs.classic_control:CartPoleEnv"
gymnasium.register("own/Marked-v0", maker, max_episode_steps=20)
gymnasium.register("own/Table-v0", "gymnasium.envs.toy_text:FrozenLakeEnv")
"""


@pytest.fixture(scope="module")
def unfinished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was ended after its second phase of four."""
    folder = tmp_path_factory.mktemp("unfinished") / "run"

    def stop() -> bool:
        return (folder / "checkpoints/population-0/checkpoint-000001.json").exists()

    run = valueshare.train(
        "CartPole-v1",
        seeds=1,
        steps=80,
        eval_interval=20,
        eval_episodes=1,
        eval_episode_limit=10,
        hidden=[8],
        batch_size=4,
        learning_starts=10,
        out=folder,
        progress=False,
        should_stop=stop,
    )
    assert not run.finished
    return folder


@pytest.fixture
def run(unfinished: Path, tmp_path: Path) -> Path:
    return shutil.copytree(unfinished, tmp_path / "run")


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """Files of ours that a link may lead to; some are called as those of a run."""
    folder = tmp_path / "outside"
    (folder / "figures").mkdir(parents=True)
    for name in (".bashrc", "thesis.txt", "state-000000.safetensors", "report.html"):
        (folder / name).write_text(f"mine: {name}")
    return folder


def tree(folder: Path) -> dict[str, bytes | str | None]:
    """Everything below a folder: contents of files, targets of links."""
    return {
        str(path.relative_to(folder)): str(path.readlink())
        if path.is_symlink()
        else path.read_bytes()
        if path.is_file()
        else None
        for path in folder.rglob("*")
    }


def replace_by_link(path: Path, target: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(target)


def refused(cli: Cli, *words: object) -> str:
    """The one line with which a command was refused."""
    code, _, err = cli(*words)
    assert (code, err.count("\n")) == (2, 1), err
    return err


def forge_records(run: Path, content: bytes) -> Path:
    """Other records of the last phase, with the right checksum in its manifest."""
    path = run / "records/population-0-000001.parquet"
    path.write_bytes(content)
    manifest = run / "checkpoints/population-0/checkpoint-000001.json"
    body = json.loads(manifest.read_text())
    del body["checksum"]
    body["records"][path.name] = file_digest(path)
    manifest.write_text(json.dumps({"checksum": body_checksum(body), **body}))
    return path


def other_rows(content: bytes) -> bytes:
    """A Parquet file whose footer counts other rows than there are."""
    return changed(content, pl.read_parquet(content).height, 10**15)


# ---- resume reads records as every other command does ----


@pytest.mark.parametrize("forge", [other_rows, lambda content: b"PAR1"])
@pytest.mark.parametrize("options", [[], ["--workers", "2"]])
def test_records_with_a_right_checksum_may_be_damaged(
    forge: Callable[[bytes], bytes], options: list[str], run: Path, unfinished: Path, cli: Cli
) -> None:
    path = forge_records(run, forge((unfinished / "records/population-0-000001.parquet").read_bytes()))
    assert refused(cli, "best", run) == f"valueshare: {path} is damaged: valueshare resume {run} makes it again\n"
    code, _, err = cli("resume", run, *options)
    assert (code, err) == (0, ""), err
    records = valueshare.open_run(run).records
    assert records["step"].to_list() == [0, 20, 40, 60, 80]


@pytest.mark.parametrize("columns", [pl.col("agent"), pl.all().cast(pl.String)])
def test_records_with_other_columns(columns: pl.Expr, run: Path, unfinished: Path, cli: Cli) -> None:
    table = pl.read_parquet(unfinished / "records/population-0-000001.parquet").select(columns)
    buffer = io.BytesIO()
    table.write_parquet(buffer)
    forge_records(run, buffer.getvalue())
    assert "have other columns than they should" in refused(cli, "resume", run)
    with pytest.raises(InvalidInput, match="have other columns than they should"):
        valueshare.open_run(run)


# ---- resume writes and deletes inside the folder alone ----


def test_the_temporary_name_of_before_is_no_way_out(run: Path, outside: Path, cli: Cli) -> None:
    """Names of temporary files could be guessed: a link there was written through."""
    before = tree(outside)
    for name in ("provenance.json.partial", "progress/population-0.partial"):
        replace_by_link(run / name, outside / ".bashrc")
    (run / "progress" / "population-0.partial").unlink()  # below progress/ any link is refused
    assert cli("resume", run)[0] == 0
    assert tree(outside) == before
    assert valueshare.open_run(run).finished
    assert (run / "provenance.json.partial").is_symlink()  # nobody's business


@pytest.mark.parametrize(
    "name",
    [
        *("config.json", "agents.parquet", "provenance.json", ".lock"),
        *("records", "checkpoints", "checkpoints/population-0", "progress", "tensorboard"),
        *("progress/population-0.json", "progress/population-0.lock"),
        *("progress/population-0.partial", "records/population-0-000002.parquet"),
        *("checkpoints/population-0/state-000002.safetensors", "tensorboard/events"),
    ],
)
def test_links_in_a_run_are_refused(name: str, run: Path, outside: Path, cli: Cli) -> None:
    """To a folder, to a file, and to nothing: all before anything is written."""
    for target in (outside, outside / "thesis.txt", outside / "nothing"):
        replace_by_link(run / name, target)
        before = tree(run.parent)
        assert refused(cli, "resume", run) == f"valueshare: {run / name} {LINKED}\n"
        assert tree(run.parent) == before


def test_a_population_outside_the_folder_is_not_pruned(run: Path, outside: Path, cli: Cli) -> None:
    """The run's checkpoints are there too: it would continue, and delete what it does not know."""
    own = run / "checkpoints" / "population-0"
    for file in own.iterdir():
        shutil.copy(file, outside)
    before = tree(outside)
    replace_by_link(own, outside)
    assert f"{own} {LINKED}" in refused(cli, "resume", run)
    with pytest.raises(InvalidInput, match="is a symbolic link"):  # whoever saves a phase
        remove_partial_files(CheckpointPaths(run, "population-0"))
    assert tree(outside) == before


def test_the_folder_itself_may_be_reached_through_a_link(run: Path, cli: Cli) -> None:
    (run.parent / "link").symlink_to(run)
    assert cli("resume", run.parent / "link")[0] == 0
    assert valueshare.open_run(run).finished


def test_a_shard_that_is_a_link_is_refused(run: Path, cli: Cli) -> None:
    (run.parent / "shards").mkdir()
    (run.parent / "shards" / "shard-1-of-2").symlink_to(run)
    before = tree(run.parent)
    for words in (("resume", run.parent / "shards"), ("train", "--env", "CartPole-v1", "--out")):
        words = words if words[0] == "resume" else (*words, run.parent / "shards")
        assert LINKED in refused(cli, *words, "--shard", "1/2")
    assert tree(run.parent) == before


def test_workers_refuse_links_too(run: Path, outside: Path) -> None:
    """A worker of a cluster may see another filesystem than the driver does."""
    from valueshare.runs.workers.tasks import Task, run_population

    before = tree(outside)
    replace_by_link(run / "progress", outside)
    with pytest.raises(InvalidInput, match=re.escape(f"{run / 'progress'} {LINKED}")):
        run_population(Task(str(run), "population-0", "cpu"))
    assert tree(outside) == before


def test_addresses_that_are_folders(run: Path, outside: Path, cli: Cli) -> None:
    before = tree(outside)
    replace_by_link(run / "lease.json", outside / ".bashrc")
    assert LINKED in refused(cli, "resume", f"local://{run}")
    store = Store(Url(f"local://{run}"))
    replace_by_link(run / "records", outside)
    for name in ("lease.json", "records/thesis.txt"):
        with pytest.raises(InvalidInput, match="is a symbolic link"):
            store.write(name, b"theirs")
        with pytest.raises(InvalidInput, match="is a symbolic link"):
            store.delete(name)
    assert tree(outside) == before


def test_pruning_leaves_what_is_not_ours(run: Path, cli: Cli) -> None:
    own = run / "checkpoints" / "population-0"
    files = (
        *("notes.txt", "state-000000.safetensors.bak", "state-0.safetensors", "checkpoint-x.json"),
        *("frames-000000.safetensors", "replay-000000.json", "state-000001.safetensors.partial"),
    )
    for name in files:
        (own / name).write_text(f"mine: {name}")
    (run / "checkpoints" / "mine.txt").write_text("mine")
    for folder in (own / "folder", own / "state-000009.safetensors", run / "checkpoints" / "more"):
        folder.mkdir()
        (folder / "file").write_text("mine")
    over = own / "frames-000000-0000.safetensors"  # a name that we write, and nothing needs
    over.write_text("x")
    killed = [f"{name}.{'0a' * 8}.partial" for name in ("state-000002.safetensors", "x.txt")]
    for name in killed:
        (own / name).write_text("half")
    (run / f"provenance.json.{'0a' * 8}.partial").write_text("half")
    (run / "records" / f"population-0-000002.parquet.{'0a' * 8}.partial").write_text("half")
    (run / "progress" / f"population-0.json.{'0a' * 8}.partial").write_text("half")

    assert cli("resume", run)[0] == 0

    assert {name: (own / name).read_text() for name in files} == {n: f"mine: {n}" for n in files}
    assert (run / "checkpoints" / "mine.txt").read_text() == "mine"
    for folder in (own / "folder", own / "state-000009.safetensors", run / "checkpoints" / "more"):
        assert (folder / "file").read_text() == "mine"
    assert not over.exists()
    assert not (own / "state-000001.safetensors").exists()
    partials = {str(path.relative_to(run)) for path in run.rglob("*.partial")}
    assert partials == {
        "checkpoints/population-0/state-000001.safetensors.partial",
        f"checkpoints/population-0/{killed[1]}",  # no name of ours
    }


# ---- reports and videos ----


@pytest.mark.parametrize(
    "name", ["report", "report/figures", "report/tables", "report/report.html", "report/figures/a"]
)
def test_a_report_outside_the_folder(name: str, run: Path, outside: Path, cli: Cli) -> None:
    replace_by_link(run / name, outside)
    before = tree(run.parent)
    for words in ((), ("--out", run / "report")):
        told = refused(cli, "report", run, "--resamples", "50", *words)
        assert told == f"valueshare: {run / name} {LINKED}\n"
    assert tree(run.parent) == before


def test_a_report_of_other_results_outside_the_folder(tmp_path: Path, outside: Path, cli: Cli) -> None:
    rows = [("Catch", "PPO", seed, step, 1.0) for seed in (0, 1) for step in (0, 10)]
    columns = ["environment", "algorithm", "seed", "step", "score"]
    (tmp_path / "theirs").mkdir()
    pl.DataFrame(rows, columns, orient="row").write_csv(tmp_path / "theirs" / "results.csv")
    (tmp_path / "theirs" / "report").symlink_to(outside)
    before = tree(tmp_path)
    assert LINKED in refused(cli, "report", tmp_path / "theirs", "--resamples", "50")
    assert tree(tmp_path) == before


def test_a_video_outside_the_folder(run: Path, outside: Path, cli: Cli) -> None:
    (run / "videos").symlink_to(outside)
    (run / "agent.gif").symlink_to(outside / "thesis.txt")
    before = tree(run.parent)
    for file in (run / "videos" / "agent.gif", run / "agent.gif"):
        told = refused(cli, "play", run, "--agent", "0", "--video", file, "--overwrite")
        assert LINKED in told
    assert tree(run.parent) == before


# ---- modules that a run names ----


@pytest.fixture
def named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with an unfinished run that names the module beside it, which marks its import."""
    (tmp_path / "marking.py").write_text(MARKING)
    monkeypatch.syspath_prepend(str(tmp_path))
    small: dict[str, Any] = {"steps": 40, "eval_interval": 20, "eval_episodes": 1, "hidden": [8]}
    small |= {"batch_size": 4, "learning_starts": 10, "eval_episode_limit": 5, "progress": False}
    folder = tmp_path / "run"

    def stop() -> bool:
        return (folder / "checkpoints/population-0/checkpoint-000000.json").exists()

    valueshare.train("marking:own/Marked-v0", seeds=1, out=folder, should_stop=stop, **small)
    forget_module(tmp_path)
    yield tmp_path
    forget_module(tmp_path)


def forget_module(folder: Path) -> None:
    sys.modules.pop("marking", None)
    for name in ("own/Marked-v0", "own/Table-v0"):
        gymnasium.registry.pop(name, None)
    (folder / "imported").unlink(missing_ok=True)


def test_report_and_watch_import_nothing(named: Path, cli: Cli) -> None:
    with undrawn():
        code, _, err = cli("report", named / "run", "--resamples", "50")
    assert (code, err) == (0, "")
    with closing(Clips()) as clips:
        follower = PageUpdater([named / "run"], resamples=50, clips=clips)
        follower.refresh()
        follower.show_clip()
        assert clips.now is not None
        assert clips.now.text.startswith(
            "No clip: marking:own/Marked-v0 needs the module marking, which is not imported"
        )
    # Nor does the process that renders, if the folder is changed after that.
    clip = rendered_clip(named / "run", named / "clip.mp4")
    assert (clip.code, "importing marking" in clip.reason) == (REFUSED, True)
    valueshare.open_run(named / "run")
    assert "marking" not in sys.modules
    assert not (named / "imported").exists()


@pytest.mark.parametrize("shards", [(), ("1/2", "2/2")])
def test_a_report_of_a_tabular_study_imports_nothing(
    shards: Sequence[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    """The command that names the environment imports its module, and draws the report."""
    (tmp_path / "marking.py").write_text(MARKING)
    monkeypatch.syspath_prepend(str(tmp_path))
    folder = tmp_path / "study"
    words = ["tabular", "--env", "marking:own/Table-v0", "--k", "0", "1", "--step-size", "0.1", "0.3"]
    words += ["--seeds", "2", "--steps", "50", "--out", str(folder)]
    for shard in shards:
        assert cli(*words, "--shard", shard)[0] == 0
    if not shards:
        with undrawn():
            assert cli(*words)[0] == 0
        shutil.rmtree(folder / "report")
    forget_module(tmp_path)
    before = tree(folder)
    line = refused(cli, "report", folder)
    assert "'marking:own/Table-v0' needs the module 'marking', which a report does not import" in line
    assert "the `valueshare tabular` command that made it does, given again without --shard" in line
    assert tree(folder) == before
    assert "marking" not in sys.modules
    assert not (tmp_path / "imported").exists()
    with undrawn():
        code, out, _ = cli(*words)
    assert (code, "these results are there already" in out) == (0, True)
    assert (folder / "report" / "figures" / "norms.svg").exists()
    forget_module(tmp_path)


def test_play_and_resume_say_what_they_import(named: Path, cli: Cli) -> None:
    line = "importing marking for marking:own/Marked-v0\n"
    video = named / "agent.gif"
    code, out, _ = cli("play", named / "run", "--agent", "0", "--video", video, "--episode-limit", "2")
    assert (code, out.count(line), out.startswith(line)) == (0, 1, True)
    code, out, _ = cli("resume", named / "run")
    assert (code, out.count(line), out.startswith(line)) == (0, 1, True)
    assert "importing" not in cli("resume", named / "run")[1]  # it is finished


@pytest.mark.parametrize(
    "use",
    [
        lambda folder: valueshare.resume(folder, progress=False),
        lambda folder: valueshare.open_run(folder).evaluate(episodes=1, progress=False),
        lambda folder: valueshare.open_run(folder).agent(0),
    ],
)
def test_it_is_said_from_python_without_a_display_too(
    use: Callable[[Path], object], named: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    use(named / "run")
    assert capsys.readouterr().out == "importing marking for marking:own/Marked-v0\n"
    assert (named / "imported").exists()


def test_the_current_folder_is_no_place_for_modules(named: Path) -> None:
    """`python -m` puts it first in sys.path. PYTHONPATH is its user's own choice."""
    there = {**os.environ, "OMP_NUM_THREADS": "1"}
    there.pop("PYTHONPATH", None)
    words = [sys.executable, "-m", "valueshare", "resume", "run"]
    ended = subprocess.run(words, cwd=named, env=there, capture_output=True, text=True, check=False)
    assert ended.returncode == 2, ended.stderr
    assert "there is no module 'marking' among installed packages or on PYTHONPATH" in ended.stderr
    assert "write PYTHONPATH=. before the command" in ended.stderr
    assert ended.stderr.count("\n") == 1
    assert not (named / "imported").exists()
    there["PYTHONPATH"] = "."
    words[3:] = ["tabular", "--env", "marking:own/Table-v0", "--k", "0", "1", "--step-size", "0.1", "0.3"]
    words += ["--seeds", "2", "--steps", "50", "--shard", "1/1", "--out", "study"]
    ended = subprocess.run(words, cwd=named, env=there, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert (named / "imported").exists()
