"""Callbacks after each evaluation: what they get, where they run, and what a run folder may import for them."""

import json
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch

import valueshare
from valueshare.errors import CallbackFailed, InvalidInput
from valueshare.runs.callbacks import resolve_callbacks
from valueshare.runs.launcher_options import LauncherOptions
from valueshare.runs.run import Run

MODULE = """
import pathlib

pathlib.Path(__file__).with_name("imported").touch()
steps = []


def log(records, run):
    steps.append(records["step"].max())


def fail(records, run):
    if records["step"].max() >= 60:
        raise ValueError("no\\nroom")


def alone(records):
    pass


number = 3
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "modules"
    folder.mkdir()
    (folder / "own_callbacks.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(folder))
    sys.modules.pop("own_callbacks", None)
    return folder


async def coroutine(records: pl.DataFrame, run: Run) -> None:
    pass


class Awaited:
    async def __call__(self, records: pl.DataFrame, run: Run) -> None:
        pass


def generator(records: pl.DataFrame, run: Run) -> Iterator[None]:
    yield


def words(out: Path, *more: object) -> list[object]:
    small = (
        "--seeds 2 --steps 90 --eval-interval 30 --eval-episodes 1 --eval-episode-limit 10 --hidden 8 --batch-size 4"
    )
    return ["train", "--env", "CartPole-v1", *small.split(), "--learning-starts", 10, "--out", out, *more]


def test_episodes_that_a_callback_plays_are_kept_at_an_address(tmp_path: Path, tiny: dict[str, Any]) -> None:
    def play(records: pl.DataFrame, run: Run) -> None:
        run.evaluate(episodes=2, seeds_from=int(records["step"].max()), progress=False)  # type: ignore[arg-type]

    url = f"local://{tmp_path}/run"
    run = valueshare.train("CartPole-v1", "dqn", seeds=1, out=url, callbacks=[play], **tiny)
    assert valueshare.open_run(url).evaluations.select("step", "seed").rows() == [
        (30, 30),
        (30, 31),
        (60, 60),
        (60, 61),
    ]
    assert run.evaluations.height == 4


def test_a_function_gets_records_and_policies_of_the_current_weights(tmp_path: Path, tiny: dict[str, Any]) -> None:
    calls: list[tuple[pl.DataFrame, pl.DataFrame, int, torch.Tensor]] = []

    def see(records: pl.DataFrame, run: Run) -> None:
        policy = run.agent(1)
        weight = next(policy.network.parameters()).clone()
        calls.append((records, run.records, policy.steps, weight))
        assert policy([0.0, 0.1, 0.0, 0.1]) in (0, 1)

    run = valueshare.train("CartPole-v1", seeds=2, out=tmp_path / "run", callbacks=[see], **tiny)
    assert [steps for _, _, steps, _ in calls] == [30, 60]
    assert [sorted(records["step"].unique()) for records, *_ in calls] == [
        [0, 30],
        [60],
    ]  # the first one has step 0 too
    assert pl.concat([records for records, *_ in calls]).sort("agent", "step").equals(run.records)
    assert calls[-1][1].equals(run.records)
    assert not torch.equal(calls[0][3], calls[1][3])
    assert torch.equal(calls[1][3], next(run.agent(1).network.parameters()))
    plain = valueshare.train("CartPole-v1", seeds=2, out=tmp_path / "plain", **tiny)
    assert plain.records.equals(run.records)  # no number changes
    assert "callbacks" not in json.loads((tmp_path / "run" / "provenance.json").read_text())


def test_an_exception_ends_the_run_where_it_can_be_resumed(
    tmp_path: Path, module: Path, cli: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", "my code")
    out = tmp_path / "run"
    code, _, err = cli(*words(out, "--callback", "own_callbacks:fail", "own_callbacks:log"))
    assert (code, err.count("\n")) == (1, 1)
    line = r"the callback own_callbacks:fail raised ValueError: no room \(own_callbacks.py, line 14\); all checkpoints "
    assert re.search(line + "are intact; fix it, then resume with: PYTHONPATH='my code' valueshare resume", err)
    assert valueshare.open_run(out).records["step"].max() == 60
    assert json.loads((out / "provenance.json").read_text())["callbacks"] == ["own_callbacks:fail", "own_callbacks:log"]
    code, said, err = cli("resume", out)  # the module of the run is named before it is imported
    assert (code, "importing own_callbacks for the callback own_callbacks:fail\n" in said) == (1, True)
    code, said, _ = cli("resume", out, "--callback", "own_callbacks:log")
    assert (code, "importing" in said) == (0, False)  # finished after the last failure
    assert f"\n  valueshare play {out} " in said  # it calls none


def test_a_third_party_callback_is_announced_or_left_out(
    tmp_path: Path,
    module: Path,
    cli: Callable[..., Any],
    tiny: dict[str, Any],
    capsys: pytest.CaptureFixture[str],
) -> None:
    out, left = tmp_path / "run", iter([False] * 45)
    run = valueshare.train(
        "CartPole-v1", seeds=1, out=out, callbacks=["own_callbacks:log"], **tiny, should_stop=lambda: next(left, True)
    )
    assert not run.finished
    mark = module / "imported"
    mark.unlink()
    del sys.modules["own_callbacks"]
    for command in ("report", "evaluate", "play"):
        cli(command, out, *(["--agent", "0", "--video", tmp_path / "a.gif"] if command == "play" else []))
        assert not mark.exists()
    copy = shutil.copytree(out, tmp_path / "copy")
    valueshare.resume(copy, progress=False)
    assert capsys.readouterr().out == "importing own_callbacks for the callback own_callbacks:log\n"
    assert mark.exists()
    mark.unlink()
    del sys.modules["own_callbacks"]
    code, said, _ = cli("resume", out, "--no-callbacks")
    assert (code, "importing" in said, mark.exists()) == (0, False, False)
    code, said, err = cli("resume", out, "--no-callbacks", "--callback", "own_callbacks:log")
    assert (code, said, err.count("\n")) == (2, "", 1)
    path = out / "provenance.json"
    for names in (["os; rm"], [3], "own_callbacks:log", ["a:b"] * 17):
        path.write_text(json.dumps({**json.loads(path.read_text()), "callbacks": names}))
        with pytest.raises(InvalidInput, match=r"write module:function|is damaged"):
            valueshare.extend(out, steps=90, progress=False)
    assert not mark.exists()


class Counter:
    def __call__(self, *records_and_run: object) -> None:
        pass


def test_workers_and_what_is_no_callback_are_refused(
    tmp_path: Path, module: Path, cli: Callable[..., Any], tiny: dict[str, Any]
) -> None:
    for wrong, line in (
        ("own_callbacks", "write module:function, like my_module:log"),
        ("no_such_module:f", "cannot be imported (ModuleNotFoundError: No module named 'no_such_module')"),
        (
            "own_callbacks:zz",
            "the callback own_callbacks:zz cannot be imported (AttributeError: module 'own_callbacks' has no attribute",
        ),
        ("own_callbacks:number", "is not a function"),
        (
            "own_callbacks:alone",
            "the callback own_callbacks:alone takes (records), and is called with (records, run): ",
        ),
    ):
        code, out, err = cli(*words(tmp_path / "run", "--callback", wrong))
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert line in err
        assert tuple(cli(*words(tmp_path / "run", "--callback", wrong, "--plan"))) == (2, "", err)
    code, _, err = cli(*words(tmp_path / "run", "--callback", "own_callbacks:log", "--workers", 2))
    assert (code, err.count("\n")) == (2, 1)
    advice = "write --workers 1 or leave out --callback; resume and extend have --no-callbacks too\n"
    assert err == f"valueshare: --workers 2: callbacks are called in the one process that trains; {advice}"
    with pytest.raises(InvalidInput, match="give a function"):
        valueshare.train("CartPole-v1", out=tmp_path / "run", callbacks=[3], **tiny)  # type: ignore[list-item]
    wrong_functions: dict[str, Any] = {
        r"takes \(\), and is called with \(records, run\): too many": lambda: None,
        r"takes \(a, b, c\), and is called with .*missing a required argument: 'c'": lambda a, b, c: None,
        "is a coroutine, which nothing awaits": coroutine,
        "Awaited is a coroutine, which nothing awaits": Awaited(),
        "generator is a generator, which nothing iterates: write it without yield": generator,
    }
    for message, function in wrong_functions.items():
        with pytest.raises(InvalidInput, match=f"^the callback .*{message}"):
            valueshare.train("CartPole-v1", out=tmp_path / "run", callbacks=[function], **tiny)
    with pytest.raises(InvalidInput, match="give a list of functions"):
        valueshare.train("CartPole-v1", out=tmp_path / "run", callbacks="a:b", **tiny)
    assert not (tmp_path / "run").exists()

    def leave(records: pl.DataFrame, run: Run) -> None:
        sys.exit(3)

    with pytest.raises(CallbackFailed, match=r"the callback .*leave raised SystemExit: 3 \(test_callbacks.py, line"):
        valueshare.train("CartPole-v1", out=tmp_path / "run", callbacks=[leave], **tiny)
    shutil.rmtree(tmp_path / "run")
    with pytest.raises(
        CallbackFailed, match=r"^the callback .*<lambda> raised ZeroDivisionError: .* \(test_callb"
    ) as one:
        valueshare.train("CartPole-v1", out=tmp_path / "run", callbacks=[lambda records, run: 1 / 0], **tiny)
    assert isinstance(one.value.__cause__, ZeroDivisionError)
    for function in (print, partial(print, 1), Counter()):  # no signature to read, or one that fits
        assert resolve_callbacks([function])[0].function is function
    assert LauncherOptions().workers == 0  # chosen: one process
