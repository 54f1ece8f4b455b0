"""What workers do, a cluster's or this machine's: text in, text out; nothing but text travels.

Light to import: the libraries come when a function is called, after its settings of threads.

    python -m valueshare.runs.workers.worker   # carries out the task on its stdin, and ends with it
"""

import json
import os
import secrets
import signal
import sys
import threading
import traceback
from pathlib import Path

from valueshare.errors import EnvironmentFailed, InvalidInput

# How the process of a task ends, besides 0; its last line on stdout is then a JSON object that says
# why.
DEFECT, REFUSED, NOT_WRITTEN = 1, 2, 74


def work(text: str) -> bool:
    """Run a population into its run's folder; whether it finished."""
    prepare(json.loads(text)["threads"])
    from valueshare.runs.workers.tasks import Task, run_part

    return run_part(Task.from_json(text))


def speed(text: str) -> float:
    """Agent-steps a second of a population, of which nothing is kept."""
    values = json.loads(text)
    prepare(values["threads"])
    from valueshare.runs.speed import measured_speed

    return measured_speed(values)


def look(text: str) -> str:
    """What this machine can tell of a file that the driver has made and holds."""
    import valueshare
    from valueshare.runs.locks import is_taken

    asked = json.loads(text)
    if "url" in asked:
        return json.dumps({"why": _blind(**asked), "valueshare": valueshare.__version__})
    path = Path(asked["path"])
    seen = path.is_file()
    about = {
        "seen": seen,
        "writable": os.access(path.parent, os.W_OK),
        "locked": seen and is_taken(path),
        "valueshare": valueshare.__version__,
    }
    return json.dumps(about)


def _blind(url: str, name: str) -> str:
    """Why this machine cannot use an address; empty where it can."""
    from valueshare.runs.storage.places import Url
    from valueshare.runs.storage.stores import Store

    try:
        store, own = Store(Url(url)), f"{name}-{secrets.token_hex(4)}"
        if store.read(name) != b"seen":
            return "it does not see the driver's files"
        store.write(own, b"", patient=False)
        store.delete(own)
    except (InvalidInput, OSError) as error:
        return str(getattr(error, "strerror", None) or error)
    return ""


def gpu_bytes() -> int:
    """The memory of the GPU that this worker was given, all of it."""
    import torch

    return int(torch.cuda.mem_get_info()[1]) if torch.cuda.is_available() else 0


def prepare(threads: int | None) -> None:
    """As many threads as the worker was given CPUs; they wait asleep. Before PyTorch loads."""
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    import torch

    torch.set_num_threads(threads or 1)


def main() -> None:
    """Carry out the task on stdin with one thread of PyTorch, and end when stdin does.

    Its other end is the driver's: it closes when the driver ends, however that happens.
    """
    # Sent to all, by a terminal or a scheduler, they are for the driver: it ends its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    text = sys.stdin.buffer.readline()
    threading.Thread(target=_end_with_driver, daemon=True).start()
    code, why, number = 0, "", None
    try:
        prepare(1)
        from valueshare.runs.workers.tasks import Task, run_part

        run_part(Task.from_json(text.decode()))
    except InvalidInput as error:
        code, why = REFUSED, str(error)
    except OSError as error:
        code, why, number = NOT_WRITTEN, error.strerror or str(error), error.errno
    except EnvironmentFailed as error:
        code, why = DEFECT, str(error)
    except Exception as error:
        traceback.print_exc()
        code, why = DEFECT, "".join(traceback.format_exception_only(error)).splitlines()[0]
    if code:
        print(json.dumps({"why": why, "errno": number}))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # all is written: nothing that libraries do at their end can change the answer


def _end_with_driver() -> None:
    while os.read(0, 1):
        pass
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)  # with the compilers that it may have started
    os._exit(DEFECT)


if __name__ == "__main__":
    main()
