"""Watching a run: served to this machine alone, renewed when a phase ends, ended by Ctrl-C."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import polars as pl
import pytest
from run_configs import write_config
from served import ask, end_phase, make_run, running

import valueshare
from valueshare.analysis.importers.results import Results, read_results
from valueshare.errors import InvalidInput
from valueshare.files import file_digest
from valueshare.report.data import report_data
from valueshare.report.figure_registry import draw_figures
from valueshare.report.findings import compare_all
from valueshare.report.page.live import PageUpdater, View, fingerprint, live_page, progress, share_done
from valueshare.report.page.results import Live
from valueshare.report.page.server import response, server
from valueshare.schema import body_checksum

Visiting = Callable[..., Any]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return make_run(tmp_path / "run")


def test_a_run_of_a_newer_version_is_refused_before_anything_is_served(tmp_path: Path) -> None:
    run = make_run(tmp_path / "runs" / "new", phases=0)
    told = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps(told | {"format": 99, "valueshare": "9.0"}))
    for given in (run, run.parent):
        with pytest.raises(InvalidInput, match=r"new was written by a newer version \(valueshare 9\.0\)"):
            PageUpdater([given])


Served = tuple[PageUpdater, int]


@pytest.fixture
def served(run: Path) -> Iterator[Served]:
    follower = PageUpdater([run], resamples=100)
    follower.refresh()
    with running(follower) as port:
        yield follower, port


def test_the_page_is_served_with_its_version(served: Served) -> None:
    follower, port = served
    response, body = ask(port)
    assert response.status == 200
    assert b"IB-DQN" in body
    assert f'data-version="{follower.view.version}"'.encode() in body
    assert response.getheader("Cache-Control") == "no-store"
    # As a header too: what comes before the page's own line is under it as well.
    policy = response.getheader("Content-Security-Policy")
    assert f'<meta http-equiv="Content-Security-Policy" content="{policy}">'.encode() in body
    for path in ("/state.json", "/none"):
        assert ask(port, path)[0].getheader("Content-Security-Policy") == policy
    _, state = ask(port, "/state.json")
    assert json.loads(state) == {"version": follower.view.version}
    head, nothing = ask(port, method="HEAD")
    assert (head.status, int(head.getheader("Content-Length")), nothing) == (200, len(body), b"")
    assert ask(port, "/../../etc/passwd")[0].status == 404
    assert ask(port, method="POST")[0].status == 501


@pytest.mark.parametrize(
    ("hosts", "status"),
    [
        (["127.0.0.1:5"], 200),
        (["localhost:5"], 200),
        (["LOCALHOST:5"], 200),
        (["127.0.0.1:6"], 403),
        (["evil.example:5"], 403),
        (["127.0.0.1:5.evil.example"], 403),
        (["evil.example:5", "127.0.0.1:5"], 403),
        (["127.0.0.1"], 403),
        ([], 403),
    ],
)
def test_only_its_own_name_is_answered(hosts: list[str], status: int) -> None:
    assert response("/", hosts, 5, View("1", b"page"))[0] == status
    assert response("/state.json", hosts, 5, View("1", b"page"))[0] == status


def test_another_name_is_refused_over_the_wire(served: Served) -> None:
    response, body = ask(served[1], Host="evil.example")
    assert response.status == 403
    assert b"IB-DQN" not in body


def test_it_listens_on_loopback_alone(served: Served) -> None:
    follower, _ = served
    with server(lambda: follower.view) as other:
        assert other.socket.getsockname()[0] == "127.0.0.1"


def test_a_page_is_built_once_a_phase(run: Path) -> None:
    follower = PageUpdater([run], resamples=100)
    assert follower.refresh()
    first = follower.view
    assert not follower.refresh()
    (run / "records" / "p-1.parquet.partial").write_bytes(b"half a phase")
    assert not follower.refresh()
    end_phase(run, 1)
    assert follower.refresh()
    assert follower.view.version != first.version
    assert b"67% of all steps" in follower.view.content  # 20 of 30
    end_phase(run, 2)
    follower.refresh()
    assert b"Finished." in follower.view.content


def test_progress_counts_agents_that_have_not_begun(tmp_path: Path) -> None:
    first, second = make_run(tmp_path / "a", "A", 3), make_run(tmp_path / "b", "B", 1)
    # 4 x 30 and 4 x 10 of 8 x 30 agent-steps.
    assert progress(read_results([first, second])) == {first: (120, 120), second: (40, 120)}
    assert share_done(progress(read_results([first, second]))) == pytest.approx(160 / 240)
    records = pl.read_parquet(second / "records" / "p-0.parquet")
    records.filter(pl.col("agent") < 2).write_parquet(second / "records" / "p-0.parquet")
    assert share_done(progress(read_results([first, second]))) == pytest.approx(140 / 240)


@pytest.mark.parametrize(("lost", "first"), [("", 0), ("population-0/state-000003.safetensors", 120)])
def test_a_run_that_is_trained_again_is_not_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: str, first: int
) -> None:
    """From step 0 without its checkpoints, from 120 of 160 without the newest state; stopped before the next one."""
    monkeypatch.setattr("valueshare.runs.progress.WRITE_SECONDS", 0.0)
    run, left = tmp_path / "run", iter([False] * 8)
    options: dict[str, Any] = {"steps": 160, "eval_interval": 40, "eval_episodes": 1, "eval_episode_limit": 5}
    valueshare.train("CartPole-v1", k=4, seeds=2, out=run, progress=False, learning_starts=150, **options)
    assert progress(read_results(run)) == {run: (320, 320)}
    lost_part = run / "checkpoints" / lost
    shutil.rmtree(lost_part) if lost_part.is_dir() else lost_part.unlink()
    before = fingerprint([run])
    assert not valueshare.resume(run, progress=False, should_stop=lambda: next(left, True)).finished
    assert fingerprint([run]) != before
    (done, planned) = progress(read_results(run))[run]
    assert (2 * first <= done < 2 * (first + 40), planned) == (True, 320)
    assert valueshare.resume(run, progress=False).finished
    assert progress(read_results(run)) == {run: (320, 320)}


def test_a_run_without_records_is_waited_for(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", phases=0)
    follower = PageUpdater([run], resamples=100)
    follower.refresh()
    assert b"Waiting for the first records" in follower.view.content
    end_phase(run, 0)
    follower.refresh()
    assert b"Waiting" not in follower.view.content


def set_age(run: Path, seconds: float) -> None:
    """Make all files of a run older."""
    for file in run.rglob("*.*"):
        os.utime(file, (time.time() - seconds,) * 2)


@pytest.mark.parametrize("phases", [0, 1])
def test_a_run_that_writes_nothing_may_have_been_stopped(tmp_path: Path, phases: int) -> None:
    run = make_run(tmp_path / "run", phases=phases)
    follower = PageUpdater([tmp_path], resamples=50)

    def notice() -> str:
        follower.show_notice()
        return follower.view.notice

    follower.refresh()
    set_age(run, 100)
    assert notice() == ""
    set_age(run, 185)
    resumed = f"No new file for 3 minutes. If training was stopped, this resumes it: valueshare resume {run}"
    assert notice() == resumed
    state = json.loads(response("/state.json", ["127.0.0.1:5"], 5, follower.view)[2])
    assert state["notice"] == resumed
    (run / "progress").mkdir()
    (run / "progress" / "p.json").write_text("{}")  # as the training process does every second
    assert notice() == ""
    set_age(run, 185)
    assert notice() == resumed
    for phase in range(phases, 3):
        end_phase(run, phase)
    follower.refresh()
    set_age(run, 185)
    assert notice() == ""  # finished


def test_a_page_of_other_results_has_no_progress(tmp_path: Path) -> None:
    rows = [{"environment": "Here", "algorithm": "dqn", "seed": 0, "step": step, "score": 1.0} for step in (0, 10)]
    pl.DataFrame(rows).write_csv(tmp_path / "x.csv")
    os.utime(tmp_path / "x.csv", (0, 0))
    follower = PageUpdater([tmp_path / "x.csv"], resamples=50)
    follower.refresh()
    follower.show_notice()
    assert re.search(rb'role="status">This page was made at \d\d:\d\d:\d\d\.<', follower.view.content)
    assert b"<progress" not in follower.view.content
    assert follower.view.notice == ""


def test_the_first_page_of_a_finished_run_says_nothing_of_waiting(tmp_path: Path) -> None:
    follower = PageUpdater([make_run(tmp_path / "run", phases=3)], resamples=100)
    # Served while the records are read, which may take seconds.
    assert b"Reading the records" in follower.view.content
    assert b"No phase has ended" not in follower.view.content
    assert b"Waiting" not in follower.view.content
    follower.refresh()
    assert b"Finished." in follower.view.content


def test_a_page_that_cannot_be_built_does_not_end_the_watch(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    follower, stop = PageUpdater([run], resamples=100), threading.Event()
    before, tries = follower.view, []

    def fails() -> bool:
        tries.append(1)
        if len(tries) == 2:
            stop.set()
        raise ZeroDivisionError("of nothing")

    monkeypatch.setattr(follower, "refresh", fails)
    monkeypatch.setattr("valueshare.report.page.live.POLL_SECONDS", 0.01)
    follower.follow(stop)
    assert follower.view == before
    assert capsys.readouterr().err == "valueshare: the page was not refreshed: of nothing\n"  # once


def test_an_error_that_comes_back_after_a_good_page_is_printed_again(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    follower, stop, tries = PageUpdater([run], resamples=100), threading.Event(), []

    def refresh() -> bool:
        tries.append(1)
        if len(tries) == 3:
            stop.set()
        if len(tries) != 2:
            raise ZeroDivisionError("of nothing")
        return True

    monkeypatch.setattr(follower, "refresh", refresh)
    monkeypatch.setattr("valueshare.report.page.live.POLL_SECONDS", 0.01)
    monkeypatch.setattr("valueshare.report.page.live.SHARE", 1e9)
    follower.follow(stop)
    assert capsys.readouterr().err == "valueshare: the page was not refreshed: of nothing\n" * 2


def test_a_page_that_could_not_be_built_once_is_built_again(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last change of a run is followed by no other that would have it built."""
    follower = PageUpdater([run], resamples=100)
    before = follower.view
    with monkeypatch.context() as patched:
        patched.setattr("valueshare.report.page.live.report_data", lambda *_: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            follower.refresh()
    assert follower.view == before
    assert follower.refresh()
    assert b"33% of all steps" in follower.view.content
    assert not follower.refresh()


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="does not exist"):
        PageUpdater([tmp_path / "nowhere"])
    with pytest.raises(InvalidInput, match="holds no records"):
        PageUpdater([tmp_path])
    with pytest.raises(InvalidInput, match="no runs are given"):
        PageUpdater([])


def test_a_port_that_is_taken_is_said(served: Served) -> None:
    follower, port = served
    with pytest.raises(InvalidInput, match=f"`port = {port}`: address already in use"):
        server(lambda: follower.view, port)
    with pytest.raises(InvalidInput, match="0 to 65535"):
        server(lambda: follower.view, 70_000)


def test_a_phase_is_shown_when_its_manifest_is_there(run: Path) -> None:
    """Records come first: what they hold counts when a manifest names them, and not before."""
    folder = run / "checkpoints" / "p"
    folder.mkdir(parents=True)

    def commit(phase: int) -> None:
        names = [f"p-{index}.parquet" for index in range(phase + 1)]
        sums = {name: file_digest(run / "records" / name) for name in names}
        body = {"phase": phase, "records": sums}
        written = {"checksum": body_checksum(body), **body}
        (folder / f"checkpoint-{phase:06d}.json").write_text(json.dumps(written))

    commit(0)
    follower = PageUpdater([run], resamples=50)
    assert follower.refresh()
    assert b"33% of all steps" in follower.view.content
    end_phase(run, 1)
    assert follower.refresh()
    assert b"33% of all steps" in follower.view.content
    commit(1)
    assert follower.refresh()
    assert b"67% of all steps" in follower.view.content


@pytest.mark.parametrize(("env", "step"), [("Here", 0), ("Pong", 10)])
def test_one_evaluation_is_drawn_without_a_warning(env: str, step: int) -> None:
    """Warnings are errors here. A line of one point would be nothing: it has a dot."""
    envs = [env, "Alien"] if env == "Pong" else [env]
    table = pl.DataFrame(
        [(one, "ib-dqn", k, seed, step, k + seed) for one in envs for k in (0.0, 1.0, 4.0)
         for seed in (0, 1)],
        ["env", "algorithm", "k", "seed", "step", "score"], orient="row",
    )  # fmt: skip
    data = report_data(Results(table.with_columns(overestimation=pl.col("score")), (), ()), 50)
    assert 'id="figure-learning-curves"' in live_page(data, compare_all(data), Live("1", "Running."))
    (drawn,) = draw_figures(data, ["learning-curves"])
    assert {line.get_marker() for axes in drawn.figure.axes for line in axes.lines} == {"o"}


def test_a_figure_that_is_not_possible_yet_is_noted() -> None:
    """So far DQN has results of one game, and IB-DQN of another."""
    games = {"Pong": ("dqn", 0.0), "Alien": ("ib-dqn", 18.0)}
    table = pl.DataFrame(
        [(env, *who, seed, step, float(seed)) for env, who in games.items() for seed in (0, 1) for step in (10, 20)],
        ["env", "algorithm", "k", "seed", "step", "score"], orient="row",
    )  # fmt: skip
    data = report_data(Results(table, (), ()), 50)
    page = live_page(data, compare_all(data), Live("1", "Running."))
    assert 'id="figure-learning-curves"' in page
    assert 'id="figure-auc-change"' not in page
    assert "The figure auc-change is not shown: there are no runs of ib-dqn k=18" in page
    assert "The figure settings-map is not shown" not in page  # which these runs will never have


def test_the_fingerprint_sees_records_and_no_states(run: Path) -> None:
    before = fingerprint([run])
    (run / "checkpoints").mkdir()
    (run / "checkpoints" / "state-000001.safetensors").write_bytes(b"x")
    assert fingerprint([run]) == before
    end_phase(run, 1)
    assert fingerprint([run]) != before


def test_the_time_of_an_evaluation_that_comes_later_is_shown(run: Path) -> None:
    """The progress file is written last, and every second: only its evaluations count."""
    follower = PageUpdater([run], resamples=50)
    follower.refresh()
    progress = run / "progress" / "p.json"
    progress.parent.mkdir()
    progress.write_text('{"seconds": 3.0}')
    follower.refresh()
    assert b'"clock":[' not in follower.view.content
    progress.write_text('{"seconds": 4.0}')
    assert not follower.refresh()
    progress.write_text('{"seconds": 4.0, "evaluations": [[10, 4.0]]}')
    assert follower.refresh()
    assert b'"clock":[' in follower.view.content


def test_the_page_follows_the_run_and_keeps_choices(run: Path, served: Served, visit: Visiting) -> None:
    follower, port = served
    seen = visit()
    page = seen.page
    page.goto(f"http://127.0.0.1:{port}/")
    page.locator("[data-key='DQN']").uncheck(force=True)
    page.locator("#panel-seeds").check()
    page.locator("#groups th").nth(2).get_by_role("button").click()  # by k, the largest first
    page.get_by_text("Every agent").click()
    page.wait_for_selector("#every-agent tbody tr")
    assert "33% of all steps" in page.inner_text("#live")
    end_phase(run, 1)
    follower.refresh()
    page.locator("#live", has_text="67%").wait_for()
    assert [len(curve) for curve in seen.curves()] == [2]  # the other is still off, and there is a second point
    assert page.locator("#panel-seeds").is_checked()
    assert page.locator("#groups th").nth(2).get_attribute("aria-sort") == "descending"
    assert page.locator("#groups tbody tr").first.inner_text().startswith("Here\tIB-DQN(4)")
    assert page.locator("#every-agent tbody tr").count() == 4
    assert seen.said == []
    assert {url.split("/")[2] for url in seen.asked if url.startswith("http")} == {f"127.0.0.1:{port}"}


def test_a_waiting_page_becomes_the_page(tmp_path: Path, visit: Visiting) -> None:
    run = make_run(tmp_path / "run", phases=0)
    follower = PageUpdater([run], resamples=100)
    follower.refresh()
    seen = visit()
    with running(follower) as port:
        seen.page.goto(f"http://127.0.0.1:{port}/")
        assert "Waiting" in seen.page.inner_text("h1")
        end_phase(run, 0)
        follower.refresh()
        seen.page.wait_for_selector("#panel-plot canvas", state="attached")
    seen.page.locator("#live", has_text="No longer followed").wait_for()
    assert "Start valueshare watch again" in seen.page.inner_text("#live")


def test_the_page_shows_a_notice_and_goes_on_after_a_pause_of_the_server(
    run: Path, served: Served, visit: Visiting
) -> None:
    follower, port = served
    page = visit(viewport={"width": 390, "height": 800}).page
    set_age(run, 185)
    follower.show_notice()
    page.goto(f"http://127.0.0.1:{port}/")
    notice = page.locator("#live .notice")
    assert not notice.is_visible()
    notice.get_by_text("valueshare resume").wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    before = page.inner_text("#live .state")
    assert before.startswith("33% of all steps")
    page.route("**/state.json", lambda route: route.abort())
    page.locator("#live.ended", has_text="No longer followed").wait_for()
    page.unroute("**/state.json")
    page.locator("#live:not(.ended)", has_text=before).wait_for()
    end_phase(run, 1)
    follower.refresh()
    follower.show_notice()
    page.locator("#live", has_text="67%").wait_for()
    assert not notice.is_visible()


CLIPS = "valueshare-copies-*/.copy-*"  # in the folder for temporary files


@pytest.mark.parametrize(
    ("number", "exit_code"), [pytest.param(signal.SIGINT, 0, marks=pytest.mark.slow), (signal.SIGTERM, 143)]
)
def test_a_page_that_is_still_being_built_does_not_abort_the_process(run: Path, number: int, exit_code: int) -> None:
    """A thread that is in C++ when the interpreter ends would: here in a matrix product that takes long."""
    script = f"""
        import os, sys, threading, torch
        from valueshare.__main__ import run
        from valueshare.report.page.live import PageUpdater

        def busy(self):
            threading.Timer(0.5, os.kill, (os.getpid(), {int(number)})).start()
            while True:
                torch.ones(1_000, 1_000) @ torch.ones(1_000, 1_000)

        PageUpdater.refresh = busy
        sys.argv[1:] = ["watch", {str(run)!r}, "--port", "0", "--no-clips"]
        run()
        """
    done = subprocess.run(
        [sys.executable, "-c", dedent(script)],
        capture_output=True,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert done.returncode == exit_code
    assert done.stderr == ("stopped\n" if number == signal.SIGINT else "")


@pytest.mark.parametrize("options", [[], pytest.param(["--no-clips"], marks=pytest.mark.slow)])  # less to end
def test_ctrl_c_ends_it_cleanly(run: Path, options: list[str]) -> None:
    other = shutil.copytree(run, run.with_name("other"))
    agents = pl.read_parquet(other / "agents.parquet").with_columns(env=pl.lit("There"))
    agents.write_parquet(other / "agents.parquet")
    write_config(other, {"There": {"steps": 30}})
    with subprocess.Popen(
        [sys.executable, "-m", "valueshare", "watch", str(run), str(other), "--port", "0", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "TMPDIR": str(run.parent)},
        # A shell has its background jobs ignore Ctrl-C, and their children with them.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            line = process.stdout.readline()
            port = int(line.split(":")[2].split("/")[0])
            assert line == f"http://127.0.0.1:{port}/ shows {run} and 1 more; Ctrl-C ends it\n"
            assert ask(port, "/state.json")[0].status == 200
            assert len(list(run.parent.glob(CLIPS))) == (0 if options else 1)
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=120) == 0
        finally:
            process.kill()  # or leaving this block would wait for ever
        assert not list(run.parent.glob(CLIPS))
        assert process.stdout.read() == ""
        assert process.stderr.read() == "stopped\n"
