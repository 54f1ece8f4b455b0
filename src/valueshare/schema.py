"""The JSON files of a run folder as types: everything that is read is checked against them.

A run folder is untrusted. So types, ranges and names are checked before a value is used,
and a file name in it is a plain name: no path, no `..`.
"""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct

from valueshare.errors import InvalidInput, one_line
from valueshare.files import checksum, open_regular, reason

CONFIG = "config.json"
FORMAT = 4  # run-folder format; others, which had other names for settings and tensors, are refused
WRONG_CHECKSUM = "its checksum does not match"
MAX_FILE_BYTES = 16 * 2**20  # bytes: the config.json of 57 games has 60 kB

Backend = Literal["envpool", "gymnasium", "ale", "numba", "jax"]  # as in `envs/backends.py`
FileName = Annotated[str, Meta(pattern=r"\A[A-Za-z0-9][A-Za-z0-9._-]*\Z", max_length=200)]
# As Gymnasium registers them, with the module before a colon that it imports; ours have -bins7x7 behind them.
ENV_NAME = r"\A[\w.:/-]{1,200}\Z"
EnvName = Annotated[str, Meta(pattern=ENV_NAME)]
Version = Annotated[str, Meta(pattern=r"\A[\w.+!-]{1,100}\Z")]
FunctionName = Annotated[str, Meta(pattern=r"\A[\w.<>-]{1,1000}\Z")]  # with its module: mine.make.<locals>.<lambda>
Device = Annotated[str, Meta(pattern=r"\A(cpu|cuda)(:[0-9]{1,3})?\Z")]
Shard = Annotated[str, Meta(pattern=r"\A[0-9]{1,9}/[0-9]{1,9}\Z")]
PopulationName = Annotated[str, Meta(pattern=r"\Apopulation-[0-9]{1,9}\Z")]
Digest = Annotated[str, Meta(pattern=r"\A[0-9a-f]{16,128}\Z")]
Count = Annotated[int, Meta(ge=0, le=10**12)]
Positive = Annotated[int, Meta(ge=1, le=10**12)]
Seconds = Annotated[float, Meta(ge=0, le=1e12)]

T = TypeVar("T")


class StoredProtocol(Struct, frozen=True, forbid_unknown_fields=True):
    """An Atari protocol by name, with the digest of its settings."""

    name: FileName
    digest: Annotated[str, Meta(pattern=r"\A[0-9a-f]{12}\Z")]


class TrainingConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`config.json` of a training run. `TrainingSettings` checks the settings themselves."""

    format: Positive
    kind: Literal["training"]
    valueshare: Version
    settings: dict[EnvName, dict[str, Any]]  # by environment
    backends: dict[EnvName, Backend]  # by environment
    device: Device
    compile: bool
    network: FunctionName | None
    agents: Digest
    families: dict[EnvName, EnvName] = {}
    chunks: dict[PopulationName, Positive] = {}
    shard: Shard | None = None
    protocols: dict[EnvName, StoredProtocol] = {}
    actions: dict[EnvName, Positive] = {}  # by environment
    extended_from: dict[EnvName, list[Positive]] = {}  # by environment: earlier numbers of steps, ascending

    def __post_init__(self) -> None:
        if not self.settings or self.settings.keys() != self.backends.keys():
            raise ValueError("settings and backends must name the same environments")
        for what in ("families", "protocols", "actions", "extended_from"):
            if not getattr(self, what).keys() <= self.settings.keys():
                raise ValueError(f"{what} must name environments of the run")
        # A family has the name of one of its environments, which may be in another shard.
        if self.shard is None and not set(self.families.values()) <= self.settings.keys():
            raise ValueError("families must name environments of the run")
        number, count = map(int, (self.shard or "1/1").split("/"))
        if not 1 <= number <= count:
            raise ValueError(f"shard {self.shard}: shards are counted from 1")


class StoredSegment(Struct, frozen=True, forbid_unknown_fields=True):
    """One segment of replay in a checkpoint's manifest."""

    file: FileName
    digest: Digest
    end: Count
    frames: dict[FileName, Digest] = {}


class Manifest(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The manifest of a checkpoint, without its own checksum."""

    format: Positive
    phase: Count
    fingerprint: dict[str, Any]
    state: dict[FileName, Digest]
    segments: list[StoredSegment]
    records: dict[FileName, Digest]
    groups: Positive | None = None  # of agents, with environments in processes; earlier versions stored nothing


class ManifestRecords(Struct, frozen=True):
    """The fields of a manifest that readers of records need."""

    phase: Count
    records: dict[FileName, Digest]


class Progress(Struct, frozen=True):
    """The step of a population, and the time it has taken, with attempts that were lost."""

    step: Count = 0
    phases: Count = 0  # that are finished
    seconds: Seconds = 0.0
    attempts: Count = 0
    evaluations: tuple[tuple[Count, Seconds], ...] = ()  # the step of each, and the time it took until then


class StoredLease(Struct, frozen=True):
    """The lease of a run at a URL, which its owner renews."""

    token: str
    beat: Annotated[int, Meta(ge=0, le=10**12)]
    seconds: Annotated[float, Meta(ge=0, le=3_600)]  # without a renewal, until it expires
    renewed: Annotated[float, Meta(ge=0, le=10**12)]  # by the owner's clock, since 1970


class Invalid(ValueError):
    """A value that does not fit its type; the message says where and why."""


def validate_as(values: object, kind: type[T]) -> T:
    """Values from JSON converted to a type; `Invalid` where they do not fit it."""
    try:
        return msgspec.convert(values, kind)
    except (msgspec.ValidationError, RecursionError) as error:
        raise Invalid(one_line(error).replace("`", "'")) from error  # backticks mark settings


def read_object(file: Path, *, finite: bool = True) -> dict[str, Any]:
    """A JSON object from a file, or `OSError` or `Invalid`; without `finite`, numbers may be NaN and infinite."""
    with open_regular(file) as opened:
        return json_object(opened.read(MAX_FILE_BYTES + 1), finite=finite)


def read_checksummed(file: Path) -> dict[str, Any]:
    """A JSON object with its own checksum in it, without that; `Invalid` where it does not fit."""
    body = read_object(file)
    if body.pop("checksum", None) != body_checksum(body):
        raise Invalid(WRONG_CHECKSUM)
    return body


def body_checksum(body: Mapping[str, Any]) -> str:
    """The checksum in a manifest, of everything else in it."""
    return checksum(json.dumps(body, sort_keys=True).encode()).hexdigest()


def json_object(content: bytes, *, finite: bool = True) -> dict[str, Any]:
    """A JSON object from the content of a file; `Invalid` where it is not one, or too large."""
    if len(content) > MAX_FILE_BYTES:
        raise Invalid(f"it is larger than {MAX_FILE_BYTES // 2**20} MiB")
    try:
        number = _finite if finite else float
        values = json.loads(content, parse_float=number, parse_constant=number)
    except (ValueError, RecursionError) as error:
        raise Invalid(f"it is not valid JSON: {error}") from error
    if not isinstance(values, dict):
        raise Invalid("it is not a JSON object")
    return values


def _finite(text: str) -> float:
    """A number; NaN and infinity are not valid JSON, though Python would read and write them."""
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is not a number")
    return value


def read_config(folder: Path, *, skip_damaged: bool = False) -> dict[str, Any] | None:
    """The JSON object in config.json of a results folder; None without one.

    A damaged file and a run folder of another format are refused; with `skip_damaged` a damaged file is None too, and
    any format is read. This is the one reader of that file.
    """
    file = folder / CONFIG
    try:
        values = read_object(file)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, Invalid) as error:
        if skip_damaged:
            return None
        if isinstance(error, OSError):
            raise InvalidInput(f"{file} cannot be read: {reason(error)}") from error
        raise InvalidInput(f"{file} is damaged ({error}): restore the original file") from error
    if "format" in values and not skip_damaged:  # results of tabular studies have no format
        check_format(folder, values)
    return values


def stored_version(config: Mapping[str, Any]) -> str | None:
    """The version that wrote a config.json; None where it is not the text of a version."""
    try:
        return validate_as(config.get("valueshare"), Version)
    except Invalid:
        return None


def check_format(folder: Path, config: Mapping[str, Any]) -> None:
    """Refuse a run folder of another format; `config` is the content of its config.json."""
    stored_format = config.get("format")
    if type(stored_format) is not int:
        raise InvalidInput(
            f"{folder / CONFIG} is damaged: its format is {stored_format!r}, not {FORMAT}; restore the original file"
        )
    if stored_format == FORMAT:
        if "kind" not in config:
            raise InvalidInput(f"{folder / CONFIG} is damaged: it has no kind of results; restore the original file")
        return
    is_newer = stored_format > FORMAT
    other, advice = ("a newer", "upgrade valueshare") if is_newer else ("an earlier", "use that version")
    version = stored_version(config)
    number = "" if version is None else f" (valueshare {version})"
    raise InvalidInput(
        f"{folder} was written by {other} version{number}, in run-folder format {stored_format}; "
        f"this one reads format {FORMAT}: {advice}"
    )
