"""Curves for Weights & Biases: what it gets, and when. A module is in its place, except where it is installed."""

import json
import struct
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest

import valueshare
from valueshare.errors import InvalidInput
from valueshare.extras import install_command
from valueshare.runs.logs import TensorBoardLog


class Fake:
    """The part of `wandb` that is used; runs are kept by their id, as the server does."""

    def __init__(self) -> None:
        self.runs: dict[str, list[dict[str, Any]]] = {}
        self.begun: list[dict[str, Any]] = []
        self.finished = 0
        self.fails_at = 10**9  # step

    def init(self, **options: Any) -> SimpleNamespace:
        if self.fails_at < 0:
            raise RuntimeError("api_key not configured (no-tty)\nmore")
        rows = self.runs.setdefault(options["id"], [])
        self.begun.append(options)

        def log(values: dict[str, Any]) -> None:
            if values["step"] >= self.fails_at:
                raise ConnectionError("no network")
            rows.append(values)

        def finish() -> None:
            self.finished += 1

        return SimpleNamespace(resumed=bool(rows), log=log, finish=finish, define_metric=lambda *a, **k: None)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Fake:
    made = Fake()
    monkeypatch.setitem(sys.modules, "wandb", made)
    monkeypatch.delenv("WANDB_PROJECT", raising=False)
    return made


def scores(rows: list[dict[str, Any]], k: int) -> list[tuple[int, float]]:
    name = f"score/CartPole-v1 ib-dqn k={k}"
    return [(row["step"], row[name]) for row in rows if name in row]


def test_every_evaluation_is_sent_once_and_a_resumed_run_is_the_same(
    tmp_path: Path, fake: Fake, tiny: dict[str, Any]
) -> None:
    folder, left = tmp_path / "run", iter([False] * 60)
    options = {**tiny, "k": [0, 4], "seeds": 2, "log": "wandb"}
    valueshare.train("CartPole-v1", out=folder, **options, should_stop=lambda: next(left, True))
    (rows,) = fake.runs.values()
    assert [row["step"] for row in rows] == [0, 30]
    silent, before = valueshare.resume(folder, progress=False, should_stop=lambda: True), len(fake.begun)
    assert (silent.finished, before) == (False, 1)  # nothing is sent unasked
    run = valueshare.resume(folder, log=["wandb"], progress=False)
    assert len(fake.runs) == 1
    assert fake.finished == len(fake.begun) == 2
    for k in (0, 4):
        table = run.records.join(run.agents.filter(k=float(k)), on="agent")
        means = table.group_by("step").agg(pl.col("score").mean()).sort("step")
        assert [step for step, _ in scores(rows, k)] == means["step"].to_list()
        assert [score for _, score in scores(rows, k)] == pytest.approx(means["score"].to_list())
    first = fake.begun[0]
    assert (first["project"], first["name"], first["resume"]) == ("valueshare", "run", "allow")
    assert first["config"]["settings"]["CartPole-v1"]["steps"] == 60
    assert str(tmp_path) not in str(first)
    valueshare.extend(folder, steps=90, log="wandb", progress=False)
    assert len(fake.runs) == 1  # the same run still
    assert [row["step"] for row in rows] == [0, 30, 60, 90]
    valueshare.train("CartPole-v1", out=tmp_path / "other", **{**options, "seeds": [7]})
    assert len(fake.runs) == 2


def test_a_variant_in_several_populations_is_sent_as_one_curve(
    tmp_path: Path, fake: Fake, tiny: dict[str, Any]
) -> None:
    """Populations of two agents: k = 0 and 0, k = 0 and 4, k = 4 and 4. The run ends within the second of them."""
    folder = tmp_path / "run"
    options = {**tiny, "k": [0, 4], "seeds": 3, "launcher": valueshare.LauncherOptions(population_agents=2)}
    second = folder / "checkpoints" / "population-0-1" / "checkpoint-000000.json"  # of its phase that ends at 30
    valueshare.train("CartPole-v1", "ib-dqn", out=folder, log="wandb", should_stop=second.exists, **options)
    (rows,) = fake.runs.values()
    assert [[step for step, _ in scores(rows, k)] for k in (0, 4)] == [[0, 30], []]
    run = valueshare.resume(folder, log="wandb", progress=False)
    for k in (0, 4):
        table = run.records.join(run.agents.filter(k=float(k)), on="agent")
        means = table.group_by("step").agg(pl.col("score").mean()).sort("step")
        assert [step for step, _ in scores(rows, k)] == means["step"].to_list() == [0, 30, 60]
        assert [score for _, score in scores(rows, k)] == pytest.approx(means["score"].to_list())


def test_failures(
    tmp_path: Path,
    fake: Fake,
    tiny: dict[str, Any],
    capsys: pytest.CaptureFixture[str],
    cli: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fake.fails_at = 30
    run = valueshare.train("CartPole-v1", seeds=1, out=tmp_path / "run", log="wandb", **{**tiny, "progress": True})
    assert run.finished
    note = "note: Weights & Biases failed (no network): nothing more is sent there"
    assert capsys.readouterr().out.count(note) == 1
    fake.fails_at = -1
    closed = list[TensorBoardLog]()
    monkeypatch.setattr(TensorBoardLog, "close", lambda log: closed.append(log))
    with pytest.raises(InvalidInput, match=r"cannot begin \(api_key not configured \(no-tty\)\): write `wandb login`"):
        valueshare.train("CartPole-v1", seeds=1, out=tmp_path / "two", log=["tensorboard", "wandb"], **tiny)
    assert len(closed) == 1
    fake.fails_at = 10**9
    assert valueshare.train("CartPole-v1", seeds=1, out=tmp_path / "two", log="wandb", **tiny).finished
    with pytest.raises(InvalidInput, match="`log = 'mlflow'`: write tensorboard or wandb"):
        valueshare.train("CartPole-v1", out=tmp_path / "three", log="mlflow", **tiny)
    code, out, err = cli("train", "--env", "CartPole-v1", "--log", "mlflow", "--out", tmp_path / "three")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert not (tmp_path / "three").exists()


def test_without_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny: dict[str, Any]) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(InvalidInput) as refused:
        valueshare.train("CartPole-v1", seeds=1, out=tmp_path / "run", log="wandb", **tiny)
    install = install_command("wandb")
    assert str(refused.value) == f"Weights & Biases is not installed: {install}, or leave out `log = 'wandb'`"
    assert not (tmp_path / "run").exists()


def history(path: Path) -> Iterator[dict[str, Any]]:
    """The logged rows in a file of an offline W&B run: Protocol Buffers in the log format of LevelDB."""
    schema: Any = import_module("wandb.proto.wandb_internal_pb2")
    data, at, message = path.read_bytes(), 7, b""  # W&B's header has 7 bytes
    while at + 7 <= len(data):
        left = 2**15 - at % 2**15  # of the block
        if left < 7:
            at += left
            continue
        _, size, kind = struct.unpack_from("<IHB", data, at)  # checksum, size, and 1 for a whole or 4 for a last part
        message += data[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):
            record = schema.Record.FromString(message)
            message = b""
            if record.WhichOneof("record_type") == "history":
                yield {item.key or item.nested_key[0]: json.loads(item.value_json) for item in record.history.item}


@pytest.mark.skipif(find_spec("wandb") is None, reason="wandb is not installed: make test-integrations")
def test_the_package_itself_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny: dict[str, Any]) -> None:
    """Every W&B run of the folder is complete, because a run that is offline cannot be continued."""
    for name, value in {"MODE": "offline", "DIR": str(tmp_path), "SILENT": "true"}.items():
        monkeypatch.setenv(f"WANDB_{name}", value)
    valueshare.train("CartPole-v1", out=tmp_path / "run", k=[0, 4], seeds=2, log="wandb", **tiny)
    run = valueshare.extend(tmp_path / "run", steps=90, log="wandb", progress=False)
    files = sorted(tmp_path.glob("wandb/offline-run-*/*.wandb"), key=lambda path: path.stat().st_mtime)
    assert len({path.name for path in files}) == 1  # the same id
    for path, last in zip(files, (60, 90), strict=True):
        rows = list(history(path))
        for k in (0, 4):
            table = run.records.join(run.agents.filter(k=float(k)), on="agent").filter(pl.col("step") <= last)
            means = table.group_by("step").agg(pl.col("score").mean()).sort("step")
            assert [step for step, _ in scores(rows, k)] == means["step"].to_list()
            assert [score for _, score in scores(rows, k)] == pytest.approx(means["score"].to_list())
