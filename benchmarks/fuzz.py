"""Random commands and damaged files, through the real entry point: what fails in another way?

    python benchmarks/fuzz.py --cases 300
    python benchmarks/fuzz.py --cases 20000 --seed 7 --json fuzz.json
    python benchmarks/fuzz.py --seed 7 --case 1234

A case is a command with options that the command line declares and values that nobody should
write (`fuzz_commands.py`); a command for a run folder of which one file is damaged
(`fuzz_files.py`); or a command on a disk that is full or read-only (`fuzz_disks.py`). It runs in a
fork (`forks.py`), in `--gigabytes` of address space. Faults are:

- a traceback, a crash, or an exit code that is not one of 0, 1, 2, 75, 130 and 143;
- with exit code 2, more than one line on standard error, warnings of populations that use an
  older checkpoint aside: one exchange of files may damage two populations;
- a character in the output that controls a terminal, or changes the direction of text;
- a hang: no end within the limit, and none after SIGTERM, or no use of a core. A command that
  trains or measures is ended by SIGTERM, and is not a fault: "still running". For `train`, `--plan`
  must take the same words;
- damage accepted silently: exit code 0, nothing said of it, and other results than those of the
  intact folder. It is looked for in files that a checksum covers: the table of agents, records and
  checkpoints. After `resume`, results are the records of all phases and the last state of every
  population, byte for byte; after `report`, what it prints and its table of scores. No checksum
  covers config.json, progress, provenance and a tabular study's files: a value that is valid there
  is a value that somebody chose. A manifest whose own checksum was made to fit is somebody's
  manifest too, and is tried for everything else alone;
- anything changed outside the run folder, through a link in it;
- on a disk that was full: a run that does not come to the same end once there is room.

Left out are --compile and --launcher ray, which start other programs for minutes; pauses between
attempts to reach a store are 0. Every fault prints what makes it again.
"""

import argparse
import collections
import contextlib
import ctypes
import hashlib
import json
import random
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from forks import SMALL, Command, Ended, limited, preload, session
from fuzz_commands import Option, random_command
from fuzz_disks import disk_case
from fuzz_files import damage

from valueshare.errors import INVISIBLE

CODES = (0, 1, 2, 75, 130, 143)
COVERED = ("agents.parquet", "records/", "checkpoints/")
TABULAR = ["tabular", "--seeds", "2", "--steps", "20", "--k", "0", "1", "--step-size", "0.5"]
OLDER_CHECKPOINT = "using the checkpoint before it"  # a warning
REPORT = ["--figures", "learning-curves", "--resamples", "50", "--out", "made"]


class Result(NamedTuple):
    """The outcome of a case: its kind for the table, and the faults."""

    kind: str
    faults: Sequence[str] = ()
    shown: str = ""  # what makes it again


class Fuzz:
    """Folders to try commands on, and what they come to where nothing is wrong."""

    def __init__(self, box: Path, limit: float, gigabytes: float) -> None:
        self.box, self.limit, self.gigabytes = box, limit, gigabytes
        self.known: dict[str, list[Option]] = {}
        self.finished, self.partial, self.tabular = (
            box / "intact" / name for name in ("finished", "partial", "tabular")
        )
        self.finished.parent.mkdir()
        self.here = box / "a" / "b" / "c"  # where commands run
        self.outside = box / "outside" / "file"
        self._make()
        self.results = results_of(self.finished)
        self.reported = {run: self._report(run) for run in (self.finished, self.partial, self.tabular)}

    def _make(self) -> None:
        self.empty()
        for words in (
            [*SMALL, "--out", str(self.finished)],
            [*TABULAR, "--out", str(self.tabular)],
        ):
            ended = self.run(words)
            if ended.code != 0:
                raise SystemExit(f"{words} does not run: {ended.err}")
        command = Command([*SMALL, "--out", str(self.partial)], self.box / "said", folder=self.here)
        second = self.partial / "checkpoints" / "population-1" / "checkpoint-000001.json"
        while command.wait(0.001) is None and not second.exists():
            pass
        command.kill()
        if results_of(self.partial) == results_of(self.finished):
            raise SystemExit("the run that was to be killed has finished: run this again")

    def _report(self, run: Path) -> tuple[str, bytes]:
        self.empty()
        shutil.copytree(run, self.here / "run")
        ended = self.run(report_words(run.name))
        if ended.code != 0:
            raise SystemExit(f"report does not run: {ended.err}")
        return ended.out, self.scores()

    def empty(self) -> None:
        """Make the folders that commands may write to anew."""
        for folder in (self.box / "a", self.outside.parent):
            remove(folder)
        self.here.mkdir(parents=True)
        self.outside.parent.mkdir()
        self.outside.write_text("untouched")

    def scores(self) -> bytes:
        file = self.here / "made" / "tables" / "scores.csv"
        return file.read_bytes() if file.is_file() else b""

    def run(self, words: Sequence[str], limit: float | None = None) -> Ended:
        """How a command ends; without a code where it hangs."""
        command = self.start(words)
        if command.wait(self.limit if limit is None else limit) is None:
            command.kill()
            return command.ended()._replace(code=None)
        return command.ended()

    def start(self, words: Sequence[str]) -> Command:
        temporary = self.box / "temporary"
        temporary.mkdir(exist_ok=True)

        def prepare() -> None:
            from valueshare.runs.storage import stores

            stores.PAUSES = ()  # type: ignore[assignment]
            limited(self.gigabytes, 120)()

        environment = {"TMPDIR": str(temporary), "COLUMNS": "80"}
        return Command(words, self.box / "said", folder=self.here, environment=environment, prepare=prepare)

    def command_case(self, rng: random.Random) -> Result:
        words = random_command(rng, self.known)
        run = rng.choice((self.finished, self.finished, self.partial, self.tabular))
        if any("{run}" in word for word in words):
            shutil.copytree(run, self.here / "run")
            words = [word.replace("{run}", "run") for word in words]
        shown = f"valueshare {shlex.join(words)}" + (f"   # run: {run.name}" if "run" in words else "")
        command = self.start(words)
        limit = 3.0 if words[0] == "watch" else self.limit
        code = command.wait(limit)
        if code is None:
            return Result(*self._still_running(command, words), shown)
        return Result(f"exit {code}", faults_of(command.ended()), shown)

    def _still_running(self, command: Command, words: list[str]) -> tuple[str, list[str]]:
        """Whether a command that has not ended works, and ends when it is asked to."""
        before = cpu_seconds(command.pid)
        time.sleep(2.0)
        used = cpu_seconds(command.pid) - before
        command.send(signal.SIGTERM)
        code = command.wait(30.0)
        command.kill()
        if code is None:
            return "hang", ["hang: SIGTERM did not end it"]
        faults = faults_of(command.ended())
        if used == 0.0 and words[0] != "watch":
            faults.append("hang: it used no core")
        if words[0] == "train" and not faults:
            self.empty()
            plan = self.run([words[0], "--plan", *words[1:]], 60.0)  # not behind a "--"
            if plan.code != 0:
                faults.append(f"it runs, and --plan refuses it: {plan.err.strip()}")
        return "still running", faults

    def file_case(self, rng: random.Random) -> Result:
        run = rng.choices((self.finished, self.partial, self.tabular), (4, 6, 1))[0]
        folder = self.here / "run"
        shutil.copytree(run, folder)
        name, done = damage(rng, folder, self.outside)
        words = rng.choices(
            (
                ["resume", "run"],
                report_words(run.name),
                ["play", "run", "--agent", "1", "--video", "new.gif", "--episode-limit", "1"],
                [*SMALL, "--out", "run"],
                [*TABULAR, "--out", "run"],
            ),
            (0, 5, 0, 1, 4) if run == self.tabular else (10, 1.5, 0.3, 1, 0.3),
        )[0]
        kept = {path: path.read_bytes() for path in self.outside.parent.iterdir()}
        ended = self.run(words)
        shown = f"{run.name}/{name}: {done}; valueshare {shlex.join(words)}"
        if ended.code is None:
            return Result("hang", [f"hang: no end in {self.limit:g} s"], shown)
        faults = faults_of(ended)
        if {path: path.read_bytes() for path in self.outside.parent.iterdir()} != kept:
            faults.append("a file outside the run folder was changed")
        covered = name.startswith(COVERED) and run != self.tabular and "made to fit" not in done
        if ended.code == 0 and not ended.err and covered and not faults:
            if words[0] == "resume" and results_of(folder) != self.results:
                faults.append("silent damage: resume came to another end")
            # A checkpoint that is gone looks like one that was never written: the report says where it ends.
            told = "are not finished" in ended.out
            if words[0] == "report" and not told and (ended.out, self.scores()) != self.reported[run]:
                faults.append(f"silent damage: report came to another end: {ended.out}")
        return Result(f"{words[0]} of a damaged folder: exit {ended.code}", faults, shown)

    def case(self, seed: int, number: int) -> Result:
        rng = random.Random(f"{seed}-{number}")
        self.empty()
        kind = rng.random()
        if kind < 0.01:
            disk, faults, shown = disk_case(self, rng)
            return Result(disk, faults, shown)
        return self.command_case(rng) if kind < 0.6 else self.file_case(rng)


def report_words(run: str) -> list[str]:
    return ["report", "run", *([*REPORT[4:]] if run == "tabular" else REPORT)]


def results_of(run: Path) -> dict[str, str]:
    """Checksums of the records of all phases, and of the last state of every population."""
    states = {path.parent: path for path in sorted(run.glob("checkpoints/*/state-*.safetensors"))}
    files = [*run.glob("records/*.parquet"), *states.values()]
    return {
        str(path.relative_to(run)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files if path.is_file()
    }


def remove(folder: Path) -> None:
    """Delete a folder, also one of a thousand levels, for which `shutil.rmtree` recurses too deeply."""
    subprocess.run(["rm", "-rf", "--", folder], check=True)


def faults_of(ended: Ended) -> list[str]:
    faults = []
    if ended.code not in CODES:
        faults.append(f"exit code {ended.code}")
    errors = [line for line in ended.err.splitlines() if OLDER_CHECKPOINT not in line]
    if ended.code == 2 and len(errors) != 1:
        faults.append(f"{len(errors)} lines of error: {ended.err[-1_500:]!r}")
    said = ended.out + ended.err
    if raw := {char for char in said if not char.isprintable() or INVISIBLE.match(char)} - set("\n\xa0"):
        faults.append(f"control characters {sorted(raw)} in the output")
    for word in (
        "Traceback (most recent",
        "Exception ignored",
        "Fatal Python error",
        "terminate called",
    ):
        if word in said:
            faults.append(f"{word}: {said[-1_500:]}")
    return faults


def cpu_seconds(pid: int) -> float:
    """Time on a core of a command and of all that it started."""
    total = 0
    for process in {pid, *session(pid)}:
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
            total += int(fields[11]) + int(fields[12])
    return total / 100


def own_mounts() -> bool:
    """Mounts from here on are this process's own, and end with it; False where that is refused."""
    if ctypes.CDLL(None).unshare(0x00020000) != 0:
        return False
    done = subprocess.run(["mount", "--make-rprivate", "/"], check=False, capture_output=True)
    return done.returncode == 0


def main() -> None:
    parser = argparse.ArgumentParser(description="Random commands and damaged files.")
    parser.add_argument("--cases", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="the number of the first case")
    parser.add_argument("--case", type=int, help="this one alone, with all that it prints")
    parser.add_argument("--limit", type=float, default=20.0, help="seconds of a command")
    parser.add_argument(
        "--gigabytes", type=float, default=6.0, help="address space of a command; PyTorch for CUDA needs 24"
    )
    parser.add_argument("--json", type=Path, help="the table as a file")
    options = parser.parse_args()
    if not own_mounts():
        print("no mounts of our own: disks that are full or read-only are left out", flush=True)
    preload([*SMALL, "--out", "run"], [*TABULAR, "--out", "results"])
    began = time.monotonic()
    counts: collections.Counter[str] = collections.Counter()
    faults = 0
    # A fork runs what is registered for its end: no folder here removes itself then.
    box = tempfile.mkdtemp(prefix="fuzz-")
    try:
        fuzz = Fuzz(Path(box), options.limit, options.gigabytes)
        numbers = range(options.first, options.first + options.cases) if options.case is None else [options.case]
        for number in numbers:
            result = fuzz.case(options.seed, number)
            counts[result.kind] += 1
            for fault in result.faults:
                faults += 1
                print(
                    f"FAULT --seed {options.seed} --case {number}: {result.shown}\n  {fault}",
                    flush=True,
                )
            if options.case is not None:
                files = [path.read_text(errors="replace") for path in sorted(Path(box).glob("said.*"))]
                print(result.kind, result.shown, *files, sep="\n")
            if (number + 1) % 100 == 0:
                minutes = (time.monotonic() - began) / 60
                print(f"{number + 1} cases, {faults} faults, {minutes:.1f} minutes", flush=True)
    finally:
        remove(Path(box))
    for kind, count in sorted(counts.items()):
        print(f"{count:>8}  {kind}")
    print(f"{sum(counts.values()):>8}  cases, seed {options.seed}; faults: {faults}")
    if options.json is not None:
        table = {"cases": sum(counts.values()), "seed": options.seed, "faults": faults}
        options.json.write_text(json.dumps({**table, "outcomes": counts}, indent=2) + "\n")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
