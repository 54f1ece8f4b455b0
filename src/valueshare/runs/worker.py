"""What a cluster's workers do: text in, text out, so that nothing but text travels.

Light to import: the libraries come when a function is called, after its settings of threads.
"""

import json
import os
from pathlib import Path


def work(text: str) -> bool:
    """Run a population into its run's folder; whether it finished."""
    _prepare(json.loads(text)["threads"])
    from valueshare.runs.tasks import Task, run_part

    return run_part(Task.from_json(text))


def speed(text: str) -> float:
    """Agent-steps a second of a population, of which nothing is kept."""
    values = json.loads(text)
    _prepare(values["threads"])
    from valueshare.runs.speed import measured_speed

    return measured_speed(values)


def look(text: str) -> str:
    """What this machine can tell of a file that the driver has made and holds."""
    path = Path(json.loads(text)["path"])
    import valueshare
    from valueshare.runs.locks import is_taken

    seen = path.is_file()
    about = {
        "seen": seen,
        "writable": os.access(path.parent, os.W_OK),
        "locked": seen and is_taken(path),
        "valueshare": valueshare.__version__,
    }
    return json.dumps(about)


def gpu_bytes() -> int:
    """The memory of the GPU that this worker was given, all of it."""
    import torch

    return int(torch.cuda.mem_get_info()[1]) if torch.cuda.is_available() else 0


def _prepare(threads: int | None) -> None:
    """As many threads as the worker was given CPUs; they wait asleep. Before PyTorch loads."""
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    import torch

    torch.set_num_threads(threads or 1)
