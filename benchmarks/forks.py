"""The command `valueshare` in a fork of a process that has imported everything already.

A start of Python with PyTorch takes seconds, a fork some milliseconds. The fork is a session of its
own and calls `valueshare.__main__.run`, as the installed command does, with its words in
`sys.argv`. The parent imports and forks, and computes nothing: besides its own it has only the
threads of Polars' allocator, which the allocator starts again after a fork.
"""

import atexit
import contextlib
import importlib
import os
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "POLARS_MAX_THREADS": "1",
    "NUMBA_NUM_THREADS": "1",
    "OMP_WAIT_POLICY": "PASSIVE",
    "MPLBACKEND": "agg",
}
# Smallest sizes: two populations of one agent each.
SMALL = [
    *("train", "--env", "CartPole-v1", "--algorithm", "ib-dqn", "double-dqn", "--k", "4"),
    *("--seeds", "1", "--steps", "60", "--eval-interval", "20", "--eval-episodes", "1"),
    *("--hidden", "4", "--batch-size", "2", "--replay-capacity", "50", "--learning-starts", "10"),
    *("--eval-episode-limit", "5", "--eval-envs", "1"),
]


class Ended(NamedTuple):
    """How a command ended."""

    code: int | None  # negative: by the signal of that number; None: it has not
    out: str
    err: str


class Command:
    """A command that runs in a fork, alone in its session and in its process group."""

    def __init__(
        self,
        words: Sequence[str],
        output: Path,
        *,
        folder: Path,
        environment: Mapping[str, str] | None = None,
        prepare: Callable[[], None] = lambda: None,
    ) -> None:
        """`prepare` is called in the fork; what it prints goes to `output`.out and `output`.err."""
        self.words = list(words)
        self._files = [output.with_suffix(end) for end in (".out", ".err")]
        for file in self._files:
            file.unlink(missing_ok=True)
            file.touch()
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            self._become(folder, environment or {}, prepare)
        self._descriptor = os.pidfd_open(self.pid)
        self.code: int | None = None
        self.cpu_seconds = 0.0

    def wait(self, seconds: float) -> int | None:
        """Its exit code, where it has one within these seconds."""
        if self.code is None and select.select([self._descriptor], [], [], max(0.0, seconds))[0]:
            _, status, used = os.wait4(self.pid, 0)
            self.code = os.waitstatus_to_exitcode(status)
            self.cpu_seconds = used.ru_utime + used.ru_stime
            os.close(self._descriptor)
        return self.code

    def ended(self) -> Ended:
        out, err = (file.read_bytes().decode(errors="replace") for file in self._files)  # with its carriage returns
        return Ended(self.code, out, err)

    def send(self, number: signal.Signals) -> None:
        if self.code is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill it and everything that it started."""
        for pid in {*session(self.pid), *([self.pid] if self.code is None else [])}:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.wait(30.0)

    def _become(self, folder: Path, environment: Mapping[str, str], prepare: Callable[[], None]) -> None:
        code = 70
        try:
            os.setsid()
            os.chdir(folder)
            os.environ.update(environment)
            tempfile.tempdir = None
            for number, file in zip((1, 2), self._files, strict=True):
                os.dup2(os.open(file, os.O_WRONLY | os.O_APPEND), number)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            sys.argv = ["valueshare", *self.words]
            prepare()
            code = _run()
        except BaseException:
            traceback.print_exc()
        finally:
            with contextlib.suppress(BaseException):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)


def _run() -> int:
    """The installed command, and what the interpreter does after it."""
    from valueshare.__main__ import run

    code = 0
    try:
        run()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 1
    atexit._run_exitfuncs()
    return code


def preload(*rehearsals: Sequence[str]) -> None:
    """Import what the command line needs, and what these commands import while they run."""
    os.environ.update(ONE_THREAD)
    import valueshare.__main__
    import valueshare.cli
    import valueshare.training  # noqa: F401

    for words in rehearsals:
        for name in _imported_by(words):
            with contextlib.suppress(Exception):
                importlib.import_module(name)


def _imported_by(words: Sequence[str]) -> list[str]:
    """The modules that a command imports, as a fork of this process finds out."""
    before = set(sys.modules)
    folder = Path(tempfile.mkdtemp(prefix="rehearsal-"))
    found = folder / "modules"
    try:

        def note() -> None:
            atexit.register(lambda: found.write_text("\n".join(m for m in [*sys.modules] if m not in before)))

        command = Command(words, folder / "said", folder=folder, prepare=note)
        if command.wait(300.0) != 0:
            raise SystemExit(f"{words} does not run:\n{command.ended().err}")
        return found.read_text().split("\n")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def limited(gigabytes: float, cpu_seconds: int) -> Callable[[], None]:
    """Limits of a fork, for its address space and for its time on a core."""

    def prepare() -> None:
        most = int(gigabytes * 2**30)
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
        resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds + 5))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    return prepare


def session(leader: int) -> list[int]:
    """The processes of a session that have not ended."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            fields = (path / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == leader and fields[0] not in "ZX":
            found.append(int(path.name))
    return found


def emptied(leader: int, seconds: float) -> list[int]:
    """Those that are still there after so many seconds; none is what should be."""
    deadline = time.monotonic() + seconds
    while (left := session(leader)) and time.monotonic() < deadline:
        time.sleep(0.02)
    return left
