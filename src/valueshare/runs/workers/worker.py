"""What workers do, a cluster's or this machine's: text in, text out; nothing but text travels.

Light to import: the libraries come when a function is called, after its settings of threads.

    python -m valueshare.runs.workers.worker   # carries out the task on its stdin, and ends with it
"""

import json
import os
import secrets
from pathlib import Path

from valueshare.children import obey
from valueshare.errors import InvalidInput


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
    from valueshare._version import __version__
    from valueshare.runs.locks import is_taken

    asked = json.loads(text)
    if "url" in asked:
        return json.dumps({"why": _blind(**asked), "valueshare": __version__})
    path = Path(asked["path"])
    seen = path.is_file()
    about = {
        "seen": seen,
        "writable": os.access(path.parent, os.W_OK),
        "locked": seen and is_taken(path),
        "valueshare": __version__,
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
    """Carry out the task on stdin with one thread of PyTorch, and end when stdin does."""
    obey(_run)


def _run(text: str) -> None:
    prepare(1)
    from valueshare.runs.workers.tasks import Task, run_part

    run_part(Task.from_json(text))


if __name__ == "__main__":
    main()
