"""The runs that `soak.py` kills: runs of each kind, and how many of the kills each gets."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

RUN = "run"  # the name of the run's folder, in a folder of the scenario's own

# Two populations of one agent each, ten phases each.
CARTPOLE = [
    *("train", "--env", "CartPole-v1", "--algorithm", "ib-dqn", "double-dqn", "--k", "4"),
    *("--seeds", "1", "--steps", "400", "--eval-interval", "40", "--eval-episodes", "1"),
    *("--hidden", "8", "--batch-size", "4", "--replay-capacity", "120", "--learning-starts", "20"),
    *("--eval-episode-limit", "10", "--eval-envs", "1"),
]
# Images: frames are packed, and written in files of their own.
PONG = [
    *("train", "--env", "Pong", "--algorithm", "ib-dqn", "--k", "4", "--seeds", "1"),
    *(
        "--steps",
        "96",
        "--eval-interval",
        "16",
        "--eval-timesteps",
        "4",
        "--eval-episode-limit",
        "4",
    ),
    *("--eval-envs", "1", "--batch-size", "2", "--replay-capacity", "40", "--learning-starts", "8"),
]
TABULAR = [
    *("tabular", "--seeds", "20", "--steps", "2000", "--k", "0", "1", "2"),
    *("--step-size", "0.25", "0.5"),
]


class Scenario(NamedTuple):
    """A command that is killed and resumed, to be compared with one that was left alone."""

    name: str
    share: float  # of the kills
    first: Sequence[str]  # without --out
    again: Sequence[str] | None  # after `resume RUN`; None: the first command again
    targets: Sequence[str]  # what is killed, each as likely
    longest: float  # seconds until a kill at a random time
    kills: int  # of one run, at most
    is_address: bool = False

    def place(self, root: Path) -> str:
        return f"local://{root / RUN}" if self.is_address else str(root / RUN)

    def words(self, root: Path, ray_address: str | None) -> list[str]:
        """The command that starts the run, or resumes it where there is one."""
        ray = ["--launcher", "ray", "--ray-address", ray_address] if ray_address else []
        if self.again is None or not (root / RUN / "config.json").exists():
            return [*self.first, *ray, "--out", self.place(root)]
        return ["resume", self.place(root), *self.again, *ray]


ALONE = ("group", "driver")
SCENARIOS = [
    Scenario("cartpole", 0.57, CARTPOLE, (), ALONE, 2.0, 25),
    Scenario("tabular", 0.12, TABULAR, None, ALONE, 4.0, 6),
    Scenario("address", 0.12, CARTPOLE, (), ALONE, 4.0, 12, is_address=True),
    Scenario("atari", 0.1, PONG, (), ALONE, 3.0, 12),
    Scenario(
        "workers",
        0.07,
        [*CARTPOLE, "--workers", "2"],
        ("--workers", "2"),
        ("group", "driver", "worker", "worker"),
        12.0,
        8,
    ),
    Scenario("ray", 0.02, CARTPOLE, (), ("driver", "worker", "worker", "node"), 15.0, 6),
]


def shorter_waits() -> None:
    """In a fork, before its command: what waits for a killed process to be given up is short."""
    from valueshare.runs.storage import leases

    leases.LEASE_SECONDS, leases.RENEW_SECONDS = 1.5, 0.2
    leases.SETTLE_SECONDS, leases.POLL_SECONDS = 0.1, 0.1


def write_in_background() -> None:
    """In a fork, before its command: checkpoints are written while the next phase trains, as on CUDA."""
    from valueshare.population import train
    from valueshare.replay.transitions import holds_frames

    train.writes_in_background = lambda device, env, replay: not holds_frames(replay)


class RayCluster:
    """A head that runs nothing and two nodes of one CPU each, on this machine."""

    def __init__(self) -> None:
        os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # 127.0.0.1 is no network card's
        os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
        self._keeper = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        self.address = self._answer()

    def kill_node(self) -> None:
        """Kill a node's processes, and start another node in its place."""
        self._ask("kill")

    def workers(self) -> list[int]:
        """Processes that run a population, or are about to; not those that end a node when they end."""
        others = ("ray::IDLE", "ray::DashboardAgent", "ray::RuntimeEnvAgent")
        return [pid for pid, title in _titles() if title.startswith("ray::") and not title.startswith(others)]

    def stop(self) -> None:
        self._ask("stop")
        self._keeper.wait(120)

    def _ask(self, line: str) -> str:
        assert self._keeper.stdin is not None
        self._keeper.stdin.write(line + "\n")
        self._keeper.stdin.flush()
        return self._answer()

    def _answer(self) -> str:
        assert self._keeper.stdout is not None
        for line in self._keeper.stdout:
            if line.startswith("answer: "):
                return line.removeprefix("answer: ").strip()
        raise SystemExit("the Ray cluster has ended")


def _titles() -> list[tuple[int, str]]:
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            title = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        found.append((int(path.name), title))
    return found


def keep_cluster(say: Callable[[str], None]) -> None:
    """Start a cluster and do what comes on stdin; it ends with its parent."""
    from ray.cluster_utils import Cluster

    node: dict[str, Any] = {"node_ip_address": "127.0.0.1", "object_store_memory": 80_000_000}
    cluster: Any = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False, **node})
    nodes = [cluster.add_node(num_cpus=1, **node) for _ in range(2)]
    say(str(cluster.address))
    for line in sys.stdin:
        if line.strip() == "stop":
            break
        cluster.remove_node(nodes.pop(0), allow_graceful=False)
        nodes.append(cluster.add_node(num_cpus=1, **node))
        say("done")
    cluster.shutdown()
    say("done")


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    keep_cluster(lambda text: print(f"answer: {text}", flush=True))
    time.sleep(0.1)
