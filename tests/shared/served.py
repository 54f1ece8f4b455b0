"""Small runs that are watched, and the server of their page."""

import http.client
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl
from run_configs import write_config

from valueshare.report.page.live import PageUpdater
from valueshare.report.page.server import server

STEPS = 30


def make_run(
    folder: Path, env: str = "Here", phases: int = 1, ks: tuple[float, ...] = (0.0, 4.0), first_seed: int = 0
) -> Path:
    """A run folder of some k with two seeds each, with the records of some phases of three."""
    (folder / "records").mkdir(parents=True)
    agents = [
        {"agent": 2 * i + seed, "env": env, "algorithm": "ib-dqn", "k": k, "seed": first_seed + seed}
        for i, k in enumerate(ks)
        for seed in (0, 1)
    ]
    pl.DataFrame(agents).write_parquet(folder / "agents.parquet")
    write_config(folder, {env: {"steps": STEPS, "optimizer": "adam"}})
    (folder / "provenance.json").write_text(json.dumps({"command": "valueshare train --env Here"}))
    for phase in range(phases):
        end_phase(folder, phase)
    return folder


def end_phase(folder: Path, phase: int) -> None:
    """Records at steps 10, 20, 30, as a run writes them: whole, under another name first."""
    step = 10 * (phase + 1)
    rows = [{"agent": agent, "step": step, "score": float(agent * step)} for agent in range(4)]
    partial = folder / "records" / f"p-{phase}.parquet.partial"
    pl.DataFrame(rows).write_parquet(partial)
    partial.rename(partial.with_suffix(""))


@contextmanager
def running(follower: PageUpdater) -> Iterator[int]:
    """The page of a follower that looks when it is told to; its port."""
    with server(lambda: follower.view) as serving:
        thread = threading.Thread(target=serving.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield serving.socket.getsockname()[1]
        finally:
            serving.shutdown()
            thread.join()


def ask(port: int, path: str = "/", method: str = "GET", **headers: str) -> Any:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request(method, path, headers=headers)
    response = connection.getresponse()
    body = response.read()
    connection.close()
    return response, body
