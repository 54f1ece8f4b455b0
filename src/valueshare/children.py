"""Child processes that end with this one: lines of text go in, a result comes out.

`Child` is the parent's side; `serve` is the main function of a child's module.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from valueshare.errors import EnvironmentFailed, InvalidInput, first_line
from valueshare.files import FULL, DiskFull
from valueshare.host_memory import is_out_of_memory

END_SECONDS = 10.0  # to wait for processes that were killed

# Exit codes of a child besides 0; its last line on stdout is then a JSON object with the reason.
DEFECT, REFUSED, NOT_WRITTEN = 1, 2, 74


class ChildResult(NamedTuple):
    """The exit code and the message of a child process."""

    code: int  # negative: by the signal of that number
    reason: str
    errno: int | None = None

    def raise_if_fixable(self) -> None:
        """Raise the error of the child if the user can fix it: invalid input, or a full disk."""
        if self.code == REFUSED:
            raise InvalidInput(self.reason)
        if self.code == NOT_WRITTEN:
            raise (DiskFull if self.errno in FULL else OSError)(self.errno, self.reason)


class Child:
    """A process that runs a module of this package; `text` is its first line of input."""

    def __init__(self, module: str, text: str, *, files: Sequence[int] = ()) -> None:
        """`files` are descriptors that the child inherits, under the same numbers."""
        self._stdout = tempfile.TemporaryFile()  # noqa: SIM115 (closed by `close`)
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", module],
            stdin=subprocess.PIPE,  # stays open: the child ends when it is closed
            stdout=self._stdout,
            env=child_environment(),
            process_group=0,  # Ctrl-C does not reach it, and its own children end with it
            pass_fds=files,
        )
        self.send(text)

    def send(self, text: str) -> None:
        """Send a line of text."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # it has ended already: its result says why
            self._process.stdin.write(text.encode() + b"\n")
            self._process.stdin.flush()

    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def result(self) -> ChildResult:
        """The result of a child that has ended."""
        code, last = self._process.returncode, self._last_line()
        reason = str(last.get("reason", f"its process ended with code {code}"))
        if code < 0:
            reason = f"its process was killed ({signal.Signals(-code).name})"
            if -code == signal.SIGKILL:
                reason += ", as the system does when memory runs out"
        return ChildResult(code, reason, last.get("errno"))

    def kill(self) -> None:
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def close(self) -> None:
        """Wait for its end, after it has ended or was killed, and close its files."""
        with self._stdout:
            if self._process.stdin is not None:
                with suppress(BrokenPipeError):
                    self._process.stdin.close()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(END_SECONDS)

    def _last_line(self) -> dict[str, Any]:
        """Its last line, if that is a JSON object: libraries may have printed other lines."""
        self._stdout.seek(0)
        lines = self._stdout.read().decode(errors="replace").splitlines()
        try:
            last = json.loads(lines[-1]) if lines else {}
        except ValueError:
            return {}
        return last if isinstance(last, dict) else {}


def child_environment() -> dict[str, str]:
    """This process's environment variables, with one thread and the same paths of modules."""
    path = os.pathsep.join(entry or str(Path.cwd()) for entry in sys.path)
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path}


def serve(work: Callable[[str], object], on_message: Callable[[str], None] = lambda line: None) -> None:
    """Call `work` with the first line on stdin, and end the process with it, or when stdin ends.

    The parent has the other end of stdin, which closes when the parent ends, however that happens. Later lines go to
    `on_message`, in a thread of its own.
    """
    # A terminal or a scheduler sends them to all processes: the parent ends its children.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)
    text = sys.stdin.buffer.readline().decode()
    threading.Thread(target=_end_with_parent, args=(on_message,), daemon=True).start()
    code, reason, error_number = 0, "", None
    try:
        work(text)
    except InvalidInput as error:
        code, reason = REFUSED, str(error)
    except OSError as error:
        code, reason = NOT_WRITTEN, error.strerror or str(error)
        error_number = error.errno
    except EnvironmentFailed as error:
        code, reason = DEFECT, str(error)
    except Exception as error:
        code, reason = DEFECT, "".join(traceback.format_exception_only(error)).splitlines()[0]
        if is_out_of_memory(error):
            reason = f"memory ran out ({first_line(error)})"
        else:
            traceback.print_exc()
    if code:
        print(json.dumps({"reason": reason, "errno": error_number}))  # noqa: T201 (for the parent)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # so that libraries cannot change the result at exit


def _end_with_parent(on_message: Callable[[str], None]) -> None:
    for line in sys.stdin.buffer:
        on_message(line.decode())
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)  # with the compilers that it may have started
    os._exit(DEFECT)
