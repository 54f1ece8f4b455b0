"""Functions that workers run, on a cluster or this machine; arguments and results are text.

Light to import: libraries load when a function is called, after its number of threads is set.

    python -m valueshare.runs.workers.worker   # runs the task on its stdin, and ends with it
"""

import json
import os
import secrets
from pathlib import Path

from valueshare._version import __version__
from valueshare.children import serve
from valueshare.errors import InvalidInput

PROBE = b"written by the driver"  # the file by which workers check that they can use its storage


def work(text: str, threads: int | None = None) -> bool:
    """Run a population into its run's folder, with the task's threads if none are given; whether it finished."""
    set_up_process(threads or json.loads(text)["threads"])
    import msgspec

    from valueshare.runs.workers.tasks import Task, run_population

    return run_population(msgspec.json.decode(text, type=Task))


def speed(text: str) -> float:
    """Agent-steps per second of a population, of which nothing is kept."""
    values = json.loads(text)
    set_up_process(values["threads"])
    from valueshare.runs.workers.tasks import measure_speed

    return measure_speed(values)


def probe_storage(text: str) -> str:
    """Whether this machine can use the location at which the driver has made a file."""
    from valueshare.runs.locks import is_taken

    request = json.loads(text)
    reply: dict[str, object] = {"valueshare": __version__}
    if "url" in request:
        return json.dumps({**reply, "reason": _unreachable(**request)})
    path = Path(request["path"])
    reply["visible"] = path.is_file()
    reply["writable"] = os.access(path.parent, os.W_OK)
    reply["locked"] = path.is_file() and is_taken(path)
    return json.dumps(reply)


def _unreachable(url: str, name: str) -> str:
    """Why this machine cannot use a URL; empty where it can."""
    from valueshare.runs.storage.locations import Url
    from valueshare.runs.storage.stores import Store

    try:
        store, probe = Store(Url(url)), f"{name}-{secrets.token_hex(4)}"
        if store.read(name) != PROBE:
            return "it does not see the driver's files"
        store.write(probe, b"", retry=False)
        store.delete(probe)
    except (InvalidInput, OSError) as error:
        return str(getattr(error, "strerror", None) or error)
    return ""


def gpu_bytes() -> int:
    """The total memory of the GPU that this worker was given."""
    import torch

    return int(torch.cuda.mem_get_info()[1]) if torch.cuda.is_available() else 0


def set_up_process(threads: int | None) -> None:
    """Set PyTorch's threads to the worker's CPUs, and let them wait asleep; before it loads."""
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    import torch

    torch.set_num_threads(threads or 1)


if __name__ == "__main__":
    serve(lambda text: work(text, threads=1))
