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
from importlib.util import find_spec
from pathlib import Path

import pytest
from page_commands import SMALL, command_text
from page_snippets import ROOT, Snippet, snippets
from replaced_options import replaced

PAGE = snippets(ROOT / "docs" / "clusters.md")
# It stays in the foreground, so that it can be ended without `ray stop`. Ray lets no node join at 127.0.0.1.
NODE = "--node-ip-address 127.0.0.1 --num-cpus 2 --object-store-memory 80000000 --include-dashboard false --block"
LOOPBACK = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER=0"  # as the page says
pytestmark = pytest.mark.slow


def commands(pattern: str) -> list[Snippet]:
    return [snippet for snippet in PAGE if snippet.kind == "command" and re.search(pattern, snippet.text)]


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def address(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a cluster of one node, started by the command of the page."""
    if find_spec("ray") is None:
        pytest.skip("ray is not installed")
    monkeypatch.setenv(*LOOPBACK.split("="))
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (command,) = commands("^ray start --head")
    words = shlex.split(f"{command.text.replace('6379', str(port))} {NODE}")
    log = tmp_path_factory.mktemp("ray") / "log"
    with log.open("w") as file:
        program = [sys.executable, "-m", "ray.scripts.scripts", *words[1:]]
        head = subprocess.Popen(program, stdout=file, stderr=file)
    try:
        wait_until(lambda: "Ray runtime started" in log.read_text(), 60)
        yield f"127.0.0.1:{port}"
    finally:
        head.terminate()
        head.wait(60)


def wait_until(there: Callable[[], bool], seconds: float) -> None:
    end = time.monotonic() + seconds
    while not there():
        assert time.monotonic() < end
        time.sleep(0.1)


def test_commands_that_use_ray(address: str) -> None:
    """At a folder that all nodes see, and at a URL; a run is resumed on Ray that was begun without.

    In processes of their own, because Ray reads the variable when it is imported.
    """
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
        program = [sys.executable, "-m", *replaced(shlex.split(text), options)]
        ended = subprocess.run(program, capture_output=True, text=True, check=False)
        assert ended.returncode == 0, f"{command}: {ended.stderr}"
    assert list(Path("shared/runs/cartpole/records").iterdir())
    assert list(Path("bucket/runs/cartpole/records").iterdir())


# Programs that the scripts call; what they were called with is in the file `calls`.
SCRIPT = """#!/bin/bash
echo "${0##*/} $@" >> calls
"""
VALUESHARE = f"""{SCRIPT}
words=$(sed -E 's/--env [^ ]*/--env CartPole-v1/; s/--k [^-]*/--k 4 /' <<< "$*")
words=$(sed -E 's/--(device|seeds) [^ ]*//g; s/--launcher.*//' <<< "$words")
small="--seeds 8 --steps 4000 --eval-interval 100 --eval-episodes 1 --eval-episode-limit 20 --hidden 8 --device cpu
    --no-compile --workers 1"
[ "$1" = resume ] && small=
exec {shlex.quote(sys.executable)} -m valueshare $words $small
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
    wait_until(lambda: job.poll() is not None or any(Path("shared").rglob("records/*.parquet")), 60)
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
