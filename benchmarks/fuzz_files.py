"""Damage for `fuzz.py`: one file of a run folder changed, replaced, or exchanged with another."""

import copy
import hashlib
import json
import os
import random
import shutil
import socket
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Text that would control a terminal, begin a line of its own, or be shown in another order.
CONTROLS = ["\x1b]0;x\x07", "\x1b[2J", "x\nError: x", "\rx", "\x9b2J", "\u202ex", "\u2066x\u2069", "a\u200bb", "\x00"]
VALUES: list[Any] = [
    *CONTROLS,
    *(None, True, False, -1, 0, 1, 2, 1.5, -0.0, 1e308, 10**40, -(10**40), 2**63, float("nan")),
    *(float("inf"), "", " ", "x", "../x", "/etc/passwd", "ü✓", "\u0000", "nan", "1", "a" * 5_000),
    *(
        [],
        [[]],
        {},
        {"": 0},
        [1, 2],
        {"x": {"y": []}},
        [None] * 100,
        "0" * 64,
        "cuda:0",
        "CartPole-v1",
    ),
]


def damage(rng: random.Random, folder: Path, outside: Path) -> tuple[str, str]:
    """Damage one file of a folder; its name and what was done.

    `outside` is a file that links lead to, and that no command may change.
    """
    files = sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    # Many files are records: a kind of file is chosen first, so that none is rare.
    kinds = sorted({_kind(path) for path in files})
    kind = rng.choice(kinds)
    path = rng.choice([path for path in files if _kind(path) == kind])
    name = str(path.relative_to(folder))
    is_json = path.suffix == ".json"
    choices: list[tuple[float, Callable[[], str]]] = [
        (3, lambda: _flip(rng, path)),
        (2, lambda: _overwrite(rng, path)),
        (2, lambda: _cut(rng, path)),
        (1, lambda: _append(rng, path)),
        (1.5, lambda: _swap(rng, path, files, folder)),
        (1, lambda: _remove(path)),
        (2, lambda: _replace(rng, path, outside)),
        (6 if is_json else 0, lambda: _change_json(rng, path)),
    ]
    change = rng.choices([change for _, change in choices], [weight for weight, _ in choices])[0]
    return name, change()


def _kind(path: Path) -> str:
    return path.name.partition("-")[0] + path.suffix + path.parent.name.partition("-")[0]


def _flip(rng: random.Random, path: Path) -> str:
    data = bytearray(path.read_bytes())
    spots = [rng.randrange(len(data)) for _ in range(rng.choice((1, 1, 1, 4, 32)))] if data else []
    for spot in spots:
        data[spot] ^= 1 << rng.randrange(8)
    path.write_bytes(data)
    return f"bits flipped at {spots}"


def _overwrite(rng: random.Random, path: Path) -> str:
    data = bytearray(path.read_bytes())
    start, length = rng.randrange(len(data) + 1), rng.choice((1, 8, 64, 1_000))
    filler = rng.choice((b"\0", b"\xff", b" ", rng.randbytes(1))) * length
    data[start : start + length] = filler
    path.write_bytes(data)
    return f"{length} bytes at {start} overwritten with {filler[:1]!r}"


def _cut(rng: random.Random, path: Path) -> str:
    data = path.read_bytes()
    end = rng.choice((0, 1, len(data) // 2, max(0, len(data) - 1), rng.randrange(len(data) + 1)))
    path.write_bytes(data[:end])
    return f"cut to {end} of {len(data)} bytes"


def _append(rng: random.Random, path: Path) -> str:
    more = rng.choice((b"\0", b"\n", b"{}", b"x" * 10_000))
    path.write_bytes(path.read_bytes() + more)
    return f"{len(more)} bytes more"


def _swap(rng: random.Random, path: Path, files: list[Path], folder: Path) -> str:
    near = [other for other in files if other.suffix == path.suffix and other != path]
    other = rng.choice(near or [file for file in files if file != path])
    content, other_content = path.read_bytes(), other.read_bytes()
    path.write_bytes(other_content)
    if both := rng.random() < 0.5:
        other.write_bytes(content)
    return f"{'exchanged with' if both else 'replaced by a copy of'} {other.relative_to(folder)}"


def _remove(path: Path) -> str:
    path.unlink()
    return "deleted"


def _replace(rng: random.Random, path: Path, outside: Path) -> str:
    kept = outside.with_name("kept" + path.suffix)
    shutil.copyfile(path, kept)
    path.unlink()
    kind = rng.choice(("copy", "outside", "zero", "dangling", "loop", "folder", "fifo", "socket", "device"))
    if kind == "folder":
        path.mkdir()
        (path / "x").write_text("x")
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as listener:
            directory = os.open(path.parent, os.O_RDONLY)
            listener.bind(f"/proc/self/fd/{directory}/{path.name}")  # a path of any length
            os.close(directory)
    elif kind == "device":
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 5))  # /dev/zero
    else:
        targets = {"copy": kept, "outside": outside, "zero": Path("/dev/zero"), "loop": path}
        path.symlink_to(targets.get(kind, "/nowhere/at/all"))
    return f"replaced by {kind}"


def _change_json(rng: random.Random, path: Path) -> str:
    values = json.loads(path.read_text())
    changes = [" ".join(_change_one(rng, values)) for _ in range(rng.choice((1, 1, 1, 3)))]
    if rng.random() < 0.03:
        path.write_text("[" * 100_000)
        return "very deep JSON"
    signed = "checksum" in values and rng.random() < 0.5
    if signed:
        body = {key: value for key, value in values.items() if key != "checksum"}
        text = json.dumps(body, sort_keys=True).encode()
        values["checksum"] = hashlib.blake2b(text, digest_size=32).hexdigest()
    path.write_text(json.dumps(values, indent=1))
    return f"JSON {'; '.join(changes)}{', its checksum made to fit' if signed else ''}"


def _change_one(rng: random.Random, values: Any) -> tuple[str, str]:
    spots: list[tuple[str, Any, Any]] = []

    def walk(value: Any, name: str) -> None:
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, inner in list(items):
            spots.append((f"{name}/{key}", value, key))
            if isinstance(inner, dict | list):
                walk(inner, f"{name}/{key}")

    walk(values, "")
    if not spots:
        values["x"] = 1
        return "/x", "added"
    name, above, key = rng.choice(spots)
    kind = rng.random()
    if kind < 0.15:
        del above[key]
        return name, "deleted"
    if kind < 0.25 and isinstance(above, dict):
        above[rng.choice(("x", "", "../x", "format", key + "x", rng.choice(CONTROLS)))] = copy.deepcopy(
            rng.choice(VALUES)
        )
        return name, "has a neighbour more"
    if kind < 0.35 and isinstance(above[key], int | float):
        above[key] = above[key] * rng.choice((-1, 2, 10, 1_000_000)) + rng.choice((-1, 0, 1))
    else:
        above[key] = copy.deepcopy(rng.choice(VALUES))
    return name, f"is {str(above[key])[:60]!r}"
