"""Measured compile times, kept in the user's cache folder: they decide which runs are long enough to be compiled."""

from contextlib import suppress
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from valueshare.files import atomic_write, cache_folder, open_regular

KEPT = 8  # measurements per compiler, the newest last
MAX_BYTES = 100_000

Seconds = Annotated[float, Meta(gt=0, le=86_400)]
Times = Annotated[list[Seconds], Meta(min_length=1, max_length=KEPT)]


class CompileTimes(Struct, forbid_unknown_fields=True):
    """Seconds that compiling a population took, by `compiler_name`."""

    seconds: Annotated[dict[Annotated[str, Meta(max_length=200)], Times], Meta(max_length=100)]


def compile_times_file() -> Path:
    return cache_folder("compile-times.json")


def measured_seconds(compiler: str) -> float | None:
    """The longest of the last measurements: a program that PyTorch has in its cache takes a tenth. None: not known."""
    return max(_read().seconds.get(compiler, ()), default=None)


def add_measurement(compiler: str, seconds: float) -> None:
    """Keep a measurement; of two processes that write at the same time, one is lost. A file that cannot be written is
    left out: nothing but a choice depends on it."""
    times = _read()
    earlier = times.seconds.pop(compiler, [])
    times.seconds[compiler] = [*earlier, round(seconds, 1)][-KEPT:]
    with suppress(OSError, msgspec.ValidationError):
        content = msgspec.json.encode(msgspec.convert(msgspec.to_builtins(times), CompileTimes))
        compile_times_file().parent.mkdir(parents=True, exist_ok=True)
        atomic_write(compile_times_file(), [content], synced=False)


def _read() -> CompileTimes:
    """The stored times; none where the file is missing or damaged."""
    with suppress(OSError, msgspec.MsgspecError, RecursionError), open_regular(compile_times_file()) as file:
        return msgspec.json.decode(file.read(MAX_BYTES), type=CompileTimes)
    return CompileTimes({})
