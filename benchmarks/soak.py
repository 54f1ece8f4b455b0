"""Runs that are killed again and again: does each come to the end of one that was left alone?

    python benchmarks/soak.py --kills 20 --minutes 30
    python benchmarks/soak.py --kills 1000 --minutes 240 --seed 7 --json soak.json
    python benchmarks/soak.py --kills 50 --minutes 30 --only workers ray

A run is started, killed by SIGKILL, resumed, killed, ..., and left alone in the end. What is killed
is the driver with all it started ("group"), the driver alone, a worker alone, or a node of a Ray
cluster. Half of the kills come at a random time; the others are aimed at writes: they come when a
random number of changes to checkpoints, records or a new folder has been seen (inotify), at once or
within 3 ms. "in a write" counts those that left something half-written, group and driver alone.

In the end every file of the run is compared with that of the same command, left alone and run by
`python -m valueshare`: the names of all, and the bytes of all but provenance.json and
progress/*.json, which have times and attempts, and the report of a tabular study. Faults are:
another byte, another file, an exit code or a traceback that should not be, a process that is still
there 15 seconds after its driver has ended, a temporary file or hidden folder, a lock or a lease
that is still held.

A command runs in a fork of this process, which has everything imported (`forks.py`); one in 25, and
each on Ray, is `python -m valueshare` itself. At addresses, a lease runs out after 1.5 seconds
instead of 60. In half of the forks, checkpoints are written while the next phase trains, as on CUDA.
"""

import argparse
import collections
import json
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from forks import Command, emptied, preload, session
from soak_scenarios import RUN, SCENARIOS, RayCluster, Scenario, shorter_waits, write_in_background
from soak_watch import Watch, differences, files_of, half_written, held_locks, left_files

END_SECONDS = 15.0  # for what a driver started, once it has ended
LONGEST_SECONDS = 300.0  # of a command that is left alone
REAL = 25  # one command in so many is a new Python
ATTEMPTS = 4  # commands in a row that end by themselves and not well, until a run is given up

REFUSED = re.compile("was lost before the run could begin|has not replied for")

Counts = collections.Counter[str]


class Killed:
    """A run of a scenario, killed so many times and left alone then."""

    def __init__(
        self,
        scenario: Scenario,
        box: Path,
        alone: dict[str, str],
        rng: random.Random,
        ray: RayCluster | None,
    ) -> None:
        self.scenario, self.alone, self.rng, self.ray = scenario, alone, rng, ray
        self.root = new_root(box, scenario)
        self.output = box / "said"
        self.counts: Counts = collections.Counter()
        self.faults: list[str] = []
        self.before: set[str] = set()  # what was half-written when the command began
        self.aimed = False  # at a write
        self.lost_worker = False  # since the command began: it may end with 1 then

    def run(self, kills: int) -> None:
        self.counts["runs"] += 1
        command, failed = self.start(), 0
        while self.counts["kills"] < kills and failed < ATTEMPTS:
            if not self.wait_for_kill(command):
                if self.ends(command) == 0:
                    break
                command, failed = self.start(), failed + 1
                continue
            target, failed = self.kill(command), 0
            if target in ("group", "driver"):
                self.cleared(command)
                command = self.start()
        for _ in range(ATTEMPTS):
            if command.wait(LONGEST_SECONDS) is None:
                self.faults.append(f"{command.words[0]} does not end")
                command.kill()
                break
            if self.ends(command) == 0:
                break
            command = self.start()
        else:
            self.faults.append("it does not come to its end")
        self.compare()

    def start(self) -> Command:
        self.lost_worker = False
        self.before = half_written(self.root)
        self.counts["commands"] += 1
        words = self.scenario.words(self.root, self.ray.address if self.ray else None)
        in_background = self.rng.random() < 0.5
        return begin(words, self.output, self.root, real=self.is_real(), in_background=in_background)

    def is_real(self) -> bool:
        """Whether the next command is a new Python; Ray's threads are not for forks."""
        return self.ray is not None or self.rng.randrange(REAL) == 0

    def wait_for_kill(self, command: Command) -> bool:
        """Wait until it is to be killed; False where it has ended by itself."""
        self.aimed = False
        if self.rng.random() < 0.5 and command.wait(0.0) is None:
            watch = Watch(self.root)
            changes = self.rng.randint(1, 45)  # a checkpoint makes about twenty
            try:
                self.aimed = watch.wait(changes, 8 * self.scenario.longest, command.pid)
            finally:
                watch.close()
            if self.aimed and self.rng.random() < 0.7:
                time.sleep(self.rng.uniform(0.0, 0.003))
            return command.wait(0.0) is None
        return command.wait(self.rng.uniform(0.0, self.scenario.longest)) is None

    def kill(self, command: Command) -> str:
        target = self.rng.choice(self.scenario.targets)
        workers = self.workers(command) if target == "worker" else []
        if target == "worker" and not workers:
            target = "driver"
        if command.wait(0.0) is not None:
            return "none"  # it has ended by itself meanwhile
        if target == "group":
            # Stopped first, so that none of them sees another one end.
            for number in (signal.SIGSTOP, signal.SIGKILL):
                for pid in session(command.pid):
                    with suppress(ProcessLookupError):
                        os.kill(pid, number)
        elif target == "driver":
            command.send(signal.SIGKILL)
        elif target == "worker":
            self.lost_worker = True
            with suppress(ProcessLookupError):
                os.kill(self.rng.choice(workers), signal.SIGKILL)
        elif self.ray is not None:
            self.lost_worker = True
            self.ray.kill_node()
        self.counts["kills"] += 1
        self.counts["aimed"] += self.aimed
        self.counts[target] += 1
        return target

    def workers(self, command: Command) -> list[int]:
        """The workers of a driver, which takes some seconds to start them."""
        deadline = time.monotonic() + 2 * self.scenario.longest
        while command.wait(0.1) is None and time.monotonic() < deadline:
            below = self.ray.workers() if self.ray else session(command.pid)
            if found := [pid for pid in below if pid != command.pid]:
                if not self.aimed:
                    command.wait(self.rng.uniform(0.0, self.scenario.longest / 2))
                return found
        return []

    def cleared(self, command: Command) -> None:
        """Wait until a driver and all that it started have ended."""
        command.wait(END_SECONDS)
        if left := emptied(command.pid, END_SECONDS):
            self.counts["processes"] += len(left)
            self.faults.append(f"processes {left} are still there")
            command.kill()
        self.counts["in a write"] += bool(half_written(self.root) - self.before)

    def ends(self, command: Command) -> int | None:
        """How a command has ended by itself; with 0, or with 1 where a worker was killed."""
        ended = command.ended()
        if ended.code == 2 and self.ray is not None and REFUSED.search(ended.err):
            self.counts["refused"] += 1  # a node was killed, and Ray has not noticed it for some seconds
        elif ended.code != 0 and not (ended.code == 1 and self.lost_worker):
            self.faults.append(f"{command.words[0]} ended with {ended.code}: {ended.err[-600:]}")
            self.counts["exit codes"] += 1
        if "Traceback" in ended.err:
            self.faults.append(ended.err[-1_500:])
            self.counts["tracebacks"] += 1
        if left := emptied(command.pid, END_SECONDS):
            self.counts["processes"] += len(left)
            self.faults.append(f"processes {left} are still there")
            command.kill()
        return ended.code

    def compare(self) -> None:
        found = {
            "differences": differences(self.root / RUN, self.alone),
            "files": left_files(self.root),
            "locks": held_locks(self.root),
        }
        for kind, names in found.items():
            self.counts[kind] += len(names)
            self.faults += [f"{kind}: {name}" for name in names]


def new_root(box: Path, scenario: Scenario) -> Path:
    root = box / scenario.name
    shutil.rmtree(root, ignore_errors=True)
    (root / "temporary").mkdir(parents=True)
    return root


def begin(words: list[str], output: Path, root: Path, *, real: bool, in_background: bool = False) -> Command:
    environment = {"TMPDIR": str(root / "temporary"), "COLUMNS": "80"}

    def prepare() -> None:
        if real and not any("local://" in word for word in words):
            os.execv(sys.executable, [sys.executable, "-P", "-m", "valueshare", *words])
        shorter_waits()
        if in_background:
            write_in_background()

    return Command(words, output, folder=root, environment=environment, prepare=prepare)


def left_alone(scenario: Scenario, box: Path, address: str | None) -> dict[str, str]:
    """The files of the same command, run once by Python itself and not killed."""
    root = new_root(box, scenario)
    words = scenario.words(root, address)
    command = begin(words, box / "said", root, real=True)
    if command.wait(LONGEST_SECONDS) != 0:
        raise SystemExit(f"{scenario.name} does not run: {command.ended().err}")
    return files_of(root / RUN)


def shares(kills: int, chosen: list[Scenario]) -> dict[str, int]:
    whole = sum(scenario.share for scenario in chosen)
    return {s.name: max(1, round(kills * s.share / whole)) for s in chosen}


COLUMNS = (
    *("runs", "commands", "kills", "group", "driver", "worker", "node", "aimed", "in a write"),
    *("differences", "processes", "files", "locks", "exit codes", "tracebacks"),
)


def table(totals: dict[str, Counts]) -> str:
    rows = [["", *COLUMNS]]
    rows += [[name, *(str(counts[c]) for c in COLUMNS)] for name, counts in totals.items()]
    every = sum(totals.values(), collections.Counter())
    rows.append(["all", *(str(every[c]) for c in COLUMNS)])
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join("  ".join(v.rjust(w) for v, w in zip(r, widths, strict=True)) for r in rows)


def soak(
    options: argparse.Namespace, chosen: list[Scenario], box: Path, ray: RayCluster | None
) -> tuple[dict[str, Counts], int]:
    began, faults = time.monotonic(), 0
    alone: dict[str, dict[str, str]] = {}
    totals: dict[str, Counts] = {scenario.name: collections.Counter() for scenario in chosen}
    wanted = shares(options.kills, chosen)
    rng = random.Random(options.seed)
    while time.monotonic() - began < 60 * options.minutes:
        # The scenario that is furthest behind its share goes next.
        behind = [scenario for scenario in chosen if totals[scenario.name]["kills"] < wanted[scenario.name]]
        if not behind:
            break
        scenario = min(behind, key=lambda scenario: totals[scenario.name]["kills"] / wanted[scenario.name])
        cluster = ray if scenario.name == "ray" else None
        if scenario.name not in alone:
            address = cluster.address if cluster else None
            alone[scenario.name] = left_alone(scenario, box, address)
        seed = rng.randrange(10**9)
        killed = Killed(scenario, box, alone[scenario.name], random.Random(seed), cluster)
        left = wanted[scenario.name] - totals[scenario.name]["kills"]
        killed.run(min(left, scenario.kills))
        totals[scenario.name] += killed.counts
        faults += len(killed.faults)
        for fault in killed.faults:
            print(f"FAULT {scenario.name}, seed {seed}: {fault}")
        done = sum(counts["kills"] for counts in totals.values())
        minutes = (time.monotonic() - began) / 60
        print(
            f"{done} kills, {faults} faults, {minutes:.1f} minutes; {scenario.name}: "
            f"{killed.counts['kills']} kills in a run",
            flush=True,
        )
    return totals, faults


def main() -> None:
    parser = argparse.ArgumentParser(description="Runs that are killed again and again.")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--minutes", type=float, default=60.0, help="no new run after them")
    parser.add_argument("--seed", type=int, default=0)
    names = [scenario.name for scenario in SCENARIOS]
    parser.add_argument("--only", nargs="+", choices=names, default=names)
    parser.add_argument("--json", type=Path, help="the table as a file")
    options = parser.parse_args()
    chosen = [scenario for scenario in SCENARIOS if scenario.name in options.only]
    preload(*([*s.first, "--out", RUN] for s in chosen if s.name not in ("address", "workers", "ray")))
    ray = RayCluster() if "ray" in options.only else None
    box = Path(tempfile.mkdtemp(prefix="soak-"))
    try:
        totals, faults = soak(options, chosen, box, ray)
    finally:
        if ray is not None:
            ray.stop()
        shutil.rmtree(box, ignore_errors=True)
    print(table(totals))
    print(f"seed {options.seed}; faults: {faults}")
    if options.json is not None:
        whole = {"seed": options.seed, "faults": faults, "scenarios": totals}
        options.json.write_text(json.dumps(whole, indent=2) + "\n")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
