"""The rows of a benchmark: printed as they are measured, or all of them as JSON at the end."""

import json
import sys
from typing import NamedTuple

from valueshare.printing import print_line
from valueshare.runs.provenance import library_versions, machine_line


class Row(NamedTuple):
    """One measurement, and what it cannot be faster than."""

    part: str
    ms: float
    rate: float | None = None  # per second, in the unit of the benchmark
    limit: str = ""  # the same work without this package, or with nothing but its arithmetic
    share: float | None = None  # time at that limit / time measured: 1 cannot be improved
    note: str = ""


class Output:
    """The output of one benchmark. With `as_json`, standard output is one JSON object."""

    def __init__(self, name: str, unit: str, *, as_json: bool = False) -> None:
        self.name, self.unit, self.as_json = name, unit, as_json
        self.rows: list[Row] = []
        self._lines: list[str] = []

    def say(self, line: str) -> None:
        """A line of text beside the rows."""
        self._lines.append(line)
        if not self.as_json:
            print_line(line)

    def add(self, row: Row) -> None:
        if not self.rows and not self.as_json:
            print_line(_columns("part", "time", f"{self.unit}/s", "of limit", "limit; notes"))
        self.rows.append(row)
        if not self.as_json:
            print_line(shown(row))

    def end(self, device: str = "cpu") -> None:
        """The machine and the versions, below the rows."""
        if not self.as_json:
            print_line(versions_line(device))
            return
        benchmark = {"benchmark": self.name, "unit": self.unit, "description": self._lines}
        rows = [row._asdict() for row in self.rows]
        about = {"machine": machine(device), "versions": versions()}
        print_line(*json.dumps({**benchmark, "rows": rows, **about}, indent=1).splitlines())


def shown(row: Row) -> str:
    """A row as a line of text."""
    rate = "" if row.rate is None else f"{row.rate:,.0f}"
    share = "" if row.share is None else _digits(row.share, 2)
    return _columns(row.part, _time(row.ms), rate, share, "; ".join(filter(None, (row.limit, row.note))))


def versions_line(device: str = "cpu") -> str:
    """Machine and versions in one line."""
    return ", ".join([machine(device), *(f"{name} {version}" for name, version in versions().items())])


def machine(device: str) -> str:
    if not device.startswith("cuda"):
        return machine_line()
    from torch.cuda import get_device_name

    return f"{machine_line()}, {get_device_name(device)}"


def versions() -> dict[str, str]:
    return {"Python": sys.version.split()[0], **library_versions()}


def _digits(value: float, decimals: int) -> str:
    """A number with `decimals` decimals, or two digits if that would leave fewer."""
    return f"{value:,.{decimals}f}" if value >= 10 ** (1 - decimals) else f"{value:.2g}"


def _time(ms: float) -> str:
    """A time in the largest unit of which it is at least one."""
    units = {"s": 1e-3, "ms": 1.0, "µs": 1e3, "ns": 1e6}
    unit = next((unit for unit, per_ms in units.items() if ms * per_ms >= 1), "ns")
    return f"{ms * units[unit]:,.4g} {unit}"


def _columns(part: str, time: str, rate: str, share: str, limit: str) -> str:
    return f"{part:<34}{time:>12}{rate:>16}{share:>10}  {limit}".rstrip()
