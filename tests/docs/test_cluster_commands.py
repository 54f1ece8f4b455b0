"""The commands of docs/clusters.md on a cluster of this machine, and its scripts with replacements for Slurm."""

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from page_commands import SMALL, Cli, command_text
from page_snippets import ROOT, Snippet, snippets

from valueshare.runs.storage import leases

PAGE = snippets(ROOT / "docs" / "clusters.md")
# Of both nodes; they stay in the foreground, so that they can be ended without `ray stop`.
NODE = "--node-ip-address 127.0.0.1 --num-cpus 1 --object-store-memory 80000000 --block"
LOOPBACK = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER=0"  # as the page says
pytestmark = pytest.mark.slow


def commands(pattern: str) -> list[Snippet]:
    return [snippet for snippet in PAGE if snippet.kind == "command" and re.search(pattern, snippet.text)]


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(leases, "SETTLE_SECONDS", 0.05)


@pytest.fixture
def address(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a cluster of two nodes, started by the commands of the page."""
    pytest.importorskip("ray")
    monkeypatch.setenv(*LOOPBACK.split("="))
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    at = f"127.0.0.1:{port}"
    head, node = commands("^ray start")
    log = tmp_path_factory.mktemp("ray") / "log"
    started: list[subprocess.Popen[bytes]] = []
    try:
        with log.open("w") as file:
            for command, more in ((head, ["--include-dashboard", "false"]), (node, [])):
                words = shlex.split(command.text.replace("HOST:6379", at).replace("6379", str(port)) + f" {NODE}")
                program = [sys.executable, "-m", "ray.scripts.scripts", *words[1:], *more]
                started.append(subprocess.Popen(program, stdout=file, stderr=file, start_new_session=True))
                wait_until(lambda: log.read_text().count("Ray runtime started") == len(started), 60)
        yield at
    finally:
        for process in reversed(started):
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(60)


def wait_until(there: Callable[[], bool], seconds: float) -> None:
    end = time.monotonic() + seconds
    while not there():
        assert time.monotonic() < end
        time.sleep(0.1)


def test_commands_that_use_ray(address: str, cli: Cli) -> None:
    """At a folder that all nodes see, and at a URL; a run is resumed on Ray that was begun without."""
    assert LOOPBACK in (ROOT / "docs" / "clusters.md").read_text(encoding="utf-8")
    on_ray = commands("--launcher ray$|--launcher ray .*--out")
    (begun,) = commands(r"train .*--out s3://")
    assert [snippet.text.split()[1] for snippet in on_ray] == ["train", "resume"]
    at_ray = ["--ray-address", address]
    for command, options in (
        (on_ray[0], [*SMALL.split()[:-2], *at_ray]),  # without --workers
        (begun, SMALL.split()),
        (on_ray[1], at_ray),
    ):
        text = command_text(command)
        ended = cli(*shlex.split(text)[1:], *options)
        assert ended.code == 0, f"{command}: {ended.err}"
    assert list(Path("shared/runs/cartpole/records").iterdir())
    assert list(Path("bucket/runs/cartpole/records").iterdir())


# Programs that the scripts call; what they were called with is in the file `calls`.
SCRIPT = """#!/bin/bash
echo "${0##*/} $@" >> calls
"""
VALUESHARE = f"""{SCRIPT}
words="$*"
small="--env CartPole-v1 --k 4 --seeds 8 --steps 4000 --eval-interval 100 --eval-episodes 1 --eval-episode-limit 20
    --hidden 8 --device cpu --no-compile --workers 1"
[ "$1" = resume ] && small=
exec {shlex.quote(sys.executable)} -m valueshare ${{words/--launcher ray --ray-address first:6379/}} $small
"""
REPLACED = {"hostname": "echo first", "scontrol": SCRIPT, "sleep": "", "srun": SCRIPT, "valueshare": VALUESHARE}


@pytest.mark.parametrize("script", [s for s in PAGE if s.kind == "script"], ids=lambda script: script.section)
def test_a_script_is_requeued_and_finishes(script: Snippet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    for name, program in REPLACED.items():
        (tmp_path / "bin" / name).write_text(program if program.startswith("#!") else f"#!/bin/bash\n{program}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "1")
    text = re.sub(r"(?<=run=)/shared\b", "shared", script.text)
    assert text != script.text
    Path("job.sh").write_text(text)

    def start() -> subprocess.Popen[str]:
        return subprocess.Popen(["bash", "job.sh"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

    job = start()
    wait_until(lambda: any(Path("shared").rglob("records/*.parquet")), 120)
    job.send_signal(signal.SIGUSR1)
    _, said = job.communicate(timeout=120)
    assert job.returncode == 75, said
    before = Path("calls").read_text().splitlines()
    assert before[-1] == "scontrol requeue 7"
    assert any(call.startswith("valueshare train ") for call in before)
    job = start()
    _, said = job.communicate(timeout=300)
    assert job.returncode == 0, said
    after = Path("calls").read_text().splitlines()[len(before) :]
    assert any(call.startswith("valueshare resume shared/runs/") for call in after)
    assert not any(call.startswith("scontrol") for call in after)
