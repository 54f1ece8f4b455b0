"""Processes that this one starts and that end with it: lines of text go in, an answer comes out.

`Child` is one of them as its parent sees it; `obey` is what a child's module does when it is run.
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
from valueshare.host_memory import is_out_of_memory

END_SECONDS = 10.0  # for processes that were killed

# How a child ends, besides 0; its last line on stdout is then a JSON object that says why.
DEFECT, REFUSED, NOT_WRITTEN = 1, 2, 74


class Answer(NamedTuple):
    """How a child ended."""

    code: int  # negative: by the signal of that number
    why: str
    errno: int | None = None

    def raise_if_mendable(self) -> None:
        """What the caller or the machine's owner can mend is raised as it was there."""
        if self.code == REFUSED:
            raise InvalidInput(self.why)
        if self.code == NOT_WRITTEN:
            raise OSError(self.errno, self.why)


class Child:
    """A process of a module of this package, which gets a first line of text."""

    def __init__(self, module: str, text: str, *, files: Sequence[int] = ()) -> None:
        """`files` are descriptors that it may use, under the same numbers."""
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 (closed by `close`)
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", module],
            stdin=subprocess.PIPE,  # stays open: the child ends when it is closed
            stdout=self._said,
            env=child_environment(),
            process_group=0,  # a terminal's Ctrl-C does not reach it, and its children end with it
            pass_fds=files,
        )
        self.tell(text)

    def tell(self, text: str) -> None:
        """A line more."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # it has ended already: its answer says why
            self._process.stdin.write(text.encode() + b"\n")
            self._process.stdin.flush()

    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def answer(self) -> Answer:
        """How it ended, which it has. Where it says nothing of itself, a signal ended it."""
        code, said = self._process.returncode, self._last_line()
        why = str(said.get("why", f"its process ended with code {code}"))
        if code < 0:
            why = f"its process was killed ({signal.Signals(-code).name})"
            if -code == signal.SIGKILL:
                why += ", as the system does when memory runs out"
        return Answer(code, why, said.get("errno"))

    def kill(self) -> None:
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def close(self) -> None:
        """Wait for its end, which it has come to or was told to."""
        with self._said:
            if self._process.stdin is not None:
                with suppress(BrokenPipeError):
                    self._process.stdin.close()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(END_SECONDS)

    def _last_line(self) -> dict[str, Any]:
        """Its last line, where that is an answer: libraries may have written there as well."""
        self._said.seek(0)
        lines = self._said.read().decode(errors="replace").splitlines()
        try:
            said = json.loads(lines[-1]) if lines else {}
        except ValueError:
            return {}
        return said if isinstance(said, dict) else {}


def child_environment() -> dict[str, str]:
    """This process's own, with one thread, and with its modules: they come from the same places."""
    path = os.pathsep.join(place or str(Path.cwd()) for place in sys.path)
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path}


def obey(work: Callable[[str], object], hear: Callable[[str], None] = lambda line: None) -> None:
    """Do `work` with the first line on stdin, and end with it, or when stdin does.

    Its other end is the parent's: it closes when the parent ends, however that happens. Lines that
    come later are for `hear`, in a thread of its own.
    """
    # Sent to all, by a terminal or a scheduler, they are for the parent: it ends its children.
    for heard in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
        signal.signal(heard, signal.SIG_IGN)
    text = sys.stdin.buffer.readline().decode()
    threading.Thread(target=_end_with_parent, args=(hear,), daemon=True).start()
    code, why, number = 0, "", None
    try:
        work(text)
    except InvalidInput as error:
        code, why = REFUSED, str(error)
    except OSError as error:
        code, why, number = NOT_WRITTEN, error.strerror or str(error), error.errno
    except EnvironmentFailed as error:
        code, why = DEFECT, str(error)
    except Exception as error:
        code, why = DEFECT, "".join(traceback.format_exception_only(error)).splitlines()[0]
        if is_out_of_memory(error):
            why = f"memory ran out ({first_line(error)})"
        else:
            traceback.print_exc()
    if code:
        print(json.dumps({"why": why, "errno": number}))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # all is written: nothing that libraries do at their end can change the answer


def _end_with_parent(hear: Callable[[str], None]) -> None:
    for line in sys.stdin.buffer:
        hear(line.decode())
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)  # with the compilers that it may have started
    os._exit(DEFECT)
