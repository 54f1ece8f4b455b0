"""Disks for `fuzz.py`: small ones that fill up while a command writes, and read-only ones."""

import random
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from forks import SMALL

if TYPE_CHECKING:
    from fuzz import Fuzz


def disk_case(fuzz: "Fuzz", rng: random.Random) -> tuple[str, list[str], str]:
    """The case's kind, its faults, and what makes it again."""
    disk = fuzz.box / "disk"
    disk.mkdir(exist_ok=True)
    kilobytes = rng.choice((8, 40, 100, rng.randint(20, 1_000), rng.randint(200, 800)))
    if not _mount("-t", "tmpfs", "-o", "size=64m", "tmpfs", str(disk)):
        return "no disk", [], ""
    try:
        full = rng.random() < 0.6
        words = _words(fuzz, rng, disk)
        option = f"size={_used(disk) + kilobytes}k" if full else "ro"
        _mount("-o", f"remount,{option}", str(disk))
        kind = "full disk" if full else "read-only disk"
        shown = f"{option}: valueshare {shlex.join(words)}"
        ended = fuzz.run(words)
        _mount("-o", "remount,rw,size=64m", str(disk))
        return f"{kind}: exit {ended.code}", _faults(fuzz, words, ended, disk), shown
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=False)


def _words(fuzz: "Fuzz", rng: random.Random, disk: Path) -> list[str]:
    kind = rng.choice(("train", "train", "resume", "resume", "report", "play", "tabular"))
    run = str(disk / "run")
    if kind == "resume":
        shutil.copytree(fuzz.partial, run)
        return ["resume", run]
    if kind == "report":
        shutil.copytree(fuzz.finished, run)
        return ["report", run, "--figures", "learning-curves", "--resamples", "50"]
    if kind == "play":
        video = str(disk / "new.gif")
        return ["play", str(fuzz.finished), "--agent", "0", "--video", video, "--episode-limit", "9"]
    if kind == "tabular":
        return ["tabular", "--seeds", "1", "--steps", "20", "--k", "0", "1", "--out", run]
    return [*SMALL, "--out", run]


def _faults(fuzz: "Fuzz", words: list[str], ended: "object", disk: Path) -> list[str]:
    """Those of the command; and once there is room, a run must come to the same end."""
    from forks import Ended
    from fuzz import faults_of, results_of

    assert isinstance(ended, Ended)
    faults = faults_of(ended)
    if ended.code in (1, 2) and len(ended.err.strip().splitlines()) != 1:
        faults.append(f"not one line: {ended.err[-800:]}")
    run = disk / "run"
    if words[0] in ("train", "resume") and not faults:
        if ended.code != 0:
            again = words if not (run / "config.json").exists() else ["resume", str(run)]
            second = fuzz.run(again)
            faults += faults_of(second)
            if second.code != 0:
                faults.append(f"with room, {shlex.join(again)} says {second.err.strip()}")
        if results_of(run) != fuzz.results:
            faults.append("it came to another end")
        faults += [f"left: {path}" for path in disk.rglob("*.partial")]
    faults += [f"left: {path}" for path in disk.iterdir() if path.name.startswith(".")]
    return faults


def _mount(*words: str) -> bool:
    return subprocess.run(["mount", *words], check=False, capture_output=True).returncode == 0


def _used(disk: Path) -> int:
    """Kilobytes, in whole pages as the disk counts them."""
    return sum(4 * -(-path.stat().st_size // 4_096) for path in disk.rglob("*"))
