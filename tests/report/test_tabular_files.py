"""Shards of a tabular study: every row exactly once, and together the study to the bit."""

import errno
import json
import os
import shutil
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from undrawn import undrawn

from valueshare import host_memory
from valueshare.cli import main
from valueshare.errors import InvalidInput
from valueshare.experiments.tabular import cell_timesteps, shard_cells, summarize, sweep_studies
from valueshare.experiments.tabular_designs import TabularStudy, gridworld_studies
from valueshare.report.tabular_files import find_tabular, stored_result
from valueshare.runs.launcher_options import LauncherOptions, Shard

SMOKE = gridworld_studies("smoke")
GRID = [(i, k, size) for i, study in enumerate(SMOKE) for k in study.k for size in study.step_size]


@settings(deadline=None)
@given(st.integers(1, len(GRID)))
def test_shards_are_an_exact_partition_in_order(count: int) -> None:
    shards = [shard_cells(SMOKE, Shard(number, count)) for number in range(1, count + 1)]
    pairs = [[(cell.study, k, size) for cell in cells for k in cell.k for size in cell.step_sizes] for cells in shards]
    assert [pair for own in pairs for pair in own] == GRID
    assert max(map(len, pairs)) - min(map(len, pairs)) <= 1
    timesteps = sum(cell_timesteps(SMOKE, cells) for cells in shards)
    assert timesteps == sum(study.timesteps for study in SMOKE)


def test_the_whole_is_a_product_a_study() -> None:
    assert [(cell.k, cell.step_sizes) for cell in shard_cells(SMOKE, None)] == [
        (study.k, study.step_size) for study in SMOKE
    ]
    with pytest.raises(InvalidInput, match="there are 56 pairs of k and step size"):
        shard_cells(SMOKE, Shard(1, 57))


@pytest.fixture(scope="module")
def sharded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The smoke-scale figure in 5 shards, which cut the lines of the grid."""
    folder = tmp_path_factory.mktemp("shards") / "gridworld"
    for number in range(1, 6):
        words = ["reproduce", "gridworld", "--scale", "smoke", "--out", str(folder)]
        main([*words, "--shard", f"{number}/5"])
    return folder


def test_a_shard_is_a_folder_of_its_own(sharded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert {path.name for path in sharded.iterdir()} >= {f"shard-{i}-of-5" for i in range(1, 6)}
    own = sharded / "shard-2-of-5"
    config = json.loads((own / "config.json").read_text())
    assert (config["kind"], config["shard"]) == ("tabular", "2/5")
    origin = json.loads((own / "provenance.json").read_text())
    assert origin["command"] == "valueshare reproduce gridworld --scale smoke --shard 2/5"
    before = (own / "records" / "runs.parquet").stat().st_mtime_ns
    main(["reproduce", "gridworld", "--scale", "smoke", "--out", str(sharded), "--shard", "2/5"])
    assert "this shard is there already" in capsys.readouterr().out
    assert (own / "records" / "runs.parquet").stat().st_mtime_ns == before


@pytest.mark.parametrize("written", [1, 2, 6])
def test_a_full_disk_leaves_nothing_of_the_whole(
    sharded: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    written: int,
) -> None:
    """After so many synced files and folders; the tables come second, the page late."""
    sync, done = os.fsync, list[int]()

    def fsync(handle: int) -> None:
        done.append(handle)
        if len(done) > written:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        sync(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    out = tmp_path / "new" / "out"
    with pytest.raises(SystemExit) as ended, undrawn():
        main(["report", str(sharded), "--out", str(out)])
    said = capsys.readouterr()
    assert (ended.value.code, said.err.count("\n")) == (2, 1)
    assert f"no room on the disk for {out}: make room, or choose another --out" in said.err
    assert list(tmp_path.iterdir()) == []


def test_all_shards_are_the_whole_to_the_bit(sharded: Path, tmp_path: Path) -> None:
    whole, made = tmp_path / "whole", sharded / "report"
    with undrawn():
        main(["reproduce", "gridworld", "--scale", "smoke", "--out", str(whole)])
    main(["report", str(sharded)])
    norms = pl.read_parquet(whole / "report" / "tables" / "norms.parquet")
    learned = norms.filter(pl.col("step") > 0)
    assert learned.height > 0
    for name in ("norm_q", "norm_u", "norm_z"):
        assert learned[name].is_between(learned[f"{name}_ci95_low"], learned[f"{name}_ci95_high"]).all()
    assert pl.read_parquet(made / "tables" / "norms.parquet").equals(norms, null_equal=True)
    mine, theirs = (json.loads((at / "report.json").read_text()) for at in (made, whole / "report"))
    for timing in ("seconds", "timesteps_per_second"):
        del mine["numbers"][timing], theirs["numbers"][timing]
    assert len(mine.pop("sources")) == 5
    del theirs["sources"]
    assert mine == theirs
    for name in ("gridworld", "norms"):
        assert (made / "figures" / f"{name}.png").stat().st_size > 1_000
    page = (made / "report.html").read_text()
    assert "valueshare reproduce gridworld --scale smoke<" in page
    assert "--shard" not in page
    # Named one by one, in any order, they are the same.
    one_by_one, _ = stored_result(find_tabular(sorted(sharded.glob("shard-*"), reverse=True)))
    runs = pl.read_parquet(whole / "records" / "runs.parquet")
    assert one_by_one.runs.equals(runs, null_equal=True)


def test_one_study_in_shards(tmp_path: Path) -> None:
    """An environment without step rewards: its case is null."""
    words = ["tabular", "--env", "FrozenLake-v1", "--k", "0", "1", "--step-size", "0.1", "0.3"]
    words += ["--seeds", "4", "--steps", "200", "--out", str(tmp_path / "all")]
    for number in (1, 2, 3):
        main([*words, "--shard", f"{number}/3"])
    result, _ = stored_result(find_tabular([tmp_path / "all"]))
    study = TabularStudy("FrozenLake-v1", k=(0, 1), step_size=(0.1, 0.3), seeds=4, steps=200)
    whole = summarize([study], *sweep_studies([study], progress=False, launcher=LauncherOptions()))
    assert result.runs.equals(whole.runs, null_equal=True)
    assert result.norms.equals(whole.norms, null_equal=True)
    assert result.figure.equals(whole.figure, null_equal=True)


def test_what_cannot_be_put_together(sharded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def refused(*words: object) -> str:
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            main(["report", *map(str, words), "--out", str(tmp_path / "out")])
        said = capsys.readouterr().err
        assert (end.value.code, said.count("\n")) == (2, 1)
        assert not (tmp_path / "out").exists()
        return said

    def copy(name: str, **changes: object) -> Path:
        folder = tmp_path / name / "shard-2-of-5"
        shutil.copytree(sharded / "shard-2-of-5", folder)
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | changes))
        return folder

    alone = sharded / "shard-4-of-5"
    assert f"shard 1/5, 2/5, 3/5 and 1 more of {sharded} is missing" in refused(alone)
    assert "are the same shard: give one of the two" in refused(sharded, copy("twice"))
    other = copy("other", studies=[])
    assert "is not a shard of the same study as" in refused(alone, other)
    assert "is not: report the shards alone" in refused(sharded, tmp_path)
    assert "it has no verdict for --compare" in refused(sharded, "--compare", "a,b")
    hurt = copy("hurt")
    (hurt / "records" / "runs.parquet").write_bytes(b"no table")
    rest = [sharded / f"shard-{i}-of-5" for i in (1, 3, 4, 5)]
    assert f"{hurt} is damaged (" in refused(hurt, *rest)


def test_a_shard_that_asks_for_more_memory_than_there_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its config.json may ask for anything: here for 20 MB of transitions, where 10 MB are free."""
    words = ["tabular", "--k", "0", "1", "--step-size", "0.1", "--seeds", "2", "--steps", "50", "--out", str(tmp_path)]
    main([*words, "--shard", "1/1"])
    (shard,) = find_tabular([tmp_path])
    file = shard.folder / "config.json"
    config = json.loads(file.read_text())
    config["studies"][0]["action_copies"] = 1_000
    file.write_text(json.dumps(config))
    monkeypatch.setattr(host_memory, "free_bytes", lambda: 10**7)
    with pytest.raises(InvalidInput, match="25 states and 4,000 actions need 64"):
        stored_result(find_tabular([tmp_path]))
